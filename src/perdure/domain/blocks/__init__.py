"""Core memory: blocks, the edits that agents make to them, and blocks shown as files."""
