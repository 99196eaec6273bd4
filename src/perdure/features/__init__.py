"""Capabilities that are a folder each: they use the kernel, and it works without them."""
