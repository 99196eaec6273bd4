"""Helpers: agents that work for another one; see `feature`."""
