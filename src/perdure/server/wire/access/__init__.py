"""The shapes of administration."""
