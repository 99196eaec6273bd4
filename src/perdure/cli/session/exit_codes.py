"""What a command leaves with when it did not succeed."""

FAILED = 1
WAITING = 3
INTERRUPTED = 130
"""What shells report for a program that SIGINT ended."""
