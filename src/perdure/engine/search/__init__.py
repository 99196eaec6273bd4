"""Searches that need an embedder as well as the store."""
