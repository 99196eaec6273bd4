"""Text: the words that are indexed and searched, time zones, tags and JSON."""
