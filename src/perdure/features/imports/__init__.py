"""Imports: the past that people bring from other programs; see `feature`."""
