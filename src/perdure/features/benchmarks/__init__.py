"""Benchmarks: what an agent remembers, measured on published data; see `feature`."""
