-- What the last listing of an MCP server had that can't be a tool, as a JSON list of [name, reason].

ALTER TABLE mcp_servers ADD COLUMN left_out TEXT NOT NULL DEFAULT '[]';
