"""Archival memory: archives, their passages, the embedding queue, and transfer to another store."""
