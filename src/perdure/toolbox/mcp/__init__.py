"""The MCP client: connections to servers, kept open, and their tools as a toolbox. `mcp` is imported at first use."""
