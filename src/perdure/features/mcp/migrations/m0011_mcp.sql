-- MCP servers, and of each of their tools what was approved and what the server said last.
--
-- `config` is JSON without secrets; those are in `sealed`, encrypted, as base64. `seen` is null where the server has
-- the tool no more, `pinned` where nothing was approved yet.

CREATE TABLE mcp_servers (
    id TEXT PRIMARY KEY,
    org_id TEXT NOT NULL,
    number BIGINT NOT NULL,
    name TEXT NOT NULL,
    transport TEXT NOT NULL,
    config TEXT NOT NULL,
    sealed TEXT NOT NULL,
    trusted SMALLINT NOT NULL,
    created_at TEXT NOT NULL,
    updated_at TEXT NOT NULL,
    listed_at TEXT,
    failure TEXT NOT NULL,
    UNIQUE (org_id, name)
);
CREATE TABLE mcp_tools (
    server_id TEXT NOT NULL,
    name TEXT NOT NULL,
    local_name TEXT NOT NULL,
    tool_id TEXT,
    pinned TEXT,
    seen TEXT,
    PRIMARY KEY (server_id, name)
) {clustered};
CREATE INDEX mcp_tools_by_tool ON mcp_tools (tool_id);
