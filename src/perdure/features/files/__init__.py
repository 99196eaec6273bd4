"""Folders of files that agents read and search, and the readers that make text of files."""
