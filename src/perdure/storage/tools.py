"""`tx.tools`: the tool verbs of one transaction."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from perdure.core.errors import NotFound
from perdure.core.ids import AgentId, OrgId, ToolId
from perdure.core.text import storable
from perdure.core.tools import Tool, ToolSpec
from perdure.storage.database import Database, Row, dump, iso, load

__all__ = ["Tools"]

_COLUMNS = "id, spec, tags, metadata"


class Tools:
    def __init__(self, db: Database, org_id: OrgId) -> None:
        self._db, self._org_id = db, org_id

    def put(self, tool: Tool, *, at: datetime) -> Tool:
        before = self.find_by_name(tool.spec.name)
        if before is not None and replace(before, id=tool.id) == tool:
            return before
        if before is not None:
            self._db.run(
                "UPDATE agents SET settings_revision = settings_revision + 1"
                " WHERE id IN (SELECT agent_id FROM agent_tools WHERE tool_id = :id)",
                {"id": before.id},
            )
        rows = self._db.rows(
            "INSERT INTO tools (id, org_id, name, spec, tags, metadata, created_at, updated_at)"
            " VALUES (:id, :org_id, :name, :spec, :tags, :metadata, :at, :at)"
            " ON CONFLICT (org_id, name) DO UPDATE SET spec = excluded.spec, tags = excluded.tags,"
            f" metadata = excluded.metadata, updated_at = excluded.updated_at RETURNING {_COLUMNS}",
            {
                "id": tool.id,
                "org_id": self._org_id,
                "name": storable(tool.spec.name),
                "spec": dump({name: getattr(tool.spec, name) for name in ToolSpec.__slots__}),
                "tags": dump(tool.tags),
                "metadata": dump(tool.metadata),
                "at": iso(at),
            },
        )
        return _tool(rows[0])

    def get(self, tool_id: ToolId) -> Tool:
        rows = self._read("org_id = :org_id AND id = :id", {"id": storable(tool_id)})
        if not rows:
            raise NotFound("tool", tool_id)
        return rows[0]

    def find_by_name(self, name: str) -> Tool | None:
        rows = self._read("org_id = :org_id AND name = :name", {"name": storable(name)})
        return rows[0] if rows else None

    def list(self, *, limit: int = 200) -> Sequence[Tool]:
        return self._read("org_id = :org_id ORDER BY name LIMIT :limit", {"limit": limit})

    def attach(self, agent_id: AgentId, name: str) -> None:
        tool = self.find_by_name(name)
        if tool is None:
            known = ", ".join(known.spec.name for known in self.list())
            raise NotFound("tool", name, hint=f"there are {known}")
        if self._db.run(
            "INSERT INTO agent_tools (agent_id, tool_id) SELECT a.id, :tool_id FROM agents a"
            " WHERE a.id = :agent_id AND a.org_id = :org_id ON CONFLICT (agent_id, tool_id) DO NOTHING",
            {"agent_id": agent_id, "tool_id": tool.id, "org_id": self._org_id},
        ):
            self._revised(agent_id)
        elif not self._db.rows(
            "SELECT 1 FROM agents WHERE id = :id AND org_id = :org_id", {"id": agent_id, "org_id": self._org_id}
        ):
            raise NotFound("agent", agent_id)

    def detach(self, agent_id: AgentId, name: str) -> None:
        tool = self.find_by_name(name)
        if tool is None or not self._db.run(
            "DELETE FROM agent_tools WHERE agent_id = :agent_id AND tool_id = :tool_id",
            {"agent_id": agent_id, "tool_id": tool.id},
        ):
            raise NotFound("tool of this agent", name)
        self._revised(agent_id)

    def of_agent(self, agent_id: AgentId) -> Sequence[Tool]:
        rows = self._db.rows(
            "SELECT t.id, t.spec, t.tags, t.metadata FROM agent_tools x JOIN tools t ON t.id = x.tool_id"
            " WHERE x.agent_id = :agent_id AND t.org_id = :org_id ORDER BY t.name",
            {"agent_id": agent_id, "org_id": self._org_id},
        )
        return [_tool(row) for row in rows]

    def _revised(self, agent_id: AgentId) -> None:
        self._db.run(
            "UPDATE agents SET settings_revision = settings_revision + 1 WHERE id = :id AND org_id = :org_id",
            {"id": agent_id, "org_id": self._org_id},
        )

    def _read(self, where: str, params: dict[str, Any]) -> Sequence[Tool]:
        rows = self._db.rows(f"SELECT {_COLUMNS} FROM tools WHERE {where}", params | {"org_id": self._org_id})
        return [_tool(row) for row in rows]


def _tool(row: Row) -> Tool:
    return Tool(id=row[0], spec=ToolSpec(**load(row[1])), tags=tuple(load(row[2])), metadata=load(row[3]))
