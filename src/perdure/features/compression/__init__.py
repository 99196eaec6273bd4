"""Compression of tool output: without loss, checked by decoding; then shortened, with a count of what is left out."""
