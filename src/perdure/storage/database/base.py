"""The port of a database connection: run statements, and the few operations that differ between databases."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from perdure.core.text.words import Clause
from perdure.storage.database.row_format import Row


@dataclass(frozen=True, slots=True)
class FullText:
    """The parts of a statement with a full-text match.

    Args:
        source: the table to select from, with the alias w.
        key: the expression of a hit's sequence number.
        where, params: the condition of the hits, and the parameters that it names.
        order: the column that is fast to order by, in the order of `key`.
    """

    source: str
    key: str
    where: str
    order: str
    params: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class WordRows:
    """Rows of one scope in an index of words.

    Args:
        number: the scope's number.
        labels: only rows with any of these; with all of them if `all_labels`.
        below: only rows with lower sequence numbers.
    """

    table: str
    number: int
    labels: Sequence[str] = ()
    all_labels: bool = False
    below: int | None = None


class Database(Protocol):
    """A connection with an open transaction. Statements write parameters as `:name`."""

    clustered: str
    """The end of CREATE TABLE for a table whose rows are stored in the order of its primary key."""
    blob: str
    """The type of a column of bytes."""
    row_key: str
    """The type of an integer primary key; on SQLite it is the row id."""
    read_only: bool
    embedding: str | None
    """The embedding model of new agents and archives; None: they are not embedded."""
    changed_scopes: set[int]
    """The numbers of the scopes whose vectors this transaction has changed."""
    queued_texts: int
    """How many texts were queued for embedding through this connection."""
    has_wide: str
    """The condition behind a column that it holds a wide Latin letter or digit."""
    for_update: str
    """The suffix of a select that locks its rows until the transaction ends; empty where no lock is needed."""

    def lock(self, table: str, id_: str) -> None:
        """Lock a row, if it exists, until the end of a transaction that may write, in a database with concurrent
        writers: nobody else changes it, or rows that belong to it, before that."""

    def by_index(self, name: str) -> str:
        """The suffix of a table in a statement that makes the database use this index. Without statistics SQLite would
        rather read all rows of the agent or graph, by the first column of the primary key."""

    def on_conflict(self, table: str, column: str) -> str:
        """Return the beginning of the clause for a row whose key exists. PostgreSQL needs the constraint's name, as a
        distributed table has a longer key."""

    def is_settled(self, number: int) -> bool:
        """Whether all that this transaction reads of the vectors of scope `number` is committed and of one moment."""

    def in_numbers(self, column: str, name: str, values: Sequence[int]) -> tuple[str, dict[str, Any]]:
        """Return the condition that a column equals one of many numbers, and the parameter `name` for it."""

    def signal(self, topic: str) -> None:
        """Send a topic to other processes after the commit, if the database can: its kind, a space, and what it is
        about, such as `run agent-1 3`; at most 100 characters, without commas."""

    def rows(self, sql: str, params: Mapping[str, Any]) -> Sequence[Row]:
        """Run a query and return all rows."""

    def rows_of_bytes(self, sql: str, params: Mapping[str, Any]) -> Sequence[Row]:
        """As `rows`, for columns of many bytes, which are not sent as text."""

    def concat(self, column: str, by: str = "") -> str:
        """Return the SQL of an aggregate that joins a column's values with commas (NULL for no rows), in the order of
        `by`, the table's key, or by default in that of the subquery."""

    def concat_bytes(self, column: str, by: str) -> str:
        """The aggregate that concatenates a column of bytes in order of `by`."""

    def run(self, sql: str, params: Mapping[str, Any]) -> None:
        """Run a statement. PostgreSQL gets it with the next query or the commit, which then raises its error."""

    def run_counted(self, sql: str, params: Mapping[str, Any]) -> int:
        """Run a statement and return the number of rows it changed."""

    def run_many(self, sql: str, params: Sequence[Mapping[str, Any]]) -> None:
        """`run` a statement once for each of the parameters."""

    def full_text_table(self, table: str) -> None:
        """Create a full-text index with this name, of rows (scope number, sequence number, labels, words)."""

    def index_words(self, table: str, number: int, rows: Sequence[tuple[int, str, str]]) -> None:
        """Add rows (sequence number, labels, words) of scope `number`; spaces separate labels, and words."""

    def unindex_words(self, table: str, number: int, rows: Sequence[tuple[int, str, str]]) -> None:
        """Remove rows of scope `number` that were added with exactly these values."""

    def merge_words(self, table: str, *, begin: bool) -> bool:
        """Merge a part of the full-text index, so that no removed word stays in it; `begin`: from the first part.
        Return whether there is more to merge."""

    removes_by_number: bool
    """Whether `unindex_words` needs only the sequence number."""

    def index_marks(self, table: str, number: int, first: int, last: int) -> dict[int, Any]:
        """Sequence number -> `index_mark` of each index row of scope `number` from `first` to `last`."""

    def index_mark(self, number: int, label: str, words: str) -> Any:
        """A fingerprint of an index row of scope `number`; different texts may share one."""

    def integrity(self) -> Sequence[str]:
        """The faults that the database's own check finds in its file. It reads the whole file."""

    def full_text(self, rows: WordRows, clauses: Sequence[Clause]) -> FullText:
        """Build a match of all the clauses among these rows."""
