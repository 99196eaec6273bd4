"""The port of a database connection: run statements, and the few operations that differ between databases."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NewType, Protocol

from perdure.core.errors import NotFound
from perdure.core.ids import PREFIXES, AgentId, OrgId, run_of
from perdure.core.text.words import Clause, storable
from perdure.storage.database.row_format import Row

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

OwnId = NewType("OwnId", str)
"""The id of a row that this transaction has found in its organisation, so functions that take one don't check it again.

Only `own_agent` and the scoped look-ups of the tables' classes create one."""

# Rows of an agent have no organisation column. This condition reads the agent once per statement, not once per row.
OWN_AGENT = "EXISTS (SELECT 1 FROM agents WHERE id = :agent_id AND org_id = :org_id)"


@dataclass(frozen=True, slots=True)
class FullText:
    """The parts of a statement with a full-text match.

    Args:
        source: what to select from, with the alias w.
        key: the sequence number of a hit.
        order: the column that is fast to order by, in the order of `key`.
    """

    source: str
    key: str
    where: str
    order: str
    params: Mapping[str, Any] = field(default_factory=dict)


class Database(Protocol):
    """A connection with an open transaction. Statements write parameters as `:name`."""

    clustered: str
    blob: str
    row_key: str
    """The type of an integer primary key; on SQLite it is the row id."""
    read_only: bool
    embedding: str | None
    """The embedding model of new agents and archives; None: they are not embedded."""
    changed_scopes: set[int]
    """The numbers of the scopes whose vectors this transaction has changed."""
    queued_texts: int
    """How many texts were queued for embedding through this connection."""
    for_update: str
    """The suffix of a select that locks its rows until the transaction ends; empty where no lock is needed."""

    conversation_index: str
    """The suffix of `messages` in a statement about one conversation, which makes the database use that index. By the
    primary key it would read the messages of the agent's other conversations too."""

    def is_settled(self, number: int) -> bool:
        """Whether everything read of a scope is committed and of one moment."""

    def in_numbers(self, column: str, name: str, values: Sequence[int]) -> tuple[str, dict[str, Any]]:
        """The condition that a column equals one of many numbers, and its parameter, which has this name."""

    def rows(self, sql: str, params: Mapping[str, Any]) -> Sequence[Row]: ...

    def numbers(self, sql: str, params: Mapping[str, Any]) -> NDArray[np.int64]:
        """The result of a statement that selects integers `AS number`, in its order."""

    def concat(self, column: str, by: str = "") -> str:
        """The aggregate that joins a column with commas, NULL for no rows. The order is that of `by`, the table's key;
        without it that of the ordered subquery."""

    def concat_bytes(self, column: str, by: str) -> str:
        """The aggregate that concatenates a column of bytes in order of `by`."""

    def run(self, sql: str, params: Mapping[str, Any]) -> int:
        """Run a statement and return the number of rows it changed."""

    def run_many(self, sql: str, params: Sequence[Mapping[str, Any]]) -> None: ...

    def full_text_table(self, table: str) -> None:
        """Create the full-text index `table` of rows (scope number, sequence number, labels, words)."""

    def index_words(self, table: str, number: int, rows: Sequence[tuple[int, str, str]]) -> None:
        """Add rows (sequence number, labels, words); spaces separate labels, and words."""

    def unindex_words(self, table: str, number: int, rows: Sequence[tuple[int, str, str]]) -> None:
        """Remove rows that were added with exactly these values."""

    removes_by_number: bool
    """Whether `unindex_words` needs only the sequence number."""

    def index_marks(self, table: str, number: int, first: int, last: int) -> dict[int, Any]:
        """Sequence number -> `index_mark` of each index row of a scope between two numbers, both included."""

    def index_mark(self, number: int, label: str, words: str) -> Any:
        """A fingerprint of an index row; different texts may share one."""

    def integrity(self) -> Sequence[str]:
        """The faults that the database's own check finds in its file. It reads the whole file."""

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
        """Build a match of all the clauses within one scope. `labels` keeps rows with any of them, or with all of them
        if `all_labels`; `below` keeps lower sequence numbers."""


# The ids of a deleted agent's rows stay in the directory until the rows are removed.
_NOT_DELETED = "NOT EXISTS (SELECT 1 FROM agents a WHERE a.id = ids.owner_id AND a.org_id = :deleted)"


_DELETED = "/deleted"
NOT_DELETED = f"org_id NOT LIKE '%{_DELETED}'"
"""The condition of rows of any organisation that are not deleted."""


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
    rows = db.rows(
        f"SELECT owner_id, seq FROM ids WHERE id = :id AND org_id = :org_id AND {_NOT_DELETED}",
        {"id": storable(id_), "org_id": org_id, "deleted": deleted_org(org_id)},
    )
    return (rows[0][0], rows[0][1]) if rows else None


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
    names = {f"id{index}": storable(id_) for index, id_ in enumerate(dict.fromkeys(ids))}
    if not names:
        return ()
    return db.rows(
        "SELECT id, owner_id, seq FROM ids WHERE org_id = :org_id"
        f" AND id IN ({', '.join(f':{name}' for name in names)}) AND {_NOT_DELETED}",
        names | {"org_id": org_id, "deleted": deleted_org(org_id)},
    )
