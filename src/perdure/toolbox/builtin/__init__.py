"""The built-in tools that are not of memory: they run code, reach the web, ask the user."""
