"""Agent files: agents in one JSON document, as Letta's server writes them."""
