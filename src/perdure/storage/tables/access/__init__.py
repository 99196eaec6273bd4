"""The tables of the directory: organisations, users, keys, the audit log, and what was used."""
