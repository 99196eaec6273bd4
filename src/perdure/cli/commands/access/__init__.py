"""The commands about organisations, users and keys."""
