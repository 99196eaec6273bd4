"""Packing: the parts of memory that say most within a budget of tokens, as one text."""
