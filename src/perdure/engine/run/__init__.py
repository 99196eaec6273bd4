"""One run, from an accepted request to its stop reason."""
