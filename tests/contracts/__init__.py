"""What every store promises, as tests that any backend runs: one class for each noun, all of them in `store`."""
