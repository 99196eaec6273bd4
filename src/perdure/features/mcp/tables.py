"""`tx.of(Servers)`: MCP servers and the definitions of their tools."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from perdure.core.errors import AlreadyExists, NotFound
from perdure.core.ids import McpServerId, ToolId
from perdure.features.mcp.values import InvalidEntry, McpServer, McpTool, ToolDefinition
from perdure.storage.database import row_format
from perdure.storage.tables.table import NounTable, OwnId, next_number

_LISTS = ("args", "header_names", "variable_names")


def _build_server(config: dict[str, Any], **columns: Any) -> McpServer:
    """Make a server of its row, in which `config` holds the fields of `_CONFIG`."""
    fields: dict[str, Any] = {"private": None, **config}  # servers from before this field have none
    fields |= {name: tuple(fields[name]) for name in _LISTS if name in fields}
    return McpServer(**columns, **fields)


_LEFT_OUT = row_format.Codec(
    lambda entries: row_format.dump([[entry.name, entry.reason] for entry in entries]),
    lambda text: tuple(InvalidEntry(name=name, reason=reason) for name, reason in row_format.load(text)),
)
_SERVER = row_format.RowFormat(
    McpServer,
    {row_format.JSON: "config", _LEFT_OUT: "left_out"},
    columns="id, org_id, number, name, transport, config, sealed, trusted, created_at, updated_at, listed_at, failure,"
    " left_out",
    build=_build_server,
)
_DEFINITION = row_format.Codec(row_format.dump_fields, lambda text: ToolDefinition(**row_format.load(text)))
_TOOL = row_format.RowFormat(
    McpTool, {_DEFINITION: "pinned seen"}, columns="server_id, name, local_name, tool_id, pinned, seen"
)


class Servers(NounTable[McpServer]):
    """The registered MCP servers, and the definitions of their tools."""

    _kind, _source, _format = "mcp_server", "mcp_servers", _SERVER

    def add(self, server: McpServer) -> McpServer:
        """Add a server that was not listed yet. Raises: AlreadyExists: its name or id exists."""
        if self._rows("SELECT 1 FROM mcp_servers WHERE id = :id", id=server.id):
            raise AlreadyExists("MCP server", server.id)
        server = replace(
            server, org_id=self._org_id, number=next_number(self._db), listed_at=None, failure="", left_out=()
        )
        sql = f"{row_format.insert_into('mcp_servers', _SERVER.columns)} ON CONFLICT (org_id, name) DO NOTHING"
        if not self._run_counted(sql, **_SERVER.params(server)):
            raise AlreadyExists("MCP server", server.name)
        return self.get(server.id)

    def put(self, server: McpServer) -> McpServer:
        """Update a server, except its last listing. Raises: NotFound; AlreadyExists: another server has the name."""
        before = self.get(server.id)
        namesake = self.find_by_name(server.name)
        if namesake is not None and namesake.id != server.id:
            raise AlreadyExists("MCP server", server.name)
        columns = row_format.assignments("name, transport, config, sealed, trusted, updated_at")
        params = _SERVER.params(server) | {"id": OwnId(before.id)}
        self._run(f"UPDATE mcp_servers SET {columns} WHERE id = :id", **params)
        return replace(
            server,
            org_id=self._org_id,
            number=before.number,
            created_at=before.created_at,
            listed_at=before.listed_at,
            failure=before.failure,
            left_out=before.left_out,
        )

    def put_listing(
        self, server_id: McpServerId, *, failure: str, at: datetime, left_out: Sequence[InvalidEntry] = ()
    ) -> None:
        """Store a listing with its left-out entries, or a `failure`, which keeps the last listing. Raises: NotFound."""
        columns = "failure" if failure else "failure, listed_at, left_out"
        if not self._run_counted(
            f"UPDATE mcp_servers SET {row_format.assignments(columns)} WHERE id = :id AND org_id = :org_id",
            id=server_id,
            failure=row_format.storable(failure),
            listed_at=row_format.iso(at),
            left_out=_LEFT_OUT.store(left_out),
        ):
            raise NotFound("MCP server", server_id)

    def find_by_name(self, name: str) -> McpServer | None:
        return self._find("name = :name", name=row_format.storable(name))

    def list(self, *, limit: int = 1_000) -> Sequence[McpServer]:
        """Servers in order of creation."""
        return self._read("1 = 1 ORDER BY number LIMIT :limit", limit=limit)

    def delete(self, server_id: McpServerId) -> None:
        """Delete a server and the definitions of its tools, not the tools that agents have. Raises: NotFound."""
        self.get(server_id)
        self._run("DELETE FROM mcp_tools WHERE server_id = :id", id=server_id)
        self._run("DELETE FROM mcp_servers WHERE id = :id", id=server_id)

    def put_tool(self, tool: McpTool) -> None:
        """Create or update the definition of one tool of a server. Raises: NotFound: no such server."""
        self.get(tool.server_id)
        self._run(
            f"{row_format.insert_into('mcp_tools', _TOOL.columns)} ON CONFLICT (server_id, name)"
            " DO UPDATE SET local_name = excluded.local_name, tool_id = excluded.tool_id, pinned = excluded.pinned,"
            " seen = excluded.seen",
            **_TOOL.params(tool),
        )

    def delete_tool(self, server_id: McpServerId, name: str) -> None:
        """Delete the definition of one tool of a server. Raises: NotFound."""
        self.get(server_id)
        sql = "DELETE FROM mcp_tools WHERE server_id = :id AND name = :name"
        if not self._run_counted(sql, id=server_id, name=row_format.storable(name)):
            raise NotFound("MCP tool", name)

    def tools(self, server_id: McpServerId) -> Sequence[McpTool]:
        """The definitions of a server's tools, in order of names. Raises: NotFound."""
        self.get(server_id)
        return self._all(
            _TOOL, f"SELECT {_TOOL.columns} FROM mcp_tools WHERE server_id = :id ORDER BY name", id=server_id
        )

    def find_tool(self, tool_id: ToolId) -> McpTool | None:
        """The server's tool that agents have as this tool; None: it is none of a server."""
        return self._one(
            _TOOL,
            f"SELECT {_TOOL.columns_of('t')} FROM mcp_tools t JOIN mcp_servers s ON s.id = t.server_id"
            " WHERE t.tool_id = :tool_id AND s.org_id = :org_id",
            tool_id=row_format.storable(tool_id),
        )
