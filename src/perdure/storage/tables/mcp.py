"""`tx.mcp`: MCP servers and the definitions of their tools."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from perdure.core.errors import AlreadyExists, NotFound
from perdure.core.ids import McpServerId, OrgId, ToolId
from perdure.core.mcp import Definition, LeftOut, McpServer, McpTool
from perdure.core.text.words import restore, storable
from perdure.storage.database.base import Database, OwnId, Row, dump, from_iso, iso, load, next_number

_COLUMNS = (
    "id, org_id, number, name, transport, config, sealed, trusted, created_at, updated_at, listed_at, failure, left_out"
)
_TOOL_COLUMNS = "t.server_id, t.name, t.local_name, t.tool_id, t.pinned, t.seen"
_CONFIG = ("command", "args", "url", "auth_header", "header_names", "variable_names", "private")
_LISTS = ("args", "header_names", "variable_names")


class Mcp:
    def __init__(self, db: Database, org_id: OrgId) -> None:
        self._db, self._org_id = db, org_id

    def add(self, server: McpServer) -> McpServer:
        """Add a server. Raises: AlreadyExists: its name or id exists."""
        if self._db.rows("SELECT 1 FROM mcp_servers WHERE id = :id", {"id": server.id}):
            raise AlreadyExists("MCP server", server.id)
        server = replace(server, org_id=self._org_id, number=next_number(self._db))
        added = self._db.run(
            "INSERT INTO mcp_servers (id, org_id, number, name, transport, config, sealed, trusted, created_at,"
            " updated_at, listed_at, failure) VALUES (:id, :org_id, :number, :name, :transport, :config, :sealed,"
            " :trusted, :created_at, :updated_at, NULL, '') ON CONFLICT (org_id, name) DO NOTHING",
            self._params(server),
        )
        if not added:
            raise AlreadyExists("MCP server", server.name)
        return self.get(server.id)

    def put(self, server: McpServer) -> McpServer:
        """Update a server, except its last listing. Raises: NotFound; AlreadyExists: another server has the name."""
        before = self.get(server.id)
        named = self.find_by_name(server.name)
        if named is not None and named.id != server.id:
            raise AlreadyExists("MCP server", server.name)
        self._update(OwnId(before.id), server)
        return replace(
            server,
            org_id=self._org_id,
            number=before.number,
            created_at=before.created_at,
            listed_at=before.listed_at,
            failure=before.failure,
            left_out=before.left_out,
        )

    def _update(self, own: OwnId, server: McpServer) -> None:
        self._db.run(
            "UPDATE mcp_servers SET name = :name, transport = :transport, config = :config, sealed = :sealed,"
            " trusted = :trusted, updated_at = :updated_at WHERE id = :id",
            self._params(server) | {"id": own},
        )

    def read(self, server_id: McpServerId, *, failure: str, at: datetime, left_out: Sequence[LeftOut] = ()) -> None:
        """Record a listing of a server's tools with the entries that were left out, or a failure, which keeps the last
        listing. Raises: NotFound."""
        changed: dict[str, Any] = {"failure": storable(failure)}
        if not failure:
            changed |= {"listed_at": iso(at), "left_out": dump([[one.name, one.reason] for one in left_out])}
        if not self._db.run(
            f"UPDATE mcp_servers SET {', '.join(f'{name} = :{name}' for name in changed)}"
            " WHERE id = :id AND org_id = :org_id",
            {"id": server_id, "org_id": self._org_id, **changed},
        ):
            raise NotFound("MCP server", server_id)

    def get(self, server_id: McpServerId) -> McpServer:
        """Raises: NotFound."""
        rows = self._read("id = :id", {"id": storable(server_id)})
        if not rows:
            raise NotFound("mcp_server", server_id)
        return rows[0]

    def find_by_name(self, name: str) -> McpServer | None:
        rows = self._read("name = :name", {"name": storable(name)})
        return rows[0] if rows else None

    def list(self, *, limit: int = 1_000) -> Sequence[McpServer]:
        """Servers in order of creation."""
        return self._read("1 = 1 ORDER BY number LIMIT :limit", {"limit": limit})

    def delete(self, server_id: McpServerId) -> None:
        """Delete a server and the definitions of its tools, not the tools that agents have. Raises: NotFound."""
        self.get(server_id)
        self._db.run("DELETE FROM mcp_tools WHERE server_id = :id", {"id": server_id})
        self._db.run("DELETE FROM mcp_servers WHERE id = :id", {"id": server_id})

    def put_tool(self, tool: McpTool) -> None:
        """Create or update the definition of one tool of a server. Raises: NotFound: no such server."""
        self.get(tool.server_id)
        self._db.run(
            "INSERT INTO mcp_tools (server_id, name, local_name, tool_id, pinned, seen)"
            " VALUES (:server_id, :name, :local_name, :tool_id, :pinned, :seen) ON CONFLICT (server_id, name)"
            " DO UPDATE SET local_name = excluded.local_name, tool_id = excluded.tool_id, pinned = excluded.pinned,"
            " seen = excluded.seen",
            {
                "server_id": tool.server_id,
                "name": storable(tool.name),
                "local_name": tool.local_name,
                "tool_id": tool.tool_id,
                "pinned": _dump(tool.pinned),
                "seen": _dump(tool.seen),
            },
        )

    def delete_tool(self, server_id: McpServerId, name: str) -> None:
        """Raises: NotFound."""
        self.get(server_id)
        if not self._db.run(
            "DELETE FROM mcp_tools WHERE server_id = :id AND name = :name", {"id": server_id, "name": storable(name)}
        ):
            raise NotFound("MCP tool", name)

    def tools(self, server_id: McpServerId) -> Sequence[McpTool]:
        """The definitions of a server's tools, in order of names. Raises: NotFound."""
        self.get(server_id)
        rows = self._db.rows(
            f"SELECT {_TOOL_COLUMNS} FROM mcp_tools t WHERE t.server_id = :id ORDER BY t.name", {"id": server_id}
        )
        return [_tool(row) for row in rows]

    def find_tool(self, tool_id: ToolId) -> McpTool | None:
        """The definition behind one of our tools."""
        rows = self._db.rows(
            f"SELECT {_TOOL_COLUMNS} FROM mcp_tools t JOIN mcp_servers s ON s.id = t.server_id"
            " WHERE t.tool_id = :tool_id AND s.org_id = :org_id",
            {"tool_id": storable(tool_id), "org_id": self._org_id},
        )
        return _tool(rows[0]) if rows else None

    def _read(self, where: str, params: Mapping[str, Any]) -> Sequence[McpServer]:
        rows = self._db.rows(
            f"SELECT {_COLUMNS} FROM mcp_servers WHERE org_id = :org_id AND {where}",
            {**params, "org_id": self._org_id},
        )
        return [_server(row) for row in rows]

    def _params(self, server: McpServer) -> dict[str, Any]:
        return {
            "id": server.id,
            "org_id": self._org_id,
            "number": server.number,
            "name": storable(server.name),
            "transport": server.transport,
            "config": dump({name: getattr(server, name) for name in _CONFIG}),
            "sealed": base64.b64encode(server.sealed).decode(),
            "trusted": int(server.trusted),
            "created_at": iso(server.created_at),
            "updated_at": iso(server.updated_at),
        }


def _server(row: Row) -> McpServer:
    config: dict[str, Any] = {"private": None, **load(row[5])}  # what was registered before this was asked
    fields: dict[str, Any] = {name: tuple(value) if name in _LISTS else value for name, value in config.items()}
    return McpServer(
        id=row[0],
        org_id=row[1],
        number=row[2],
        name=restore(row[3]),
        transport=row[4],
        **fields,
        sealed=base64.b64decode(row[6]),
        trusted=bool(row[7]),
        created_at=from_iso(row[8]),
        updated_at=from_iso(row[9]),
        listed_at=from_iso(row[10]),
        failure=restore(row[11]),
        left_out=tuple(LeftOut(name=name, reason=reason) for name, reason in load(row[12])),
    )


def _tool(row: Row) -> McpTool:
    return McpTool(
        server_id=row[0],
        name=restore(row[1]),
        local_name=row[2],
        tool_id=row[3],
        pinned=_definition(row[4]),
        seen=_definition(row[5]),
    )


def _dump(definition: Definition | None) -> str | None:
    if definition is None:
        return None
    return dump({name: getattr(definition, name) for name in Definition.__slots__})


def _definition(text: str | None) -> Definition | None:
    return None if text is None else Definition(**load(text))
