"""Structured notes, kept as Markdown in archival memory; and memory that belongs to a project's folder."""
