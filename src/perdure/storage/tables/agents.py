"""`tx.agents`: the agents of one transaction."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from perdure.core.agents import Agent, AgentFilter, AgentOrder
from perdure.core.errors import AlreadyExists, InvalidInput, NotFound
from perdure.core.ids import AgentId, OrgId
from perdure.core.text.words import restore, storable
from perdure.storage.database.base import (
    OWN_AGENT,
    Database,
    OwnId,
    Row,
    dump,
    from_iso,
    iso,
    load,
    next_number,
    own_agent,
)
from perdure.storage.tables.vectors import open_scope_of
from perdure.storage.upkeep.deleted import hide_agent

_COLUMNS = (
    "a.id, a.org_id, a.number, a.name, a.agent_type, a.model, d.system, d.description, a.timezone, d.tags,"
    " d.metadata, d.settings, a.settings_revision, a.hidden, a.created_at, a.updated_at, a.created_by, a.updated_by,"
    " a.message_count"
)
_SELECT = f"SELECT {_COLUMNS} FROM agents a JOIN agent_details d ON d.agent_id = a.id"

PATTERN_BYTES = 40_000
"""The size limit of a pattern; SQLite's own is 50,000 bytes."""

# The fields that requests depend on.
_REQUEST_FIELDS = ("agent_type", "model", "system", "settings")

# The sort keys of agents. The number breaks ties, so that pages never overlap.
_ORDERS: dict[AgentOrder, str] = {
    "created": "a.number",
    "updated": "a.updated_at",
    "used": "COALESCE(a.last_run_at, '')",
}


class Agents:
    def __init__(self, db: Database, org_id: OrgId) -> None:
        self._db, self._org_id = db, org_id

    def add(self, agent: Agent) -> Agent:
        """Add an agent, and return it with its number. Raises: AlreadyExists."""
        if self._db.rows("SELECT 1 FROM agents WHERE id = :id", {"id": agent.id}):
            raise AlreadyExists("agent", agent.id)
        agent = replace(agent, number=next_number(self._db), org_id=self._org_id)
        params = _params(agent)
        self._db.run(
            "INSERT INTO agents (id, org_id, number, name, agent_type, model, timezone, settings_revision, hidden,"
            " created_at, updated_at, created_by, updated_by) VALUES (:id, :org_id, :number, :name, :agent_type,"
            " :model, :timezone, :settings_revision, :hidden, :created_at, :updated_at, :created_by, :updated_by)",
            params,
        )
        self._db.run(
            "INSERT INTO agent_details (agent_id, system, description, tags, metadata, settings)"
            " VALUES (:id, :system, :description, :tags, :metadata, :settings)",
            params,
        )
        open_scope_of(self._db, self._org_id, agent.number, "agent", agent.id)
        return agent

    def get(self, agent_id: AgentId) -> Agent:
        """Raises: NotFound."""
        rows = self._db.rows(
            f"{_SELECT} WHERE a.id = :id AND a.org_id = :org_id",
            {"id": storable(agent_id), "org_id": self._org_id},
        )
        if not rows:
            raise NotFound("agent", agent_id)
        return _agent(rows[0])

    def model(self, agent_id: AgentId) -> str:
        """The handle of the agent's model. Raises: NotFound."""
        rows = self._db.rows(
            "SELECT model FROM agents WHERE id = :id AND org_id = :org_id",
            {"id": storable(agent_id), "org_id": self._org_id},
        )
        if not rows:
            raise NotFound("agent", agent_id)
        return restore(str(rows[0][0]))

    def tool_rules(self, agent_id: AgentId) -> dict[str, Any]:
        """The agent's settings if it has tool rules, else empty; most agents have none, and then nothing is parsed."""
        rows = self._db.rows(
            f"SELECT settings FROM agent_details WHERE agent_id = :agent_id AND {OWN_AGENT}"
            " AND settings LIKE '%\"tool_rules\"%'",
            {"agent_id": agent_id, "org_id": self._org_id},
        )
        found: dict[str, Any] = load(rows[0][0]) if rows else {}
        return found

    def lock(self, agent_id: AgentId) -> None:
        """Lock the agent until the end of this transaction, in a database with concurrent writers."""
        if self._db.for_update:
            own_agent(self._db, self._org_id, agent_id, lock=True)

    def find_by_name(self, name: str) -> Agent | None:
        return self._first(
            f"{_SELECT} WHERE a.org_id = :org_id AND a.name = :name ORDER BY a.number DESC LIMIT 1",
            {"org_id": self._org_id, "name": storable(name)},
        )

    def list(self, *, limit: int = 50, after: AgentId | None = None) -> Sequence[Agent]:
        """Newest first; `after` is the last agent of the page before."""
        before = (
            ""
            if after is None
            else ("AND a.number < (SELECT number FROM agents WHERE id = :after AND org_id = :org_id)")
        )
        rows = self._db.rows(
            f"{_SELECT} WHERE a.org_id = :org_id {before} ORDER BY a.number DESC LIMIT :limit",
            {"org_id": self._org_id, "limit": limit} | ({} if after is None else {"after": after}),
        )
        return [_agent(row) for row in rows]

    def page(
        self,
        *,
        where: AgentFilter,
        order: AgentOrder = "created",
        ascending: bool = False,
        limit: int = 50,
        after: AgentId | None = None,
        before: AgentId | None = None,
    ) -> Sequence[Agent]:
        """A page in this order: the first agents behind `after`, or with `before` alone the last ones in front of it.

        Raises: NotFound: the agent of a cursor.
        """
        conditions, params = _conditions(where)
        key = _ORDERS[order]
        # With `before` alone the page is read backwards.
        reverse = before is not None and after is None
        ascends = ascending is not reverse
        for cursor, name, behind in ((after, "after", True), (before, "before", False)):
            if cursor is not None:
                place = self._db.rows(
                    f"SELECT {key}, a.number FROM agents a WHERE a.id = :id AND a.org_id = :org_id",
                    {"id": storable(cursor), "org_id": self._org_id},
                )
                if not place:
                    raise NotFound("agent", cursor, hint=f"`{name}` must be one of the list")
                sign = ">" if ascending is behind else "<"
                conditions += f" AND ({key}, a.number) {sign} (:{name}_key, :{name}_number)"
                params |= {f"{name}_key": place[0][0], f"{name}_number": place[0][1]}
        way = "ASC" if ascends else "DESC"
        rows = self._db.rows(
            f"{_SELECT} WHERE a.org_id = :org_id{conditions} ORDER BY {key} {way}, a.number {way} LIMIT :limit",
            params | {"org_id": self._org_id, "limit": limit},
        )
        agents = [_agent(row) for row in rows]
        return agents[::-1] if reverse else agents

    def count(self, where: AgentFilter) -> int:
        conditions, params = _conditions(where)
        rows = self._db.rows(
            "SELECT COUNT(*) FROM agents a JOIN agent_details d ON d.agent_id = a.id"
            f" WHERE a.org_id = :org_id{conditions}",
            params | {"org_id": self._org_id},
        )
        return int(rows[0][0])

    def last_used(self) -> Agent | None:
        """The agent with the newest run; without any run, the newest agent."""
        params = {"org_id": self._org_id}
        return self._first(
            f"{_SELECT} WHERE a.org_id = :org_id AND a.last_run_at IS NOT NULL"
            " ORDER BY a.last_run_at DESC, a.number DESC LIMIT 1",
            params,
        ) or self._first(f"{_SELECT} WHERE a.org_id = :org_id ORDER BY a.number DESC LIMIT 1", params)

    def put(self, agent: Agent) -> Agent:
        """Update an agent. Its settings revision grows if its type, model, prompt or settings change. Raises:
        NotFound."""
        # Read under a lock, because the revision is incremented here and not in the caller's copy: two different
        # settings must never share a number.
        self.lock(agent.id)
        before = self.get(agent.id)
        is_shaping = any(getattr(before, field) != getattr(agent, field) for field in _REQUEST_FIELDS)
        return replace(agent, settings_revision=self._update(OwnId(before.id), agent, is_shaping=is_shaping))

    def _update(self, own: OwnId, agent: Agent, *, is_shaping: bool) -> int:
        """Update the rows of the agent, and return its settings revision."""
        params = _params(agent) | {"id": own, "is_shaping": int(is_shaping)}
        changed = self._db.rows(
            "UPDATE agents SET name = :name, agent_type = :agent_type, model = :model, timezone = :timezone,"
            " settings_revision = settings_revision + :is_shaping, hidden = :hidden, updated_at = :updated_at,"
            " updated_by = :updated_by WHERE id = :id RETURNING settings_revision",
            params,
        )
        self._db.run(
            "UPDATE agent_details SET system = :system, description = :description, tags = :tags,"
            " metadata = :metadata, settings = :settings WHERE agent_id = :id",
            params,
        )
        return int(changed[0][0])

    def delete(self, agent_id: AgentId) -> None:
        """Hide the agent with all its rows; `tx.upkeep` removes them. Nothing else ever removes a log. Raises:
        NotFound."""
        self.lock(agent_id)
        hide_agent(self._db, self._org_id, agent_id, self.get(agent_id).number)

    def _first(self, sql: str, params: dict[str, Any]) -> Agent | None:
        rows = self._db.rows(sql, params)
        return _agent(rows[0]) if rows else None


def _conditions(where: AgentFilter) -> tuple[str, dict[str, Any]]:
    clauses: list[str] = []
    params: dict[str, Any] = {}
    if where.name is not None:
        clauses.append("a.name = :w_name")
        params["w_name"] = storable(where.name)
    if where.text:
        clauses.append(contains("a.name", "w_text"))
        params["w_text"] = pattern_of(where.text)
    if where.tags:
        tagged, names = has_tags("d.tags", where.tags, every=where.all_tags)
        clauses.append(tagged)
        params |= names
    if where.block_id is not None:
        clauses.append(
            "EXISTS (SELECT 1 FROM agent_blocks x JOIN blocks b ON b.id = x.block_id AND b.org_id = a.org_id"
            " WHERE x.agent_id = a.id AND x.block_id = :w_block_id)"
        )
        params["w_block_id"] = where.block_id
    if where.created_by is not None:
        clauses.append("a.created_by = :w_created_by")
        params["w_created_by"] = storable(where.created_by)
    if where.stop_reason is not None:
        clauses.append(
            "(SELECT r.stop_reason FROM runs r WHERE r.agent_id = a.id ORDER BY r.seq DESC LIMIT 1) = :w_stop_reason"
        )
        params["w_stop_reason"] = where.stop_reason
    if where.hidden is not None:
        clauses.append("a.hidden = :w_hidden")
        params["w_hidden"] = int(where.hidden)
    return "".join(f" AND {clause}" for clause in clauses), params


def contains(column: str, name: str) -> str:
    """The condition that a column contains the text whose `pattern_of` is the parameter `name`, ignoring case."""
    # The database may not lower-case every script, so the exact text matches too.
    return f"(LOWER({column}) LIKE LOWER(:{name}) ESCAPE '!' OR {column} LIKE :{name} ESCAPE '!')"


def pattern_of(text: str) -> str:
    """The LIKE pattern that matches any text containing this one. Raises: InvalidInput: it is too long."""
    escaped = storable(text.replace("!", "!!").replace("%", "!%").replace("_", "!_"))
    if len(escaped.encode()) > PATTERN_BYTES:
        raise InvalidInput(f"a part of a text to look for has {len(text):,} characters: give a shorter one")
    return f"%{escaped}%"


def has_tags(column: str, tags: Sequence[str], *, every: bool) -> tuple[str, dict[str, Any]]:
    """The condition that a JSON list of tags has any of these, or every one, and its parameters."""
    # A quoted tag occurs only as an element of the list, because quotes within tags are escaped. REPLACE is
    # case-sensitive, LIKE on SQLite is not.
    params = {f"w_tag{index}": dump(tag) for index, tag in enumerate(dict.fromkeys(tags))}
    clauses = [f"REPLACE({column}, :{name}, '') <> {column}" for name in params]
    return f"({(' AND ' if every else ' OR ').join(clauses)})", params


def _params(agent: Agent) -> dict[str, Any]:
    return {
        "id": agent.id,
        "org_id": agent.org_id,
        "number": agent.number,
        "name": storable(agent.name),
        "agent_type": agent.agent_type,
        "model": storable(agent.model),
        "system": None if agent.system is None else storable(agent.system),
        "description": None if agent.description is None else storable(agent.description),
        "timezone": storable(agent.timezone),
        "tags": dump(agent.tags),
        "metadata": dump(agent.metadata),
        "settings": dump(agent.settings),
        "settings_revision": agent.settings_revision,
        "hidden": int(agent.hidden),
        "created_at": iso(agent.created_at),
        "updated_at": iso(agent.updated_at),
        "created_by": None if agent.created_by is None else storable(agent.created_by),
        "updated_by": None if agent.updated_by is None else storable(agent.updated_by),
    }


def _agent(row: Row) -> Agent:
    return Agent(
        id=row[0],
        org_id=row[1],
        number=row[2],
        name=restore(row[3]),
        agent_type=row[4],
        model=restore(row[5]),
        system=None if row[6] is None else restore(row[6]),
        description=None if row[7] is None else restore(row[7]),
        timezone=restore(row[8]),
        tags=tuple(load(row[9])),
        metadata=load(row[10]),
        settings=load(row[11]),
        settings_revision=row[12],
        hidden=bool(row[13]),
        created_at=from_iso(row[14]),
        updated_at=from_iso(row[15]),
        created_by=None if row[16] is None else restore(row[16]),
        updated_by=None if row[17] is None else restore(row[17]),
        message_count=row[18],
    )
