"""Groups of agents, their turns, and what was said in them."""
