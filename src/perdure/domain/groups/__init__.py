"""Groups of agents: units of work."""
