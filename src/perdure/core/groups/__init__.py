"""Groups of agents, companions, and what they do next: values."""
