"""Queries: the dates, times and names in them."""
