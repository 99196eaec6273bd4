"""`tx.tools`: the tool verbs of one transaction.

What a tool runs stands in a column of its own and is read only when it is run or shown: every model call reads the
rest.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from types import MappingProxyType
from typing import Any

from perdure.core.errors import AlreadyExists, NotFound
from perdure.core.ids import AgentId, OrgId, ToolId
from perdure.core.limits import DEFAULT_LIMITS, Limits
from perdure.core.text.words import storable
from perdure.core.tools.hosts import EVERY_HOST
from perdure.core.tools.spec import Tool, ToolCode, ToolFilter, ToolSpec
from perdure.storage.database.base import Database, OwnId, Row, dump, iso, load, next_number, own_agent, revise_settings
from perdure.storage.tables.agents import contains, has_tags, pattern_of
from perdure.storage.upkeep.deleted import delete_shared

_COLUMNS = "id, spec, tags, metadata"
_SET = (
    "name = :name, tool_type = :tool_type, spec = :spec, tags = :tags, metadata = :metadata, code = :code,"
    " updated_at = :at"
)


class Tools:
    def __init__(self, db: Database, org_id: OrgId, limits: Limits = DEFAULT_LIMITS) -> None:
        self._db, self._org_id, self._limits = db, org_id, limits

    def add(self, tool: Tool, *, code: ToolCode | None = None, at: datetime) -> Tool:
        """Add a tool with its source. Raises: AlreadyExists: its name or id exists."""
        if self.find_by_name(tool.spec.name) is not None:
            raise AlreadyExists("tool", tool.spec.name)
        if self._db.rows("SELECT 1 FROM tools WHERE id = :id", {"id": tool.id}):
            raise AlreadyExists("tool", tool.id)
        added = self._db.run(
            "INSERT INTO tools (id, org_id, number, name, tool_type, spec, tags, metadata, code, created_at,"
            " updated_at) VALUES (:id, :org_id, :number, :name, :tool_type, :spec, :tags, :metadata, :code, :at, :at)"
            " ON CONFLICT (org_id, name) DO NOTHING",
            _params(tool, code, at) | {"id": tool.id, "org_id": self._org_id, "number": next_number(self._db)},
        )
        if not added:  # somebody else's transaction was a moment earlier
            raise AlreadyExists("tool", tool.spec.name)
        return tool

    def put(self, tool: Tool, *, at: datetime) -> Tool:
        """Create the tool, or update the one of its name, without a source; return it as stored. A change increments
        the settings revision of its agents."""
        before = self.find_by_name(tool.spec.name)
        if before is None:
            try:
                return self.add(tool, at=at)
            except AlreadyExists:  # two processes begin at the same moment
                before = self.find_by_name(tool.spec.name)
                if before is None:
                    raise
        return self.update(replace(tool, id=before.id), at=at)

    def update(self, tool: Tool, *, code: ToolCode | None = None, at: datetime) -> Tool:
        """Change the tool of this id, its name too, and all of its code: the stored one. The settings revision of
        agents that have it grows when the tool changes; its code alone is nothing that a model is told.

        Raises: NotFound; AlreadyExists: another one has the name.
        """
        before, before_code = self.get(tool.id), self.code(tool.id)
        if before == tool and before_code == code:
            return before
        named = self.find_by_name(tool.spec.name)
        if named is not None and named.id != tool.id:
            raise AlreadyExists("tool", tool.spec.name)
        own = OwnId(before.id)
        if before != tool:
            self._revise_agents(own)
        self._change(own, f"UPDATE tools SET {_SET} WHERE id = :id", _params(tool, code, at))
        return tool

    def delete(self, tool_id: ToolId) -> None:
        """Detach the tool from all agents, whose settings revisions grow, and delete it. Raises: NotFound."""
        delete_shared(self._db, self._org_id, "tools", OwnId(self.get(tool_id).id))

    def _change(self, own: OwnId, sql: str, params: Mapping[str, Any] = MappingProxyType({})) -> None:
        self._db.run(sql, {**params, "id": own})

    def get(self, tool_id: ToolId) -> Tool:
        """Raises: NotFound."""
        rows = self._read("org_id = :org_id AND id = :id", {"id": storable(tool_id)})
        if not rows:
            raise NotFound("tool", tool_id)
        return rows[0]

    def find_by_name(self, name: str) -> Tool | None:
        rows = self._read("org_id = :org_id AND name = :name", {"name": storable(name)})
        return rows[0] if rows else None

    def code(self, tool_id: ToolId) -> ToolCode | None:
        """The source of a custom tool; None: the tool has none. Raises: NotFound."""
        rows = self._db.rows(
            "SELECT code FROM tools WHERE org_id = :org_id AND id = :id",
            {"id": storable(tool_id), "org_id": self._org_id},
        )
        if not rows:
            raise NotFound("tool", tool_id)
        return _code(rows[0][0])

    def codes(self, tool_ids: Sequence[ToolId]) -> dict[ToolId, ToolCode]:
        """Tool -> source, of those of these tools that have one."""
        if not tool_ids:
            return {}
        condition, names = _among("id", "id", tool_ids)
        rows = self._db.rows(
            f"SELECT id, code FROM tools WHERE org_id = :org_id AND code IS NOT NULL AND {condition}",
            names | {"org_id": self._org_id},
        )
        return {ToolId(row[0]): code for row in rows if (code := _code(row[1])) is not None}

    def list(self, *, limit: int = 200) -> Sequence[Tool]:
        """Tools in order of their names."""
        return self._read("org_id = :org_id ORDER BY name LIMIT :limit", {"limit": limit})

    def page(
        self,
        *,
        where: ToolFilter,
        ascending: bool = False,
        limit: int = 50,
        after: ToolId | None = None,
        before: ToolId | None = None,
    ) -> Sequence[Tool]:
        """A page of tools in order of creation: those behind `after`, or in front of `before`. A cursor need not match
        the filter. Raises: NotFound: the tool of a cursor."""
        conditions, params = _conditions(where)
        # With `before` alone the page is read from its end.
        reverse = before is not None and after is None
        for cursor, name, behind in ((after, "after", True), (before, "before", False)):
            if cursor is not None:
                place = self._db.rows(
                    "SELECT number FROM tools WHERE id = :id AND org_id = :org_id",
                    {"id": storable(cursor), "org_id": self._org_id},
                )
                if not place:
                    raise NotFound("tool", cursor, hint=f"`{name}` must be one of the list")
                conditions += f" AND number {'>' if ascending is behind else '<'} :{name}"
                params[name] = place[0][0]
        way = "ASC" if ascending is not reverse else "DESC"
        found = self._read(
            f"org_id = :org_id{conditions} ORDER BY number {way} LIMIT :limit", params | {"limit": limit}
        )
        return found[::-1] if reverse else found

    def count(self, where: ToolFilter) -> int:
        conditions, params = _conditions(where)
        rows = self._db.rows(
            f"SELECT COUNT(*) FROM tools WHERE org_id = :org_id{conditions}", params | {"org_id": self._org_id}
        )
        return int(rows[0][0])

    def attach(self, agent_id: AgentId, *names: str) -> None:
        """Raises: NotFound, TooMany. Attaching twice is no error."""
        own = own_agent(self._db, self._org_id, agent_id, lock=True)
        count = self._count(own)
        for name in names:
            tool_id = self._id_of(name)
            if tool_id is None:
                known = ", ".join(known.spec.name for known in self.list())
                raise NotFound("tool", name, hint=f"there are {known}")
            if self._db.run(
                "INSERT INTO agent_tools (agent_id, tool_id) VALUES (:agent_id, :tool_id)"
                " ON CONFLICT (agent_id, tool_id) DO NOTHING",
                {"agent_id": own, "tool_id": tool_id},
            ):
                count += 1
                self._limits.check("tools_per_agent", count)
                revise_settings(self._db, own)

    def detach(self, agent_id: AgentId, name: str) -> None:
        """Raises: NotFound: it has no such tool."""
        own, tool_id = own_agent(self._db, self._org_id, agent_id), self._id_of(name)
        if tool_id is None or not self._db.run(
            "DELETE FROM agent_tools WHERE agent_id = :agent_id AND tool_id = :tool_id",
            {"agent_id": own, "tool_id": tool_id},
        ):
            raise NotFound("tool of this agent", name)
        revise_settings(self._db, own)

    def of_agent(self, agent_id: AgentId) -> Sequence[Tool]:
        """Sorted by name."""
        rows = self._db.rows(
            "SELECT t.id, t.spec, t.tags, t.metadata FROM agent_tools x JOIN tools t ON t.id = x.tool_id"
            " WHERE x.agent_id = :agent_id AND t.org_id = :org_id ORDER BY t.name",
            {"agent_id": agent_id, "org_id": self._org_id},
        )
        return [_tool(row) for row in rows]

    def agents_of(self, tool_id: ToolId, *, limit: int = 100) -> Sequence[AgentId]:
        """The agents that have it, sorted by id. Raises: NotFound."""
        self.get(tool_id)
        rows = self._db.rows(
            "SELECT agent_id FROM agent_tools WHERE tool_id = :id ORDER BY agent_id LIMIT :limit",
            {"id": tool_id, "limit": limit},
        )
        return [AgentId(row[0]) for row in rows]

    def _count(self, agent_id: OwnId) -> int:
        rows = self._db.rows(
            "SELECT COUNT(*) FROM agent_tools x JOIN tools t ON t.id = x.tool_id"
            " WHERE x.agent_id = :agent_id AND t.org_id = :org_id",
            {"agent_id": agent_id, "org_id": self._org_id},
        )
        return int(rows[0][0])

    def _id_of(self, name: str) -> OwnId | None:
        rows = self._db.rows(
            "SELECT id FROM tools WHERE org_id = :org_id AND name = :name",
            {"org_id": self._org_id, "name": storable(name)},
        )
        return OwnId(rows[0][0]) if rows else None

    def _revise_agents(self, own: OwnId) -> None:
        self._change(
            own,
            "UPDATE agents SET settings_revision = settings_revision + 1"
            " WHERE id IN (SELECT agent_id FROM agent_tools WHERE tool_id = :id)",
        )

    def _read(self, where: str, params: Mapping[str, Any]) -> Sequence[Tool]:
        rows = self._db.rows(f"SELECT {_COLUMNS} FROM tools WHERE {where}", {**params, "org_id": self._org_id})
        return [_tool(row) for row in rows]


def _params(tool: Tool, code: ToolCode | None, at: datetime) -> dict[str, Any]:
    return {
        "name": storable(tool.spec.name),
        "tool_type": storable(tool.spec.tool_type),
        "spec": dump({name: getattr(tool.spec, name) for name in ToolSpec.__slots__}),
        "tags": dump(tool.tags),
        "metadata": dump(tool.metadata),
        "code": None if code is None else dump({name: getattr(code, name) for name in ToolCode.__slots__}),
        "at": iso(at),
    }


def _conditions(where: ToolFilter) -> tuple[str, dict[str, Any]]:
    clauses: list[str] = []
    params: dict[str, Any] = {}
    for column, wanted in (("name", where.names), ("id", where.ids), ("tool_type", where.types)):
        if wanted is not None:
            condition, names = _among(column, f"w_{column}", wanted)
            clauses.append(condition)
            params |= names
    if where.not_types:
        condition, names = _among("tool_type", "w_not", where.not_types)
        clauses.append(f"NOT {condition}")
        params |= names
    if where.letta is not None:
        clauses.append(f"tool_type {'LIKE' if where.letta else 'NOT LIKE'} 'letta!_%' ESCAPE '!'")
    if where.text:
        clauses.append(contains("name", "w_text"))
        params["w_text"] = pattern_of(where.text)
    if where.tags is not None:
        tagged, names = has_tags("tags", where.tags, every=False) if where.tags else ("1 = 0", {})
        clauses.append(tagged)
        params |= names
    if where.agent_id is not None:
        clauses.append("id IN (SELECT tool_id FROM agent_tools WHERE agent_id = :w_agent_id)")
        params["w_agent_id"] = where.agent_id
    return "".join(f" AND {clause}" for clause in clauses), params


def _among(column: str, name: str, values: Sequence[str]) -> tuple[str, dict[str, Any]]:
    """The condition that a column is one of these texts, and its parameters."""
    names = {f"{name}_{index}": storable(value) for index, value in enumerate(dict.fromkeys(values))}
    listed = ", ".join(f":{one}" for one in names)
    return (f"{column} IN ({listed})" if names else "1 = 0"), names


def _tool(row: Row) -> Tool:
    return Tool(id=row[0], spec=ToolSpec(**load(row[1])), tags=tuple(load(row[2])), metadata=load(row[3]))


def _code(text: str | None) -> ToolCode | None:
    if text is None:
        return None
    kept = load(text)
    if kept.get("network") is True:  # from before a tool listed its hosts
        kept["network"] = [EVERY_HOST]
    kept["network"] = kept.get("network") or ()
    return ToolCode(**kept | {name: tuple(kept.get(name, ())) for name in ("requirements", "left_empty", "network")})
