"""Tools: custom tools as objects, and the built-in tools that act inside a transaction."""
