"""Agents, and the identities that they belong to."""
