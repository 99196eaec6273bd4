"""`tx.tools`: the tools of one transaction.

The source of a tool has a column of its own and is read only when the tool runs or is shown: every model call reads the
rest.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from perdure.core.errors import AlreadyExists, NotFound
from perdure.core.features import feature_org_tables
from perdure.core.ids import AgentId, ToolId
from perdure.core.specs import Tool, ToolCode, ToolFilter, ToolSpec
from perdure.core.tools.engine_specs import CONTEXT_TOOL_SPECS
from perdure.core.tools.portable import schema_warnings
from perdure.core.tools.sandbox import EVERY_HOST
from perdure.storage.database import row_format
from perdure.storage.database.conditions import Conditions
from perdure.storage.tables import table as tables
from perdure.storage.tables.deleted import delete_shared


def _load_code(text: str) -> ToolCode:
    """The code of a tool, from the column that stores it."""
    fields = row_format.load(text)
    if fields.get("network") is True:  # from before a tool listed its hosts
        fields["network"] = [EVERY_HOST]
    lists = {name: tuple(fields.get(name) or ()) for name in ("requirements", "left_empty", "network")}
    return ToolCode(**fields | lists)


_SPEC_FIELDS = tuple(name for name in ToolSpec.__slots__ if name not in ("writes_memory", "traits"))
_SPEC = row_format.Codec(
    lambda spec: row_format.dump({name: getattr(spec, name) for name in _SPEC_FIELDS}),
    lambda text: ToolSpec(**row_format.load(text)),
)
_TOOL = row_format.RowFormat(Tool, {_SPEC: "spec"}, columns="id, spec, tags, metadata")
_CHANGES = "name, tool_type, spec, tags, metadata, code, updated_at"


_OTHER_NAMES = " UNION ALL ".join(
    f"SELECT tool_id, name FROM {table.name}" for table in feature_org_tables() if table.names_tools
)
_OTHER_NAMES = _OTHER_NAMES or "SELECT '' AS tool_id, '' AS name WHERE 1 = 0"
"""SQL of the names that tools have where they come from, such as at their MCP servers."""

log = logging.getLogger(__name__)


class Tools(tables.PagedTable[ToolFilter, Tool], tables.AgentsTable[Tool]):
    _kind, _source, _format = "tool", "tools", _TOOL
    _links, _order = "agent_tools", "t.name"

    def add(self, tool: Tool, *, code: ToolCode | None = None, at: datetime) -> Tool:
        """Add a tool with its source, if it has one; return it. Raises: AlreadyExists: its name or id exists."""
        if self._rows("SELECT 1 FROM tools WHERE id = :id", id=tool.id):
            raise AlreadyExists("tool", tool.id)
        sql = row_format.insert_into("tools", f"id, org_id, number, created_at, {_CHANGES}")
        params = _params(tool, code, at) | {"number": tables.next_number(self._db), "created_at": row_format.iso(at)}
        if not self._run_counted(f"{sql} ON CONFLICT (org_id, name) DO NOTHING", **params):
            raise AlreadyExists("tool", tool.spec.name)
        return tool

    def _where(self, where: ToolFilter) -> Conditions:
        """The conditions of a filter. A name matches a tool's own name and the one where it comes from."""
        conditions = Conditions(tables.BY_ID.format("") if where.ids else "org_id = :org_id")
        if where.names:
            clause = f"name = ? OR id IN (SELECT tool_id FROM ({_OTHER_NAMES}) m WHERE m.name = ?)"
            conditions.any_of(clause, [(name, name) for name in where.names])
        else:
            conditions.among("name", where.names)
        conditions.among("id", where.ids)
        conditions.among("tool_type", where.types)
        conditions.among("tool_type", where.not_types, negate=True)
        if where.letta is not None:
            conditions.add(f"tool_type {'LIKE' if where.letta else 'NOT LIKE'} 'letta!_%' ESCAPE '!'")
        conditions.contain("name", where.text)
        if where.tags == ():
            conditions.add("1 = 0")
        conditions.have_tags("tags", where.tags or (), every=False)
        owner = where.agent_id and tables.own_agent(self._db, self._org_id, where.agent_id)
        conditions.add("id IN (SELECT tool_id FROM agent_tools WHERE agent_id = ?)", owner)
        return conditions

    def put(self, tool: Tool, *, at: datetime) -> Tool:
        """Add a tool without a source, or update the one of its name; return it as stored. A change increments the
        settings revision of its agents."""
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
        """Update the tool with this id, its name and its source too; return it as stored. The settings revision of its
        agents grows when the tool changes; models don't see its source.

        Raises: NotFound; AlreadyExists: another tool has the name.
        """
        before, before_code = self.get(tool.id), self.code(tool.id)
        if before == tool and before_code == code:
            return before
        namesake = self.find_by_name(tool.spec.name)
        if namesake is not None and namesake.id != tool.id:
            raise AlreadyExists("tool", tool.spec.name)
        own = tables.OwnId(before.id)
        if before != tool:
            self._run(
                "UPDATE agents SET settings_revision = settings_revision + 1"
                " WHERE id IN (SELECT agent_id FROM agent_tools WHERE tool_id = :id)",
                id=own,
            )
        params = _params(tool, code, at) | {"id": own}
        self._run(f"UPDATE tools SET {row_format.assignments(_CHANGES)} WHERE id = :id", **params)
        return tool

    def delete(self, tool_id: ToolId) -> None:
        """Detach the tool from all agents, whose settings revisions grow, and delete it. Raises: NotFound."""
        delete_shared(self._db, self._org_id, "tools", tables.OwnId(self.get(tool_id).id))

    def find_by_name(self, name: str) -> Tool | None:
        return self._find("name = :name", name=row_format.storable(name))

    def list_by_ids(self, tool_ids: Sequence[ToolId]) -> Mapping[ToolId, Tool]:
        """Id -> tool, in the order of the ids; an id that no tool has is left out."""
        return self._list_by_ids(tool_ids)

    def names(self, tool_ids: Sequence[ToolId]) -> Sequence[str]:
        """The names of the tools with these ids, in their order. Raises: NotFound."""
        return [tool.spec.name for tool in self._get_each(tool_ids)]

    def find_named(self, names: Sequence[str]) -> Mapping[str, Tool]:
        """Name -> the tool of this name, of those that there are."""
        found: list[Tool] = []
        for some in tables.parts(names):
            where = Conditions()
            where.among("name", some)
            found += self._read(str(where), **where.params)
        return {tool.spec.name: tool for tool in found}

    def code(self, tool_id: ToolId) -> ToolCode | None:
        """The source of a custom tool; None: the tool has none. Raises: NotFound."""
        rows = self._rows("SELECT code FROM tools WHERE org_id = :org_id AND id = :id", id=row_format.storable(tool_id))
        text = tables.first(rows, "tool", tool_id)[0]
        return None if text is None else _load_code(text)

    def codes(self, tool_ids: Sequence[ToolId]) -> dict[ToolId, ToolCode]:
        """Id of a tool -> its source; a tool without one is left out."""
        sql = f"SELECT id, code FROM tools WHERE {{keys}} AND {tables.BY_ID.format('')} AND code IS NOT NULL"
        return {id_: _load_code(rows[0][0]) for id_, rows in self._rows_of_each(sql, "id", tool_ids).items() if rows}

    def list(self, *, limit: int = 200) -> Sequence[Tool]:
        """Tools in order of their names."""
        return self._read("1 = 1 ORDER BY name LIMIT :limit", limit=limit)

    def attach(self, agent_id: AgentId, *names: str) -> None:
        """Give an agent the tools of these names; one that it has already is no error. Raises: NotFound, TooMany."""
        own = tables.own_agent(self._db, self._org_id, agent_id, lock=True)
        rows = self._rows("SELECT tool_id FROM agent_tools WHERE agent_id = :id", id=own)
        attached, new, named = {row[0] for row in rows}, [], self.find_named(names)
        for name in names:
            tool = named.get(name) or self.find(name)
            if tool is None:
                names_text = ", ".join(other.spec.name for other in self.list())
                raise NotFound("tool", name, hint=f"there are {names_text}")
            if (tool_id := row_format.storable(tool.id)) not in attached:
                attached.add(tool_id)
                new.append({"agent_id": own, "tool_id": tool_id})
                self._limits.check("tools_per_agent", len(attached))
                for warning in schema_warnings(tool.spec):
                    log.warning("%s: %s", name, warning)
        if new:
            tables.keep_revision(self._db, own)
            self._db.run_many(row_format.insert_into("agent_tools", "agent_id, tool_id"), new)
            tables.revise_settings(self._db, own, times=len(new))

    def detach(self, agent_id: AgentId, *names: str) -> None:
        """Take the tools of these names from an agent. Raises: NotFound: it has no such tool."""
        own = tables.own_agent(self._db, self._org_id, agent_id, lock=True)
        attached = {row[0] for row in self._rows("SELECT tool_id FROM agent_tools WHERE agent_id = :id", id=own)}
        named, gone = self.find_named(names), []
        for name in dict.fromkeys(names):
            tool_id = row_format.storable(named[name].id) if name in named else self._find_id(name)
            if tool_id not in attached:
                raise NotFound("tool of this agent", name)
            gone.append({"agent_id": own, "tool_id": tool_id})
        if gone:
            tables.keep_revision(self._db, own)
            self._db.run_many("DELETE FROM agent_tools WHERE agent_id = :agent_id AND tool_id = :tool_id", gone)
            tables.revise_settings(self._db, own, times=len(gone))

    def _find_id(self, name: str) -> tables.OwnId | None:
        """Return the id of the tool with this name, else of the only tool with that name at its MCP server; None: none
        or several. Definitions, which may be large, are not read."""
        for sql in (
            "SELECT id FROM tools WHERE org_id = :org_id AND name = :name",
            f"SELECT id FROM tools CROSS JOIN ({_OTHER_NAMES}) m WHERE org_id = :org_id AND tool_type = 'external_mcp'"
            " AND m.tool_id = id AND m.name = :name",
        ):
            if rows := self._rows(sql, name=row_format.storable(name)):
                return tables.OwnId(rows[0][0]) if len(rows) == 1 else None
        return None

    def find(self, name: str) -> Tool | None:
        """The tool with this name here, else the only one with that name at its MCP server; None: none or several."""
        id_ = self._find_id(name)
        return None if id_ is None else self.get(ToolId(id_))

    def with_own_names(self, tools: Sequence[Tool]) -> Sequence[Tool]:
        """Return the tools, with `own_name` (the MCP server's name for it) unless another tool has that."""
        sql = (
            f"SELECT m.tool_id, m.name FROM ({_OTHER_NAMES}) m WHERE {{keys}} AND NOT EXISTS (SELECT 1 FROM tools t"
            " WHERE t.org_id = :org_id AND t.name = m.name)"
        )
        ids = [tool.id for tool in tools if tool.spec.kind == "mcp"]
        found = self._rows_of_each(sql, "m.tool_id", ids).items()
        own = {id_: name for id_, rows in found for (name,) in rows if name not in CONTEXT_TOOL_SPECS}
        return [replace(tool, own_name=own[tool.id]) if tool.id in own else tool for tool in tools]


def _params(tool: Tool, code: ToolCode | None, at: datetime) -> dict[str, Any]:
    """Column -> what it stores of a tool that changes at this time."""
    return _TOOL.params(tool) | {
        "name": row_format.storable(tool.spec.name),
        "tool_type": row_format.storable(tool.spec.tool_type),
        "code": None if code is None else row_format.dump_fields(code),
        "updated_at": row_format.iso(at),
    }
