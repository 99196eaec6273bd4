"""Forgetting: where a text stands, corrections that can be undone, and taking a text out of others."""
