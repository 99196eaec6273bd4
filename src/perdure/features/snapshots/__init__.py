"""Exact states of agents: kept, brought back, and made into agents of their own."""
