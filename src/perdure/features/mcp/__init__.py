"""MCP servers, and their tools as tools of agents. The SDK, `mcp`, is imported at first use."""
