"""Folders and their files."""
