"""The routes of administration."""
