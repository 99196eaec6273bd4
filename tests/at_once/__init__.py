"""Cases of changes that are made twice at once, by noun."""
