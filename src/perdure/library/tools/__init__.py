"""Tools, what runs them, MCP servers and secrets."""
