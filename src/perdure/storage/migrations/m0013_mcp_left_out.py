"""What the last listing of an MCP server had that can't be a tool, as a JSON list of [name, reason]."""

from __future__ import annotations

from perdure.storage.database.base import Database


def apply(db: Database) -> None:
    db.run("ALTER TABLE mcp_servers ADD COLUMN left_out TEXT NOT NULL DEFAULT '[]'", {})
