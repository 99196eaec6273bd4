"""`python -m benchmarks`: every measurement."""
