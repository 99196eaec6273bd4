"""Facts: graphs of agents, what waits for extraction, and changes of what is known."""
