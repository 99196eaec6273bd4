"""Exports: agents as folders that people and programs can read; see `feature`."""
