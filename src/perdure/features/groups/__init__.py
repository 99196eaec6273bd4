"""Groups of agents, companions that tidy another agent's memory, and agents that write to agents."""
