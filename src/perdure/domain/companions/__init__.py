"""Companions: units of work."""
