"""Agents described in files: planned, applied, compared and written."""
