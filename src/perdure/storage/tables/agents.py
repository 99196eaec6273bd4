"""`tx.agents`: the agents of one transaction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from perdure.core.agents import DEFAULT_AGENT_TYPE, Agent, AgentFilter, AgentOrder
from perdure.core.errors import AlreadyExists
from perdure.core.features import feature_roots
from perdure.core.ids import AgentId, ToolId
from perdure.core.loops import SLEEPTIME_TYPES
from perdure.storage.database import row_format
from perdure.storage.database.conditions import Conditions
from perdure.storage.tables import table
from perdure.storage.tables.deleted import hide_agent
from perdure.storage.tables.identities import add_identity_conditions
from perdure.storage.tables.vectors import open_scope_of

AGENT = row_format.RowFormat(Agent)
_DETAILS = "system, description, tags, metadata, settings"
# How many messages it has is counted by other statements.
_OWN = [name for name in AGENT.columns.split(", ") if name not in (*_DETAILS.split(", "), "message_count")]
_FIXED = ("id", "org_id", "number", "settings_revision", "created_at", "created_by")
_CHANGED = row_format.assignments(", ".join(name for name in _OWN if name not in _FIXED))
_FILTERED = [name for name in AgentFilter.__dataclass_fields__ if name in _OWN]
AGENT_SOURCE = "agents a JOIN agent_details d ON d.agent_id = a.id"
_SELECT = f"SELECT {AGENT.columns} FROM {AGENT_SOURCE}"

# The fields that requests depend on.
_REQUEST_FIELDS = ("agent_type", "model", "system", "settings")

# The sort keys of agents. The number breaks ties, so that pages never overlap.
_ORDERS: dict[AgentOrder, str] = {
    "created": "a.number",
    "updated": "a.updated_at",
    "used": "COALESCE(a.last_run_at, '')",
    "name": "a.name",
    "messages": "a.message_count",
}
_KEPT = ("created", "updated", "used")
"""The keys of a deleted agent that stay, so that a list goes on behind it: not its name."""


class Agents(table.Table):
    def add(self, agent: Agent) -> Agent:
        """Add an agent, and return it with its number. Raises: AlreadyExists."""
        if self._rows("SELECT 1 FROM agents WHERE id = :id", id=agent.id):
            raise AlreadyExists("agent", agent.id)
        agent = replace(agent, number=table.next_number(self._db), org_id=self._org_id)
        params = AGENT.params(agent)
        self._run(row_format.insert_into("agents", ", ".join(_OWN)), **params)
        self._run(row_format.insert_into("agent_details", f"agent_id, {_DETAILS}"), agent_id=agent.id, **params)
        open_scope_of(self._db, self._org_id, agent.number, "agent", agent.id)
        return agent

    def get(self, agent_id: AgentId) -> Agent:
        """The agent with this id. Raises: NotFound."""
        return table.first([*self.list_by_ids([agent_id]).values()], "agent", agent_id)

    def list_by_ids(self, agent_ids: Sequence[AgentId]) -> Mapping[AgentId, Agent]:
        """Id -> agent; an id that no agent has is left out."""
        sql = f"SELECT a.id, {AGENT.columns} FROM {AGENT_SOURCE} WHERE {{keys}} AND {table.BY_ID.format('a.')}"
        found = self._rows_of_each(sql, "a.id", agent_ids)
        return {id_: AGENT.read(rows[0]) for id_, rows in found.items() if rows}

    def model(self, agent_id: AgentId) -> str:
        """The handle of the agent's model. Raises: NotFound."""
        sql = "SELECT model FROM agents WHERE id = :id AND org_id = :org_id"
        return row_format.restore(table.first(self._rows(sql, id=row_format.storable(agent_id)), "agent", agent_id)[0])

    def loop_settings(self, agent_id: AgentId) -> tuple[str, dict[str, Any]]:
        """Return (type of the agent, its settings if its loop depends on them, else {}). Only unusual types and agents
        with tool rules need their settings parsed."""
        rows = self._rows(
            "SELECT a.agent_type, d.settings FROM agents a JOIN agent_details d ON d.agent_id = a.id"
            " WHERE a.id = :agent_id AND a.org_id = :org_id"
            " AND (a.agent_type <> :usual OR d.settings LIKE '%\"tool_rules\"%')",
            agent_id=agent_id,
            usual=DEFAULT_AGENT_TYPE,
        )
        return (rows[0][0], row_format.load(rows[0][1])) if rows else (DEFAULT_AGENT_TYPE, {})

    def lock(self, agent_id: AgentId) -> None:
        """Lock the agent, if there is one, until the end of this transaction, in a database with concurrent writers."""
        self._db.lock("agents", agent_id)

    def lock_names(self) -> None:
        """Keep others from adding agents until the end of this transaction, in a database with concurrent writers."""
        table.lock_numbers(self._db)

    def find_by_name(self, name: str) -> Agent | None:
        """The newest agent of this name; None: there is none."""
        return self._newest("a.name = :name", "a.number", name=row_format.stored_key(name))

    def list(self, *, limit: int = 50, after: AgentId | None = None) -> Sequence[Agent]:
        """Newest first; `after` is the last agent of the page before."""
        return self.page(where=AgentFilter(), limit=limit, after=after)

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
        Raises: NotFound: the agent of a cursor."""
        columns = tuple(dict.fromkeys((_ORDERS[order], "a.number")))
        places = self._places("agent", "agents a", columns, after, before)
        return self._page(AGENT, _SELECT, _conditions(where), columns, places, ascending=ascending, limit=limit)

    def count(self, where: AgentFilter) -> int:
        """How many agents match the filter."""
        conditions = _conditions(where)
        source = AGENT_SOURCE if "d." in str(conditions) else "agents a"
        return int(self._value(f"SELECT COUNT(*) FROM {source} WHERE {conditions}", **conditions.params))

    def list_tags(self) -> Sequence[str]:
        """All tags that agents have, each once, in the order of code points."""
        rows = self._rows(f"SELECT DISTINCT d.tags FROM {AGENT_SOURCE} WHERE a.org_id = :org_id AND d.tags <> '[]'")
        return sorted({tag for row in rows for tag in row_format.load(row[0])})

    def find_latest(self) -> Agent | None:
        """The agent with the newest run; without any run, the newest agent. Hidden ones and companions don't count."""
        shown = f"a.hidden = 0 AND a.agent_type NOT IN ({', '.join(map(repr, SLEEPTIME_TYPES))})"
        used = self._newest(f"a.last_run_at IS NOT NULL AND {shown}", "a.last_run_at DESC, a.number")
        return used or self._newest(shown, "a.number")

    def put(self, agent: Agent) -> Agent:
        """Update an agent. A new type, model, prompt or settings increase its revision. Raises: NotFound."""
        # Read under a lock, because the revision is incremented here and not in the caller's copy: two different
        # settings must never share a number.
        self.lock(agent.id)
        before = self.get(agent.id)
        is_shaping = any(getattr(before, field) != getattr(agent, field) for field in _REQUEST_FIELDS)
        own = table.OwnId(before.id)
        params = AGENT.params(agent) | {"id": own}
        if is_shaping:
            table.keep_revision(self._db, own)
        rows = self._rows(
            f"UPDATE agents SET {_CHANGED}, settings_revision = settings_revision + :is_shaping"
            " WHERE id = :id RETURNING settings_revision",
            is_shaping=int(is_shaping),
            **params,
        )
        self._run(f"UPDATE agent_details SET {row_format.assignments(_DETAILS)} WHERE agent_id = :id", **params)
        return replace(agent, settings_revision=int(rows[0][0]))

    def delete(self, agent_id: AgentId) -> None:
        """Hide the agent and its rows, which `tx.upkeep` removes; nothing else removes a log. Raises: NotFound."""
        self.lock(agent_id)
        columns = tuple(column for order, column in _ORDERS.items() if order in _KEPT)
        place = table.place_in(self._db, self._org_id, "agent", "agents a", columns, agent_id)
        table.keep_places(self._db, self._org_id, {agent_id: dict(zip(columns, place, strict=True))})
        hide_agent(self._db, self._org_id, agent_id, self.get(agent_id).number)

    def _newest(self, condition: str, column: str, **params: str) -> Agent | None:
        """The last agent, in the order of a column, that fulfils a condition; `params` are the values in it."""
        sql = f"{_SELECT} WHERE a.org_id = :org_id AND {condition} ORDER BY {column} DESC LIMIT 1"
        return self._one(AGENT, sql, **params)


def _conditions(where: AgentFilter) -> Conditions:
    """The conditions of a filter, on the tables `agents a` and `agent_details d`."""
    conditions = Conditions("a.org_id = :org_id")
    for name in _FILTERED:
        conditions.equal(f"a.{name}", getattr(where, name))
    conditions.contain("a.name", where.text)
    conditions.have_tags("d.tags", where.tags, every=where.all_tags)
    conditions.add(
        "EXISTS (SELECT 1 FROM agent_blocks x JOIN blocks b ON b.id = x.block_id AND b.org_id = a.org_id"
        " WHERE x.agent_id = a.id AND x.block_id = ?)",
        where.block_id,
    )
    of_agent = "SELECT 1 FROM agent_archives x WHERE x.agent_id = a.id"
    conditions.add(f"EXISTS ({of_agent} AND x.archive_id = ?)", where.archive_id)
    if where.sharing is not None:
        root = next(feature_root for feature_root in feature_roots() if feature_root.name == where.sharing[0])
        links = f"SELECT 1 FROM {root.of_agents[0]} x WHERE x.agent_id = a.id"
        conditions.add(f"EXISTS ({links} AND x.{root.key} = ?)", where.sharing[1])
    add_identity_conditions(conditions, "agent", where)
    newest_run = "SELECT r.stop_reason FROM runs r WHERE r.agent_id = a.id ORDER BY r.seq DESC LIMIT 1"
    conditions.equal(f"({newest_run})", where.stop_reason)
    conditions.hold("d.settings", where.holding)
    return conditions


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentRevision:
    """What shapes an agent's requests, up to and with one settings revision."""

    agent_type: str
    model: str
    follows_default: bool
    timezone: str
    system: str | None
    settings: dict[str, Any]
    tool_ids: tuple[ToolId, ...]


_REVISION = row_format.RowFormat(
    AgentRevision,
    {
        row_format.JSON: "settings",
        row_format.Codec(",".join, lambda text: tuple(text.split(",")) if text else ()): "tool_ids",
    },
)


class AgentRevisions(table.Table):
    """What agents were before their settings and tools changed; `keep_revision` writes it."""

    def find(self, agent_id: AgentId, revision: int) -> AgentRevision | None:
        """Return the agent's fields at a settings revision; None: they are the same now, or unknown."""
        sql = (
            f"SELECT {_REVISION.columns} FROM agent_revisions WHERE agent_id = :agent_id AND revision >= :revision"
            f" AND {table.OWN_AGENT} ORDER BY revision LIMIT 1"
        )
        return self._one(_REVISION, sql, agent_id=agent_id, revision=revision)
