"""Organisations, users and keys of a store: their administration, and the open engines of organisations."""
