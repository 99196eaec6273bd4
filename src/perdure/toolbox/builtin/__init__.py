"""The built-in tools that don't edit memory: they run code, reach the web, ask the user."""
