"""Tools that run code or reach other systems: functions, the sandbox, MCP servers, web tools, and hook commands."""
