"""The sources of memory."""
