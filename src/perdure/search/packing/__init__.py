"""Packing: select the best parts of memory within a budget of tokens, as one text."""
