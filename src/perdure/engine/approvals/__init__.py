"""Calls that wait for a person or the caller, and the answers to them."""
