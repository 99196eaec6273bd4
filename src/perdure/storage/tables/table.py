"""What the verbs of every noun share: statements of one organisation, and the directory of ids."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any, ClassVar, Generic, NewType, TypeVar

from perdure.core.errors import NotFound
from perdure.core.ids import PREFIXES, AgentId, OrgId, run_of
from perdure.core.limits import DEFAULT_LIMITS, Limits
from perdure.storage.database.base import Database
from perdure.storage.database.conditions import Conditions
from perdure.storage.database.row_format import Row, RowFormat, iso, storable

T = TypeVar("T")
Filter = TypeVar("Filter")

OwnId = NewType("OwnId", str)
"""The id of a row that this transaction has found in its organisation, so functions that take one don't check it again.

Only `own_agent` and the scoped look-ups of the tables' classes create one."""

# Rows of an agent have no organisation column. This condition reads the agent once per statement, not once per row.
OWN_AGENT = "EXISTS (SELECT 1 FROM agents WHERE id = :agent_id AND org_id = :org_id)"

# A passage has no organisation column: its archive has.
OWN_ARCHIVE = "EXISTS (SELECT 1 FROM archives WHERE id = :archive_id AND org_id = :org_id)"

VALUES_AT_ONCE = 1_000
"""How many values a statement names one by one."""

_DELETED = "/deleted"
NOT_DELETED = f"org_id NOT LIKE '%{_DELETED}'"
"""The condition of rows of any organisation that are not deleted."""


class Table:
    """The verbs of one noun, in transactions of one organisation. A statement names the organisation as `:org_id`."""

    def __init__(self, db: Database, org_id: OrgId, limits: Limits = DEFAULT_LIMITS) -> None:
        self._db, self._org_id, self._limits = db, org_id, limits

    def _rows(self, sql: str, /, **params: Any) -> Sequence[Row]:
        """The rows that a statement returns."""
        return self._db.rows(sql, {**params, "org_id": self._org_id})

    def _run(self, sql: str, /, **params: Any) -> None:
        """Run a statement, on PostgreSQL together with the next one whose result is needed."""
        self._db.run(sql, {**params, "org_id": self._org_id})

    def _run_counted(self, sql: str, /, **params: Any) -> int:
        """Run a statement; return how many rows it changed."""
        return self._db.run_counted(sql, {**params, "org_id": self._org_id})

    def _put_upto(self, table: str, time: str, agent_id: AgentId, seq: int, upto_seq: int, at: datetime) -> None:
        """Set the number of the last row that was read of a conversation, in a table of such numbers, with the time.
        Raises: NotFound: no such agent."""
        rows = self._rows(
            f"INSERT INTO {table} (agent_id, conversation_seq, upto_seq, {time})"
            f" SELECT :agent_id, :conversation_seq, :upto_seq, :at WHERE {OWN_AGENT}"
            f" ON CONFLICT (agent_id, conversation_seq) DO UPDATE SET upto_seq = excluded.upto_seq,"
            f" {time} = excluded.{time} RETURNING upto_seq",
            agent_id=agent_id,
            conversation_seq=seq,
            upto_seq=upto_seq,
            at=iso(at),
        )
        first(rows, "agent", agent_id)

    def _agents_of(self, table: str, owner: str, own: str, id_: str, limit: int) -> Sequence[AgentId]:
        """The ids of agents that have an archive or a graph, in order."""
        sql = f"SELECT agent_id FROM {table} WHERE {owner} = :{owner} AND {own} ORDER BY agent_id LIMIT :limit"
        return [AgentId(row[0]) for row in self._rows(sql, limit=limit, **{owner: id_})]

    def _page(
        self,
        select: str,
        where: Conditions,
        columns: Sequence[str],
        *,
        ascending: bool,
        limit: int,
        after: Sequence[Any] | None,
        before: Sequence[Any] | None,
    ) -> Sequence[Row]:
        """Rows in the order of these columns: the first behind `after`, or with `before` alone the last in front of it.
        `after` and `before` are values of the columns."""
        order = where.page(columns, ascending=ascending, after=after, before=before)
        rows = self._rows(f"{select} WHERE {where} {order} LIMIT :limit", limit=limit, **where.params)
        return rows[::-1] if before is not None and after is None else rows

    def _place(self, kind: str, source: str, columns: Sequence[str], id_: str | None, name: str) -> Row | None:
        """The values of these columns in the row that the cursor `name` stands on; None: there is no cursor.

        Raises: NotFound.
        """
        if id_ is None:
            return None
        sql = f"SELECT {', '.join(columns)} FROM {source} WHERE id = :id AND org_id = :org_id"
        return first(self._rows(sql, id=storable(id_)), kind, id_, hint=f"`{name}` must be one of the list")


class PagedTable(Table, Generic[Filter, T]):
    """The verbs of a noun that is listed by pages, in order of creation."""

    _kind: ClassVar[str]
    _source: ClassVar[str]
    _format: ClassVar[RowFormat[Any]]

    def _where(self, where: Filter) -> Conditions:
        """The conditions of the rows that match the filter."""
        raise NotImplementedError

    def page(
        self,
        *,
        where: Filter,
        ascending: bool = False,
        limit: int = 50,
        after: str | None = None,
        before: str | None = None,
    ) -> Sequence[T]:
        """A page: the first ones behind `after`, or with `before` alone the last ones in front of it. A cursor need not
        match the filter. Raises: NotFound: the thing of a cursor."""
        rows = self._page(
            f"SELECT {self._format.columns} FROM {self._source}",
            self._where(where),
            ("number",),
            ascending=ascending,
            limit=limit,
            after=self._place(self._kind, self._source, ("number",), after, "after"),
            before=self._place(self._kind, self._source, ("number",), before, "before"),
        )
        return [self._format.read(row) for row in rows]

    def count(self, where: Filter) -> int:
        conditions = self._where(where)
        return int(self._rows(f"SELECT COUNT(*) FROM {self._source} WHERE {conditions}", **conditions.params)[0][0])


def first(values: Sequence[T], kind: str, key: str, *, hint: str = "") -> T:
    """The first of the values. Raises: NotFound: there is none."""
    if not values:
        raise NotFound(kind, key, hint=hint)
    return values[0]


def deleted_org(org_id: OrgId) -> str:
    """The organisation that holds another one's deleted things until their rows are removed."""
    return f"{org_id}{_DELETED}"


def own_agent(db: Database, org_id: OrgId, agent_id: AgentId, *, lock: bool = False) -> OwnId:
    """Check that the agent belongs to the organisation; `lock` locks its row. Raises: NotFound."""
    rows = db.rows(
        f"SELECT id FROM agents WHERE id = :id AND org_id = :org_id{db.for_update if lock else ''}",
        {"id": storable(agent_id), "org_id": org_id},
    )
    if not rows:
        raise NotFound("agent", agent_id)
    return OwnId(rows[0][0])


def revise_settings(db: Database, agent_id: OwnId) -> None:
    """Increment the agent's settings revision: something that shapes its requests has changed."""
    db.run("UPDATE agents SET settings_revision = settings_revision + 1 WHERE id = :id", {"id": agent_id})


def lock_numbers(db: Database) -> None:
    """Keep others from taking a number until the end of this transaction, in a database with concurrent writers."""
    if db.for_update:
        db.rows(f"SELECT value FROM counters WHERE name = 'number'{db.for_update}", {})


def next_number(db: Database) -> int:
    """A new number for a root row, from 1: its order of creation, and its scope in full-text indexes."""
    return int(db.rows("UPDATE counters SET value = value + 1 WHERE name = 'number' RETURNING value", {})[0][0])


def register(db: Database, org_id: OrgId, owner_id: str, rows: Sequence[tuple[str, int]]) -> None:
    """Add (id, seq) pairs of one owner to the directory of ids."""
    db.run_many(
        "INSERT INTO ids (id, org_id, owner_id, seq) VALUES (:id, :org_id, :owner_id, :seq)",
        [{"id": id_, "org_id": org_id, "owner_id": owner_id, "seq": seq} for id_, seq in rows],
    )


def find(db: Database, org_id: OrgId, kind: str, id_: str) -> tuple[str, int] | None:
    """(owner, seq) of an id of this kind; None if the directory does not have it."""
    if not id_.startswith(f"{PREFIXES[kind]}-"):  # an id of another kind
        return None
    sql = "SELECT owner_id, seq FROM ids WHERE id = :id AND org_id = :org_id"
    rows = db.rows(sql, {"id": storable(id_), "org_id": org_id})
    return (rows[0][0], rows[0][1]) if rows and not _deleted_agents(db, org_id, [rows[0][0]]) else None


def find_run_of(db: Database, org_id: OrgId, id_: str) -> tuple[str, int] | None:
    """(agent, seq) of the run whose id is part of this id; None if there is none."""
    run_id = run_of(id_)
    return None if run_id is None else find(db, org_id, "run", run_id)


def locate(db: Database, org_id: OrgId, kind: str, id_: str) -> tuple[str, int]:
    """(owner, seq) of an id. Raises: NotFound."""
    found = find(db, org_id, kind, id_)
    if found is None:
        raise NotFound(kind, id_)
    return found


def find_all(db: Database, org_id: OrgId, ids: Sequence[str]) -> Sequence[Row]:
    """(id, owner, seq) of those ids that the directory has."""
    rows: list[Row] = []
    for some in parts(list(dict.fromkeys(ids))):
        where = Conditions("org_id = :org_id", org_id=org_id)
        where.among("id", some)
        found = db.rows(f"SELECT id, owner_id, seq FROM ids WHERE {where}", where.params)
        deleted = _deleted_agents(db, org_id, [row[1] for row in found])
        rows += [row for row in found if row[1] not in deleted] if deleted else found
    return rows


def _deleted_agents(db: Database, org_id: OrgId, owners: Sequence[str]) -> set[str]:
    """Those of the owners that are deleted agents: the ids of their rows stay in the directory until the rows are
    removed."""
    # Ids and agents are two families of rows (`storage.distribution`), so this is a statement of its own.
    where = Conditions("org_id = :deleted", deleted=deleted_org(org_id))
    where.among("id", [owner for owner in owners if owner.startswith(f"{PREFIXES['agent']}-")])
    if where.clauses[-1] == "1 = 0":
        return set()
    return {row[0] for row in db.rows(f"SELECT id FROM agents WHERE {where}", where.params)}


def parts(values: Sequence[T]) -> Iterator[Sequence[T]]:
    """The values in parts that a statement can name."""
    return (values[start : start + VALUES_AT_ONCE] for start in range(0, len(values), VALUES_AT_ONCE))
