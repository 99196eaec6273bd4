"""The commands about agents that work together."""
