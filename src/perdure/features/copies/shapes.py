"""What of a store is copied: every table that both sides have, as its catalogue says, and the hash of its rows."""

from __future__ import annotations

import hashlib
import marshal
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, Protocol

from perdure.core.errors import StoreError
from perdure.storage.database.base import Database
from perdure.storage.database.row_format import Row

MADE_ANEW = frozenset({"message_words", "passage_words", "message_words_next", "passage_words_next", "rebuilding"})
"""Tables that are made from the others: each database has a full-text index of its own kind."""
OF_THE_FILE = frozenset({"schema_migrations", "copy_progress", "commit_marks"})
"""Tables about the database itself."""

DIGEST_BITS = 128


@dataclass(frozen=True, slots=True)
class TableShape:
    """A table: the names of its columns, and of those of its primary key in the order of the key."""

    name: str
    columns: Sequence[str]
    key: Sequence[str]


@dataclass(slots=True)
class RowsDigest:
    """A hash of rows that does not depend on their order: the `sum` of the hashes of as many `rows`."""

    rows: int = 0
    sum: int = 0

    def add(self, row: Row) -> int:
        """Add a row; return about how many bytes it has."""
        # This version of the format has one form for each value, on every Python.
        data = marshal.dumps(tuple(row), 2)
        row_hash = int.from_bytes(hashlib.blake2b(data, digest_size=DIGEST_BITS // 8).digest(), "big")
        self.rows, self.sum = self.rows + 1, (self.sum + row_hash) % (1 << DIGEST_BITS)
        return len(data)

    def __str__(self) -> str:
        return f"{self.sum:032x}"


@dataclass(frozen=True, slots=True)
class Contents:
    """The digests of a store's rows, by the name of their table."""

    tables: Mapping[str, RowsDigest] = field(default_factory=dict)

    @property
    def rows(self) -> int:
        """How many rows all tables have together."""
        return sum(table.rows for table in self.tables.values())

    @property
    def digest(self) -> str:
        """One hash of all tables that have rows; it is the same for equal rows on SQLite and on PostgreSQL."""
        lines = (f"{name} {one.rows} {one}\n" for name, one in sorted(self.tables.items()) if one.rows)
        return hashlib.blake2b("".join(lines).encode(), digest_size=16).hexdigest()


class CopySide(Protocol):
    """A database that is copied from or to, on a connection of its own. Everything it raises is a `StoreError`."""

    place: str  # its path, or address without the password, for messages
    db: Database

    def shapes(self) -> Mapping[str, TableShape]:
        """Its tables by name, without the parts of full-text indexes and of partitioned tables."""

    def snapshot(self, *, lock: bool) -> AbstractContextManager[None]:
        """A transaction that reads one moment. `lock`: nobody else writes. Raises: StoreBusy: somebody does."""

    def change(self) -> AbstractContextManager[None]:
        """A transaction that writes."""

    def rows(self, shape: TableShape, after: Sequence[Any] | None = None) -> Iterator[Row]:
        """Yield the rows of a table in the order of its key; `after`: only rows after the one with this key."""

    def insert(self, shape: TableShape, rows: Sequence[Row]) -> None:
        """Write rows into a table."""

    def finish(self) -> None:
        """Bring the copy into the state in which it is used."""

    def close(self) -> None:
        """Close the connection."""


def shared_shapes(source: CopySide, target: CopySide) -> list[TableShape]:
    """The tables to copy, with their columns in one order for both sides.

    Raises: StoreError: only one side has a table or a column.
    """
    from_, to = source.shapes(), target.shapes()
    passed_over = MADE_ANEW | OF_THE_FILE
    only_one = f"only one of {source.place} and {target.place} has"
    if missing := (from_.keys() ^ to.keys()) - passed_over:
        raise StoreError(f"{only_one} {', '.join(sorted(missing))}")
    for name in sorted(from_.keys() - passed_over):
        if differing := {*from_[name].columns} ^ {*to[name].columns}:
            raise StoreError(f"{only_one} {', '.join(sorted(differing))} in {name}")
    return [sorted_shape(from_[name]) for name in sorted(from_.keys() - passed_over)]


def sorted_shape(shape: TableShape) -> TableShape:
    """Return a table with its columns in the order of the alphabet: digests of rows depend on it."""
    return TableShape(shape.name, sorted(shape.columns), shape.key)


def contents_of(side: CopySide, shapes: Sequence[TableShape], *, tell: Any = lambda rows: None) -> Contents:
    """Read all rows of these tables, and return their digests; `tell` is called with how many rows were read so far."""
    tables = {shape.name: RowsDigest() for shape in shapes}
    rows = ((shape.name, row) for shape in shapes for row in side.rows(shape))
    for read, (name, row) in enumerate(rows, 1):
        tables[name].add(row)
        if not read % 1_000:
            tell(read)
    return Contents(tables)
