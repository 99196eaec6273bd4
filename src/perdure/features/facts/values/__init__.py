"""Facts as values: what is known, how it is derived, settings."""
