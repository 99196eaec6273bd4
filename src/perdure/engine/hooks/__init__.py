"""Hooks: the bus that calls them, and the points where a run does."""
