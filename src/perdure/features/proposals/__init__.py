"""Blocks that only a person changes, and proposals to change memory, which a person approves or refuses."""
