"""What the classes of all nouns share: parts, checks of arguments, models, and the loop of plain calls."""
