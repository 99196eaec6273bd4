-- The tables of a new store. Written by `python -m scripts.write_schema` from the migrations: don't edit.
-- A line `full text: NAME` stands for a full-text index, which databases make in their own ways.

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
    failure TEXT NOT NULL, left_out TEXT NOT NULL DEFAULT '[]',
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
