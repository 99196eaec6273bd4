"""Calls that wait for somebody outside, and the answers to them."""
