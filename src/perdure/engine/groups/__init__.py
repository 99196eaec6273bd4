"""Turns of groups: one floor above the run. A run does not know that it is part of a group."""
