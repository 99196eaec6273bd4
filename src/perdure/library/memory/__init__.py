"""Blocks, archives with their passages, and their search."""
