"""What entered the context of a write, and whether the agent's settings let it be stored."""
