"""Folders, their files and uploads."""
