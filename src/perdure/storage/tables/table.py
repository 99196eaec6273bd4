"""What the verbs of every noun share: statements of one organisation, and the directory of ids."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Any, ClassVar, Generic, NewType, TypeVar

from perdure.core.errors import NotFound
from perdure.core.ids import PREFIXES, AgentId, OrgId, run_of
from perdure.core.incoming.limits import DEFAULT_LIMITS, Limits
from perdure.storage.database.base import Database
from perdure.storage.database.conditions import Conditions, NumberWindow
from perdure.storage.database.row_format import Row, RowFormat, assignments, dump, iso, load, storable, stored_key

T = TypeVar("T")
Filter = TypeVar("Filter")

OwnId = NewType("OwnId", str)
"""The id of a row that this transaction has found in its organisation, so functions that take one don't check it again.

Only `own_agent` and the scoped look-ups of the tables' classes create one."""

# Rows of an agent have no organisation column. This condition reads the agent once per statement, not once per row.
OWN_AGENT = "EXISTS (SELECT 1 FROM agents WHERE id = :agent_id AND org_id = :org_id)"

# For statements about several agents; `{}` is the alias of the table whose rows are theirs.
OWN_AGENT_OF = "EXISTS (SELECT 1 FROM agents o WHERE o.id = {}.agent_id AND o.org_id = :org_id)"

# A passage has no organisation column: its archive has.
OWN_ARCHIVE = "EXISTS (SELECT 1 FROM archives WHERE id = :archive_id AND org_id = :org_id)"

# For rows that are looked up by many ids: by the index of the organisation SQLite would read all that it has.
BY_ID = "{}org_id || '' = :org_id"

VALUES_AT_ONCE, KEYS_AT_ONCE = 1_000, 200
"""How many values, or keys of several values, a statement names one by one."""

_DELETED = "/deleted"
NOT_DELETED = f"org_id NOT LIKE '%{_DELETED}'"
"""The condition of rows of any organisation that are not deleted."""


PLACES_KEPT_S = 86_400
"""How long a list can go on behind a deleted thing."""


class Table:
    """The statements about one kind of row, in transactions of one organisation, which SQL names `:org_id`."""

    _kind: ClassVar[str]
    _source: ClassVar[str]

    def __init__(self, db: Database, org_id: OrgId, limits: Limits = DEFAULT_LIMITS) -> None:
        self._db, self._org_id, self._limits = db, org_id, limits

    def _rows(self, sql: str, /, **params: Any) -> Sequence[Row]:
        """The rows that a statement returns with these values for its names."""
        return self._db.rows(sql, {**params, "org_id": self._org_id})

    def _all(self, rows: RowFormat[T], sql: str, /, **params: Any) -> list[T]:
        """What the rows that a statement returns store, by their format."""
        return [rows.read(row) for row in self._rows(sql, **params)]

    def _one(self, rows: RowFormat[T], sql: str, /, **params: Any) -> T | None:
        """What the first row that a statement returns stores; None: it returns no row."""
        return next(iter(self._all(rows, sql, **params)), None)

    def _run(self, sql: str, /, **params: Any) -> None:
        """Run a statement, on PostgreSQL together with the next one whose result is needed."""
        self._db.run(sql, {**params, "org_id": self._org_id})

    def _run_counted(self, sql: str, /, **params: Any) -> int:
        """Run a statement; return how many rows it changed."""
        return self._db.run_counted(sql, {**params, "org_id": self._org_id})

    def _change_one(self, kind: str, id_: str, sql: str, /, **params: Any) -> None:
        """Run a statement that changes the thing of this kind and id. Raises: NotFound: it changed none."""
        if not self._run_counted(sql, **params):
            raise NotFound(kind, id_)

    def _value(self, sql: str, /, **params: Any) -> Any:
        """The first value of the first row that a statement returns; None: it returns no row."""
        return next((row[0] for row in self._rows(sql, **params)), None)

    def _next(self, table: str, column: str, **key: Any) -> int:
        """1 more than the highest number in a column of the rows with this key; 1: there is no row."""
        where = " AND ".join(f"{name} = :{name}" for name in key)
        return int(self._value(f"SELECT COALESCE(MAX({column}), 0) + 1 FROM {table} WHERE {where}", **key))

    def _take(self, table: str, column: str, id_: str, kind: str, count: int = 1) -> int:
        """Take `count` numbers of a counter, a column of the row `id_`; return the first. Raises: NotFound."""
        taken = f"UPDATE {table} SET {column} = {column} + :count WHERE id = :id AND org_id = :org_id"
        rows = self._rows(f"{taken} RETURNING {column} - :count", id=storable(id_), count=count)
        return int(first(rows, kind, id_)[0])

    def _set(self, table: str, key: Mapping[str, Any], own: str = OWN_AGENT, /, **values: Any) -> None:
        """Set columns of the row with this key, if it is the organisation's: SQL `own` is true."""
        where = " AND ".join(f"{name} = :{name}" for name in key)
        self._run(f"UPDATE {table} SET {assignments(', '.join(values))} WHERE {where} AND {own}", **key, **values)

    def _rows_of_each(self, sql: str, each: str, keys: Sequence[Any], /, **params: Any) -> dict[Any, list[Row]]:
        """`rows_of_each` of this organisation."""
        return rows_of_each(self._db, sql, each, keys, org_id=self._org_id, **params)

    def _put_upto(
        self, table: str, time: str, agent_id: AgentId, seq: int, upto_seq: int, at: datetime, *, resets: str = ""
    ) -> None:
        """Set up to which number the messages of conversation `seq` were read, in a table of such numbers; the column
        `time` to `at`; the column `resets`, if it has a name, to 0. Raises: NotFound: no such agent."""
        rows = self._rows(
            f"INSERT INTO {table} (agent_id, conversation_seq, upto_seq, {time})"
            f" SELECT :agent_id, :conversation_seq, :upto_seq, :at WHERE {OWN_AGENT}"
            f" ON CONFLICT (agent_id, conversation_seq) DO UPDATE SET upto_seq = excluded.upto_seq,"
            f" {time} = excluded.{time}{resets and f', {resets} = 0'} RETURNING upto_seq",
            agent_id=agent_id,
            conversation_seq=seq,
            upto_seq=upto_seq,
            at=iso(at),
        )
        first(rows, "agent", agent_id)

    def _agents_of(self, table: str, column: str, own: str, id_: str, limit: int) -> Sequence[AgentId]:
        """The ids of agents that have the archive or graph `id_`, in order: the rows of `table` with it in `column`, if
        it is the organisation's: SQL `own` is true."""
        sql = f"SELECT agent_id FROM {table} WHERE {column} = :{column} AND {own} ORDER BY agent_id LIMIT :limit"
        return [AgentId(row[0]) for row in self._rows(sql, limit=limit, **{column: id_})]

    def _page(
        self,
        rows: RowFormat[T],
        select: str,
        where: Conditions,
        columns: Sequence[str],
        places: Sequence[Sequence[Any] | None],
        *,
        ascending: bool,
        limit: int,
    ) -> list[T]:
        """A page of what `select` finds, in the order of these columns. `places`: (after, before), each values of the
        columns, or None. The page begins behind the first; with the second alone it ends in front of that."""
        after, before = places
        order = where.page(columns, ascending=ascending, after=after, before=before)
        found = self._all(rows, f"{select} WHERE {where} {order} LIMIT :limit", limit=limit, **where.params)
        return found[::-1] if before is not None and after is None else found

    def _places(
        self, kind: str, source: str, columns: Sequence[str], after: str | None, before: str | None
    ) -> Sequence[Row | None]:
        """(after, before): the values of these columns in the rows with these ids; None for None. Raises: NotFound: a
        cursor's row, which may be deleted lately, is not there."""
        find = partial(place_in, self._db, self._org_id, kind, source, columns)
        cursors = {"after": after, "before": before}.items()
        return [None if id_ is None else find(id_, hint=f"`{name}` must be one of the list") for name, id_ in cursors]


class NounTable(Table, Generic[T]):
    """The verbs of a noun whose rows have an id, a number and the organisation."""

    _format: ClassVar[RowFormat[Any]]
    _in_org: ClassVar[str] = "org_id = :org_id"

    # A transaction that may write locks what it reads by itself, so that an edit of what was read is one step.
    def get(self, id_: str) -> T:
        """The thing with this id. Raises: NotFound."""
        return first(self._read(f"id = :id{self._db.for_update}", id=stored_key(id_)), self._kind, id_)

    def _read(self, where: str, **params: Any) -> list[T]:
        """The things for which `where` is true: SQL, with any ORDER BY and LIMIT, and these values in it."""
        sql = f"SELECT {self._format.columns} FROM {self._source} WHERE {self._in_org} AND {where}"
        return self._all(self._format, sql, **params)

    def _find(self, where: str, **params: Any) -> T | None:
        """Return the first thing for which `where` (SQL) is true, locked; None: there is none."""
        return next(iter(self._read(f"{where}{self._db.for_update}", **params)), None)

    def _list_by_ids(self, ids: Sequence[Any], *, lock: bool = False) -> dict[Any, T]:
        """Id -> thing, in the order of the ids; an id that nothing has is left out. `lock`: locked as by `get`."""
        select = f"SELECT id, {self._format.columns} FROM {self._source} WHERE {{keys}} AND {BY_ID.format('')}"
        sql = f"{select} ORDER BY id{self._db.for_update}" if lock else select
        return {id_: self._format.read(rows[0]) for id_, rows in self._rows_of_each(sql, "id", ids).items() if rows}

    def _get_each(self, ids: Sequence[Any], *, lock: bool = False) -> list[T]:
        """The things with these ids, in their order. Raises: NotFound."""
        found = self._list_by_ids(ids, lock=lock)
        for id_ in ids:
            first([id_] if id_ in found else [], self._kind, id_)
        return [found[id_] for id_ in ids]

    def _update(self, thing: T, columns: str) -> None:
        """Store these columns of a thing, names separated by commas. Raises: NotFound."""
        params = self._format.params(thing, f"id, {columns}")
        sql = f"UPDATE {self._source} SET {assignments(columns)} WHERE id = :id AND org_id = :org_id"
        self._change_one(self._kind, params["id"], sql, **params)


class NumberedTable(NounTable[T]):
    """The verbs of a noun that is listed from one number to another."""

    def number(self, id_: str) -> int:
        """Return the position of a thing in the order of creation, also of a deleted one. Raises: NotFound."""
        return int(place_in(self._db, self._org_id, self._kind, self._source, ("number",), id_)[0])

    def _in_window(self, where: Conditions, window: NumberWindow) -> list[T]:
        """The things with numbers in a window that fulfil the conditions, in order of creation."""
        order = where.window("number", window)
        return self._read(f"{where} {order}", **where.params)


class AgentsTable(NounTable[T]):
    """The verbs of a noun that agents have."""

    _links: ClassVar[str]  # the table of the agents' things
    _order: ClassVar[str]  # of an agent's things `t` by their links `x`

    def list_by_agent(self, agent_id: AgentId) -> Sequence[T]:
        """The things of this noun that the agent has, in the noun's own order."""
        return self.list_by_agents([agent_id])[agent_id]

    def list_by_agents(self, agent_ids: Sequence[AgentId]) -> Mapping[AgentId, Sequence[T]]:
        """Agent -> what `list_by_agent` returns for it."""
        # CROSS JOIN: the few links come first. In its own order SQLite would read all things of the organisation.
        sql = (
            f"SELECT x.agent_id, {self._format.columns_of('t')} FROM {self._links} x CROSS JOIN {self._source} t"
            f" WHERE {{keys}} AND t.id = x.{self._kind}_id AND t.org_id = :org_id ORDER BY {self._order}"
        )
        return self._format.read_each(self._rows_of_each(sql, "x.agent_id", agent_ids))


class PagedTable(NounTable[T], Generic[Filter, T]):
    """The verbs of a noun that is listed by pages, in order of creation."""

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
        """Return a page of the matching things: the first ones after the id `after`, or with `before` alone the last
        ones before it. A cursor need not match the filter. Raises: NotFound: the thing of a cursor."""
        select = f"SELECT {self._format.columns} FROM {self._source}"
        places = self._places(self._kind, self._source, ("number",), after, before)
        conditions = self._where(where)
        found = self._page(self._format, select, conditions, ("number",), places, ascending=ascending, limit=limit)
        return self._whole(found)

    def _whole(self, things: Sequence[T]) -> Sequence[T]:
        """The things of a page; a noun with values in other tables adds them here."""
        return things

    def count(self, where: Filter) -> int:
        """How many things match the filter."""
        conditions = self._where(where)
        return int(self._value(f"SELECT COUNT(*) FROM {self._source} WHERE {conditions}", **conditions.params))


def rows_of_each(db: Database, sql: str, each: str, keys: Sequence[Any], /, **params: Any) -> dict[Any, list[Row]]:
    """Key -> its rows, so that a page takes as many statements as one thing.

    Args:
        sql: a statement whose rows begin with their key, which is cut off; `{keys}` in it becomes the condition of the
            keys.
        each: the column of the key, where keys are ids; where they are tuples the condition of one key, with a `?` for
            each of its values. Then rows begin with two columns, the first two values of their key.
    """
    is_id = "?" not in each
    found: dict[Any, list[Row]] = {key if is_id else key[:2]: [] for key in keys}
    for part in parts(list(dict.fromkeys(keys)), VALUES_AT_ONCE if is_id else KEYS_AT_ONCE):
        where = Conditions(**params)
        (where.among if is_id else where.any_of)(each, part)
        for row in db.rows(sql.format(keys=where), where.params):
            found[row[0] if is_id else tuple(row[:2])].append(row[1 if is_id else 2 :])
    return found


def first(values: Sequence[T], kind: str, key: str, *, hint: str = "") -> T:
    """The first of the values. Raises: NotFound, for a thing of this kind and key: there is none."""
    if not values:
        raise NotFound(kind, key, hint=hint)
    return values[0]


def place_in(
    db: Database, org_id: OrgId, kind: str, source: str, columns: Sequence[str], id_: str, *, hint: str = ""
) -> Row:
    """The values of these columns in the row `id_` of a table `source`, also of one that was deleted lately. Raises:
    NotFound, for a thing of this kind."""
    sql = f"SELECT {', '.join(columns)} FROM {source} WHERE id = :id AND org_id = :org_id"
    rows = db.rows(sql, {"id": storable(id_), "org_id": org_id}) or deleted_place(db, org_id, id_, columns)
    return first(rows, kind, id_, hint=hint)


def deleted_place(db: Database, org_id: OrgId, id_: str, columns: Sequence[str]) -> Sequence[Row]:
    """One row, the values that these columns had in the row `id_` when it was deleted lately; empty: it was not."""
    sql = "SELECT place FROM deleted_places WHERE digest = :digest AND org_id = :org_id"
    places = [load(row[0]) for row in db.rows(sql, {"digest": _digest(id_), "org_id": org_id})]
    return [tuple(place[column] for column in columns) for place in places if place.keys() >= set(columns)]


def keep_places(db: Database, org_id: OrgId, places: Mapping[Any, Mapping[str, Any]]) -> None:
    """Keep for a day the positions of deleted rows (id -> column -> value), for clients that page through a list."""
    now = int(time.time())
    skip = f"{db.for_update} SKIP LOCKED" if db.for_update else ""  # another process removes it just now
    old = f"SELECT digest FROM deleted_places WHERE deleted_at < :until{skip}"
    db.run(f"DELETE FROM deleted_places WHERE digest IN ({old})", {"until": now - PLACES_KEPT_S})
    db.run_many(
        "INSERT INTO deleted_places (digest, org_id, place, deleted_at) VALUES (:digest, :org_id, :place, :now)"
        f" {db.on_conflict('deleted_places', 'digest')} DO NOTHING",
        [{"digest": _digest(id_), "org_id": org_id, "place": dump(place), "now": now} for id_, place in places.items()],
    )


def _digest(id_: str) -> str:
    """The hash by which a deleted thing is found again: its id itself is not kept."""
    return hashlib.sha256(storable(id_).encode()).hexdigest()


def deleted_org(org_id: OrgId) -> str:
    """Return the id under which an organisation's deleted things are kept until all their rows are removed."""
    return f"{org_id}{_DELETED}"


def own_agent(db: Database, org_id: OrgId, agent_id: AgentId, *, lock: bool = False) -> OwnId:
    """The id of an agent, checked to belong to the organisation; `lock` locks its row. Raises: NotFound."""
    return own_row(db, org_id, "agent", "agents", agent_id, lock=lock)


def own_row(db: Database, org_id: OrgId, kind: str, table: str, id_: str, *, lock: bool = False) -> OwnId:
    """The id of a row, checked to be the organisation's; `lock` locks it. Raises: NotFound, for this kind."""
    sql = f"SELECT id FROM {table} WHERE id = :id AND org_id = :org_id{db.for_update if lock else ''}"
    return OwnId(first(db.rows(sql, {"id": stored_key(id_), "org_id": org_id}), kind, id_)[0])


def revise_settings(db: Database, agent_id: OwnId, *, times: int = 1) -> None:
    """Increment the agent's settings revision: something that shapes its requests has changed, so many times."""
    sql = "UPDATE agents SET settings_revision = settings_revision + :times WHERE id = :id"
    db.run(sql, {"id": agent_id, "times": times})


def keep_revision(db: Database, agent_id: OwnId) -> None:
    """Keep what the agent is before its settings or tools change, once it has made a request: a restore needs it."""
    tools = f"SELECT {db.concat('x.tool_id', 'x.tool_id')} FROM agent_tools x WHERE x.agent_id = a.id"
    fields = "agent_type, model, follows_default, timezone, system, settings"
    db.run(
        f"INSERT INTO agent_revisions (agent_id, revision, {fields}, tool_ids)"
        f" SELECT a.id, a.settings_revision, {fields}, COALESCE(({tools}), '')"
        " FROM agents a JOIN agent_details d ON d.agent_id = a.id WHERE a.id = :id AND a.prefix_seq > 0"
        " ON CONFLICT (agent_id, revision) DO NOTHING",
        {"id": agent_id},
    )


def lock_numbers(db: Database) -> None:
    """Keep others from taking a number until the end of this transaction, in a database with concurrent writers."""
    if db.for_update:
        db.rows(f"SELECT value FROM counters WHERE name = 'number'{db.for_update}", {})


def next_number(db: Database, count: int = 1) -> int:
    """Return the first of `count` new numbers for root rows, from 1, in order of creation."""
    sql = "UPDATE counters SET value = value + :count WHERE name = 'number' RETURNING value - :count + 1"
    return int(db.rows(sql, {"count": count})[0][0])


def register(db: Database, org_id: OrgId, owner_id: str, rows: Sequence[tuple[str, int]]) -> None:
    """Add rows (id, number) of one agent or archive to the directory of ids, where all are found by id."""
    db.run_many(
        "INSERT INTO ids (id, org_id, owner_id, seq) VALUES (:id, :org_id, :owner_id, :seq)",
        [{"id": id_, "org_id": org_id, "owner_id": owner_id, "seq": seq} for id_, seq in rows],
    )


def find(db: Database, org_id: OrgId, kind: str, id_: str) -> tuple[str, int] | None:
    """(id of the agent or archive, number) of an id of this kind; None: the directory does not have it."""
    if not id_.startswith(f"{PREFIXES[kind]}-"):  # an id of another kind
        return None
    sql = "SELECT owner_id, seq FROM ids WHERE id = :id AND org_id = :org_id"
    rows = db.rows(sql, {"id": storable(id_), "org_id": org_id})
    return (rows[0][0], rows[0][1]) if rows and not _deleted_agents(db, org_id, [rows[0][0]]) else None


def find_run_of(db: Database, org_id: OrgId, id_: str) -> tuple[str, int] | None:
    """(agent, number) of the run whose id is part of this id; None: there is none."""
    run_id = run_of(id_)
    return None if run_id is None else find(db, org_id, "run", run_id)


def locate(db: Database, org_id: OrgId, kind: str, id_: str) -> tuple[str, int]:
    """(id of the agent or archive, number) of an id of this kind, by the directory. Raises: NotFound."""
    found = find(db, org_id, kind, id_)
    if found is None:
        raise NotFound(kind, id_)
    return found


def find_all(db: Database, org_id: OrgId, ids: Sequence[str]) -> Sequence[Row]:
    """(id, id of the agent or archive, number) of these ids, in no order; one that the directory lacks is left out."""
    rows: list[Row] = []
    for part in parts(list(dict.fromkeys(ids))):
        where = Conditions("org_id = :org_id", org_id=org_id)
        where.among("id", part)
        found = db.rows(f"SELECT id, owner_id, seq FROM ids WHERE {where}", where.params)
        deleted = _deleted_agents(db, org_id, [row[1] for row in found])
        rows += [row for row in found if row[1] not in deleted] if deleted else found
    return rows


def _deleted_agents(db: Database, org_id: OrgId, owners: Sequence[str]) -> set[str]:
    """The owners that are deleted agents. The ids of their rows stay in the directory until the rows are removed."""
    # Ids and agents are two families of rows (`storage.distribution`), so this is a statement of its own.
    where = Conditions(BY_ID.format(""), org_id=deleted_org(org_id))
    where.among("id", [owner for owner in owners if owner.startswith(f"{PREFIXES['agent']}-")])
    if where.clauses[-1] == "1 = 0":
        return set()
    return {row[0] for row in db.rows(f"SELECT id FROM agents WHERE {where}", where.params)}


def parts(values: Sequence[T], most: int = VALUES_AT_ONCE) -> Iterator[Sequence[T]]:
    """Yield the values in parts of at most `most`, as many as one statement may name."""
    return (values[start : start + most] for start in range(0, len(values), most))
