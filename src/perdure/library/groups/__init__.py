"""Groups of agents, and companions."""
