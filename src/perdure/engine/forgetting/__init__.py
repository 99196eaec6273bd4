"""Forgetting: where a text stands, taking it out of view, and removing it from the store."""
