"""What a database must offer beneath the SQL: run a statement, and the few things that really differ."""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NewType, Protocol

from perdure.core.errors import NotFound, StoreDamaged
from perdure.core.ids import PREFIXES, AgentId, OrgId, run_of
from perdure.core.text.json_encoder import compact_json
from perdure.core.text.words import Clause, restored, storable

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = [
    "NOT_DELETED",
    "OWN_AGENT",
    "Database",
    "FullText",
    "OwnId",
    "Row",
    "deleted_org",
    "dump",
    "find",
    "find_all",
    "find_run_of",
    "from_iso",
    "iso",
    "load",
    "locate",
    "next_number",
    "own_agent",
    "register",
    "revise_settings",
]

Row = Sequence[Any]

OwnId = NewType("OwnId", str)
"""The id of a row that this transaction has found in its organisation; what takes one does not look for it again.

Only `own_agent` makes one, and the class of a table's verbs, of what its own scoped look-up found."""

DAMAGED_HELPS = "restore a backup; `perdure verify` tells what else is damaged"

# Children of an agent carry no organisation of their own. This looks at the agent once per statement, not once per row.
OWN_AGENT = "EXISTS (SELECT 1 FROM agents WHERE id = :agent_id AND org_id = :org_id)"


@dataclass(frozen=True, slots=True)
class FullText:
    """How a full-text match stands in a statement: `source` aliased as w, `key` the sequence number of a hit, `order`
    the column that rows are quickly ordered by in the same way."""

    source: str
    key: str
    where: str
    order: str
    params: Mapping[str, Any] = field(default_factory=dict)


class Database(Protocol):
    """A connection with an open transaction. Parameters are written `:name`."""

    clustered: str
    blob: str
    row_key: str
    """The type of a whole number that is a table's primary key; on SQLite it is the row's own number."""
    read_only: bool
    embedding: str | None
    """The model that agents and archives that are added are embedded by."""
    touched: set[int]
    """The scopes whose vectors this transaction has changed."""
    queued: int
    """How many texts were queued for their vectors through here."""
    for_update: str
    """What a select ends with that locks its rows until the transaction ends; empty where there is nothing to lock."""

    of_conversation: str
    """What stands behind `messages` in a statement about one conversation, so that its index is gone by: by the key
    alone the database would go through what an agent's other conversations said meanwhile."""

    def is_settled(self, number: int) -> bool:
        """Whether all that is seen of a scope is committed, and as of one moment."""
        ...

    def among(self, column: str, name: str, values: Sequence[int]) -> tuple[str, dict[str, Any]]:
        """The condition that a column is one of many numbers, and its parameter, by this name."""
        ...

    def picked(self, table: str, column: str, name: str, values: Sequence[int]) -> tuple[str, str, dict[str, Any]]:
        """The same of the rows of one table, where numbers often follow each other: what to select from, the condition,
        and the parameter."""
        ...

    def rows(self, sql: str, params: Mapping[str, Any]) -> Sequence[Row]: ...

    def numbers(self, sql: str, params: Mapping[str, Any]) -> NDArray[np.int64]:
        """The rows of a statement that selects whole numbers, `AS number`, in its order."""
        ...

    def joined(self, column: str, by: str = "") -> str:
        """The aggregate of a column as text with commas between, NULL where there is none; in order of `by`, which is
        the key of the table that is read, or without it in that of an ordered query in parentheses."""
        ...

    def joined_bytes(self, column: str, by: str) -> str:
        """The same of a column of bytes, end to end."""
        ...

    def run(self, sql: str, params: Mapping[str, Any]) -> int:
        """The number of rows it changed."""
        ...

    def run_many(self, sql: str, params: Sequence[Mapping[str, Any]]) -> None: ...

    def update(
        self, table: str, change: str, where: str, params: Mapping[str, Any], *, returning: str
    ) -> Sequence[Row]:
        """Change rows and read them as they then are. `where` must still hold of what was changed."""
        ...

    def full_text_table(self, table: str) -> None:
        """Create the index `table`: rows of (scope number, sequence number, labels, words)."""
        ...

    def index_words(self, table: str, number: int, rows: Sequence[tuple[int, str, str]]) -> None:
        """Add rows of (sequence number, labels, words); labels, like words, with a space between them."""
        ...

    def unindex_words(self, table: str, number: int, rows: Sequence[tuple[int, str, str]]) -> None:
        """Remove rows that were added with exactly these values."""
        ...

    mends_words: bool
    """Whether `unindex_words` needs no more than the sequence number."""

    def indexed(self, table: str, number: int, first: int, last: int) -> dict[int, Any]:
        """sequence number -> `index_mark` of the rows that the index has of a scope, between two numbers."""
        ...

    def index_mark(self, number: int, label: str, words: str) -> Any:
        """What tells an index row from those of other texts, as well as it can be told."""
        ...

    def integrity(self) -> Sequence[str]:
        """What the database itself finds wrong with its file, in its own words; it reads all of it."""
        ...

    def full_text(
        self,
        table: str,
        number: int,
        clauses: Sequence[Clause],
        labels: Sequence[str],
        *,
        all_labels: bool = False,
        below: int | None = None,
    ) -> FullText:
        """How to match all of the clauses within one scope; with `labels`, rows of any of these only, or of all of
        them; with `below`, those with lower sequence numbers."""
        ...


@functools.lru_cache(maxsize=64)  # a unit of work writes the same moment into many rows
def iso(at: datetime) -> str:
    """The time as text that sorts: UTC, microseconds."""
    return (at if at.tzinfo is UTC else at.astimezone(UTC)).isoformat(timespec="microseconds")


def from_iso(text: str | None) -> Any:
    """The inverse of `iso`; None stays None, for columns that may be null."""
    try:
        return None if text is None else datetime.fromisoformat(text)
    except ValueError as error:
        raise StoreDamaged("the store is damaged: a time in it is none any more: " + DAMAGED_HELPS) from error


def dump(value: Any) -> str:
    """Compact JSON, storable in any text column."""
    return storable(compact_json(value))


def load(text: str | None) -> Any:
    """The inverse of `dump`; None stays None."""
    match text:
        case None:
            return None
        case "{}":  # most metadata, tags and settings are empty
            return {}
        case "[]":
            return []
        case _:
            try:
                return json.loads(restored(text))
            except ValueError as error:  # only what `dump` made is ever written
                raise StoreDamaged(
                    f"a value of {len(text):,} characters is no JSON any more: {DAMAGED_HELPS}"
                ) from error


# Ids of a deleted agent's rows are there until the rows are gone.
_NOT_DELETED = "NOT EXISTS (SELECT 1 FROM agents a WHERE a.id = ids.owner_id AND a.org_id = :deleted)"


_DELETED = "/deleted"
NOT_DELETED = f"org_id NOT LIKE '%{_DELETED}'"
"""The condition of rows, of any organisation, that are not deleted."""


def deleted_org(org_id: OrgId) -> str:
    """Where the things of an organisation stand that are deleted and not gone yet."""
    return f"{org_id}{_DELETED}"


def own_agent(db: Database, org_id: OrgId, agent_id: AgentId, *, lock: bool = False) -> OwnId:
    """The agent's id, if the organisation has it; `lock` keeps others from changing it. Raises: NotFound."""
    rows = db.rows(
        f"SELECT id FROM agents WHERE id = :id AND org_id = :org_id{db.for_update if lock else ''}",
        {"id": storable(agent_id), "org_id": org_id},
    )
    if not rows:
        raise NotFound("agent", agent_id)
    return OwnId(rows[0][0])


def revise_settings(db: Database, agent_id: OwnId) -> None:
    """Count that something which shapes an agent's requests has changed."""
    db.run("UPDATE agents SET settings_revision = settings_revision + 1 WHERE id = :id", {"id": agent_id})


def next_number(db: Database) -> int:
    """A fresh number for a root row, from 1: the order of creation, and the scope in full-text indexes."""
    return int(db.rows("UPDATE counters SET value = value + 1 WHERE name = 'number' RETURNING value", {})[0][0])


def register(db: Database, org_id: OrgId, owner_id: str, rows: Sequence[tuple[str, int]]) -> None:
    """Put (id, seq) pairs into the directory."""
    db.run_many(
        "INSERT INTO ids (id, org_id, owner_id, seq) VALUES (:id, :org_id, :owner_id, :seq)",
        [{"id": id_, "org_id": org_id, "owner_id": owner_id, "seq": seq} for id_, seq in rows],
    )


def find(db: Database, org_id: OrgId, kind: str, id_: str) -> tuple[str, int] | None:
    """(owner, seq) of an id, if it is of this kind and the directory has it."""
    if not id_.startswith(f"{PREFIXES[kind]}-"):  # the number would be another thing's
        return None
    rows = db.rows(
        f"SELECT owner_id, seq FROM ids WHERE id = :id AND org_id = :org_id AND {_NOT_DELETED}",
        {"id": storable(id_), "org_id": org_id, "deleted": deleted_org(org_id)},
    )
    return (rows[0][0], rows[0][1]) if rows else None


def find_run_of(db: Database, org_id: OrgId, id_: str) -> tuple[str, int] | None:
    """(agent, seq) of the run that an id leads to, if there is one."""
    run_id = run_of(id_)
    return None if run_id is None else find(db, org_id, "run", run_id)


def locate(db: Database, org_id: OrgId, kind: str, id_: str) -> tuple[str, int]:
    """(owner, seq) of an id. Raises: NotFound."""
    found = find(db, org_id, kind, id_)
    if found is None:
        raise NotFound(kind, id_)
    return found


def find_all(db: Database, org_id: OrgId, ids: Sequence[str]) -> Sequence[Row]:
    """(id, owner, seq) of those among many that the directory has."""
    names = {f"id{index}": storable(id_) for index, id_ in enumerate(dict.fromkeys(ids))}
    if not names:
        return ()
    return db.rows(
        "SELECT id, owner_id, seq FROM ids WHERE org_id = :org_id"
        f" AND id IN ({', '.join(f':{name}' for name in names)}) AND {_NOT_DELETED}",
        names | {"org_id": org_id, "deleted": deleted_org(org_id)},
    )
