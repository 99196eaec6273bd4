"""Agents as files: written, and read."""
