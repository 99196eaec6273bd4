"""The operations on groups of agents."""
