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
class Shape:
    """A table: its columns by name, and those of its primary key in order."""

    name: str
    columns: Sequence[str]
    key: Sequence[str]


@dataclass(slots=True)
class Digest:
    """A hash of rows, whatever their order, and how many they are."""

    rows: int = 0
    sum: int = 0

    def add(self, row: Row) -> int:
        """Add a row; return about how many bytes it has."""
        # This version of the format has one form for each value, on every Python.
        data = marshal.dumps(tuple(row), 2)
        one = int.from_bytes(hashlib.blake2b(data, digest_size=DIGEST_BITS // 8).digest(), "big")
        self.rows, self.sum = self.rows + 1, (self.sum + one) % (1 << DIGEST_BITS)
        return len(data)

    def __str__(self) -> str:
        return f"{self.sum:032x}"


@dataclass(frozen=True, slots=True)
class Contents:
    """The digest of each table of a store."""

    tables: Mapping[str, Digest] = field(default_factory=dict)

    @property
    def rows(self) -> int:
        return sum(one.rows for one in self.tables.values())

    @property
    def digest(self) -> str:
        """One hash of everything. Stores with equal contents have the same on every database."""
        lines = (f"{name} {one.rows} {one}\n" for name, one in sorted(self.tables.items()) if one.rows)
        return hashlib.blake2b("".join(lines).encode(), digest_size=16).hexdigest()


class Side(Protocol):
    """A database that is copied from or to, on a connection of its own. Everything it raises is a `StoreError`."""

    place: str
    db: Database

    def shapes(self) -> Mapping[str, Shape]:
        """Its tables by name, without the parts of full-text indexes and of partitioned tables."""

    def snapshot(self, *, lock: bool) -> AbstractContextManager[None]:
        """A transaction in which everything that is read is of one moment. `lock`: nobody else writes until it ends.

        Raises: StoreBusy: somebody writes.
        """

    def change(self) -> AbstractContextManager[None]:
        """A transaction that writes."""

    def rows(self, shape: Shape, after: Sequence[Any] | None = None) -> Iterator[Row]:
        """The rows of a table in order of its key, those behind `after`."""

    def insert(self, shape: Shape, rows: Sequence[Row]) -> None: ...

    def finish(self) -> None:
        """Bring the copy into the state in which it is used."""

    def close(self) -> None: ...


def shared_shapes(source: Side, target: Side) -> list[Shape]:
    """The tables to copy, with their columns in one order for both sides.

    Raises: StoreError: only one side has a table or a column.
    """
    ours, theirs = source.shapes(), target.shapes()
    passed_over = MADE_ANEW | OF_THE_FILE
    if missing := (ours.keys() ^ theirs.keys()) - passed_over:
        raise StoreError(f"only one of {source.place} and {target.place} has {', '.join(sorted(missing))}")
    shapes = []
    for name in sorted(ours.keys() - passed_over):
        one, other = ours[name], theirs[name]
        if differing := {*one.columns} ^ {*other.columns}:
            raise StoreError(
                f"only one of {source.place} and {target.place} has {', '.join(sorted(differing))} in {name}"
            )
        shapes.append(Shape(name, sorted(one.columns), one.key))
    return shapes


def contents_of(side: Side, shapes: Sequence[Shape], *, tell: Any = lambda rows: None) -> Contents:
    """The digests of these tables; `tell` takes from time to time how many rows were read."""
    tables: dict[str, Digest] = {}
    read = 0
    for shape in shapes:
        digest = tables[shape.name] = Digest()
        for row in side.rows(shape):
            digest.add(row)
            read += 1
            if not read % 1_000:
                tell(read)
    return Contents(tables)
