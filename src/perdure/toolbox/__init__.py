"""Foreign code as tools."""
