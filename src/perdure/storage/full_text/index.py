"""The full-text index as it is written: what changes in it changes also in the one that is being made anew beside it
(`storage.full_text.rebuild`), as far as that has come."""

from __future__ import annotations

from collections.abc import Sequence

from perdure.storage.database.base import Database

__all__ = ["IN_USE", "Words", "index_words", "next_table", "unindex_words"]

IN_USE = 1 << 62
"""In `rebuilding` in place of an owner's number: the new index is whole and in use, the old one is being removed."""
Words = tuple[int, str, str]
"""Sequence number, labels, words."""


def index_words(db: Database, table: str, number: int, rows: Sequence[Words]) -> None:
    """Add these rows of a scope."""
    if rows:
        db.index_words(table, number, rows)
        if also := _made_anew(db, table, number, rows):
            db.index_words(next_table(table), number, also)


def unindex_words(db: Database, table: str, number: int, rows: Sequence[Words]) -> None:
    """Remove rows that were added with exactly these values."""
    if rows:
        db.unindex_words(table, number, rows)
        if also := _made_anew(db, table, number, rows):
            db.unindex_words(next_table(table), number, also)


def _made_anew(db: Database, table: str, number: int, rows: Sequence[Words]) -> Sequence[Words]:
    """Those that are in the part of the new index that is made."""
    if db.removes_by_number:
        return ()
    found = db.rows(
        "SELECT number, next_seq FROM rebuilding WHERE name = :name AND number < :end", {"name": table, "end": IN_USE}
    )
    return [row for row in rows if (number, row[0]) < tuple(found[0])] if found else ()


def next_table(table: str) -> str:
    """Where the new one is made."""
    return f"{table}_next"
