"""Upkeep: checksums, and what is derived compared with the rows it was derived from."""
