"""Companions: their passes over what was said."""
