"""`perdure schedule` and `perdure event`."""
