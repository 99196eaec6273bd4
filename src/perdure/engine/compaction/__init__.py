"""Compaction: what leaves the view, and the summary that stands for it."""
