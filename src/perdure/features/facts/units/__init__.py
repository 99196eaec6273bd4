"""Units of work over facts."""
