"""Writes to the full-text index, and to the one that `storage.full_text.rebuild` builds beside it, as far as it is
built."""

from __future__ import annotations

from collections.abc import Sequence

from perdure.storage.database.base import Database

IN_USE = 1 << 62
"""The number in `rebuilding` that means: the new index is in use, and the old one is being removed."""
Words = tuple[int, str, str]
"""Sequence number, labels, words."""


def index_words(db: Database, table: str, number: int, rows: Sequence[Words]) -> None:
    """Add rows of a scope."""
    if rows:
        db.index_words(table, number, rows)
        if also := _rebuilt_rows(db, table, number, rows):
            db.index_words(next_table(table), number, also)


def unindex_words(db: Database, table: str, number: int, rows: Sequence[Words]) -> None:
    """Remove rows that were added with exactly these values."""
    if rows:
        db.unindex_words(table, number, rows)
        if also := _rebuilt_rows(db, table, number, rows):
            db.unindex_words(next_table(table), number, also)


def _rebuilt_rows(db: Database, table: str, number: int, rows: Sequence[Words]) -> Sequence[Words]:
    """The rows in the part of the new index that is built already."""
    if db.removes_by_number:
        return ()
    found = db.rows(
        "SELECT number, next_seq FROM rebuilding WHERE name = :name AND number < :end", {"name": table, "end": IN_USE}
    )
    return [row for row in rows if (number, row[0]) < tuple(found[0])] if found else ()


def next_table(table: str) -> str:
    """The table of the index that is being rebuilt."""
    return f"{table}_next"
