"""Rebuilding a full-text index from the texts.

On SQLite an index row can be removed only by its exact words, so a damaged index has to be replaced as a whole. The new
index is built in steps, owner by owner in order of their numbers, beside the old one. The table `rebuilding` holds the
progress, and changes in the finished part go to both (`storage.database.full_text`). Searches use the old index until
the new one is complete. On PostgreSQL each part is rebuilt in place.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from perdure.core.errors import StoreDamaged
from perdure.core.ids import AgentId, ArchiveId
from perdure.core.vectors import OwnerKind
from perdure.storage.database.base import Database
from perdure.storage.database.full_text import IN_USE, Words, next_table
from perdure.storage.database.row_format import Row
from perdure.storage.tables.messages import indexed_words_of
from perdure.storage.tables.passages import passage_words_of

LAST = (1 << 32) - 1
TABLES: dict[OwnerKind, str] = {"agent": "message_words", "archive": "passage_words"}
ROWS: dict[OwnerKind, str] = {
    "agent": "SELECT seq FROM messages WHERE agent_id = :id AND seq >= :first ORDER BY seq LIMIT :limit",
    "archive": "SELECT seq FROM passages WHERE archive_id = :id AND seq >= :first ORDER BY seq LIMIT :limit",
}
_OWNERS: dict[OwnerKind, str] = {"agent": "agents", "archive": "archives"}


def rebuilding(db: Database) -> list[OwnerKind]:
    """The kinds of owners whose index is being rebuilt."""
    names = {row[0] for row in db.rows("SELECT name FROM rebuilding", {})}
    return [kind for kind, table in TABLES.items() if table in names]


def rebuild_words(db: Database, kind: OwnerKind, *, limit: int) -> tuple[int, int] | None:
    """Index the next `limit` texts, in order of their owners' numbers; begin, if no rebuilding is under way. Returns
    (number of the owner, number of its text) to go on from; None: all is done."""
    table = TABLES[kind]
    found = _progress(db, table)
    if not found:
        if not db.removes_by_number:
            db.run(f"DROP TABLE IF EXISTS {next_table(table)}", {})
            db.full_text_table(next_table(table))
        db.run(
            "INSERT INTO rebuilding (name, number, next_seq) VALUES (:name, 0, 0) ON CONFLICT (name) DO NOTHING",
            {"name": table},
        )
        found = _progress(db, table)  # another process may have inserted it first
    number, first = found[0] if found else (0, 0)
    if number == IN_USE:
        return _drop_old(db, table, limit)
    while limit > 0:
        owners = db.rows(
            f"SELECT id, number FROM {_OWNERS[kind]} WHERE number >= :number ORDER BY number LIMIT 1{db.for_update}",
            {"number": number},
        )
        if not owners:
            return _replace_old(db, table)
        owner_id, owner_number = owners[0]
        first = first if owner_number == number else 0
        rows = db.rows(ROWS[kind], {"id": owner_id, "first": first, "limit": limit})
        more = len(rows) == limit
        last = rows[-1][0] if more else LAST
        _index_part(db, table, owner_number, first, last, _readable_words(db, kind, owner_id, first, last))
        number, first = (owner_number, last + 1) if more else (owner_number + 1, 0)
        limit -= len(rows) + 1
    db.run(
        "UPDATE rebuilding SET number = :number, next_seq = :next WHERE name = :name",
        {"number": number, "next": first, "name": table},
    )
    return number, first


def _progress(db: Database, table: str) -> Sequence[Row]:
    """The progress of rebuilding the index `table`: one row (number of the owner, number of its text) to go on from;
    empty: it has not begun. The row is locked, so that several processes take turns."""
    return db.rows(f"SELECT number, next_seq FROM rebuilding WHERE name = :name{db.for_update}", {"name": table})


def words_of(db: Database, kind: OwnerKind, id_: str, first: int, last: int) -> Iterator[Words]:
    """The index rows that an owner's texts from `first` to `last` should have."""
    if kind == "agent":
        return indexed_words_of(db, AgentId(id_), first, last)
    return passage_words_of(db, ArchiveId(id_), first, last)


def _readable_words(db: Database, kind: OwnerKind, id_: str, first: int, last: int) -> Sequence[Words]:
    """The rows of `words_of` without those of damaged texts: one such text must not block the rest."""
    try:
        return list(words_of(db, kind, id_, first, last))
    except StoreDamaged:
        middle = (first + last) // 2
        parts = ((first, middle), (middle + 1, last)) if first < last else ()
        return [row for part in parts for row in _readable_words(db, kind, id_, *part)]


def _index_part(db: Database, table: str, number: int, first: int, last: int, words: Sequence[Words]) -> None:
    """Replace the index's words of an owner's texts from `first` to `last`, in the new index if it must be."""
    if db.removes_by_number:
        db.unindex_words(table, number, [(seq, "", "") for seq in db.index_marks(table, number, first, last)])
        db.index_words(table, number, words)
    else:
        db.index_words(next_table(table), number, words)


def _replace_old(db: Database, table: str) -> tuple[int, int] | None:
    """Replace the old index by the new one, which is complete. Returns: as `rebuild_words`."""
    if db.removes_by_number:
        db.run("DELETE FROM rebuilding WHERE name = :name", {"name": table})
        return None
    db.run(f"ALTER TABLE {table} RENAME TO {table}_old", {})
    db.run(f"ALTER TABLE {next_table(table)} RENAME TO {table}", {})
    db.run("UPDATE rebuilding SET number = :number, next_seq = 0 WHERE name = :name", {"number": IN_USE, "name": table})
    return IN_USE, 0


def _drop_old(db: Database, table: str, limit: int) -> tuple[int, int] | None:
    """Remove some rows of the old index, except its own first records; drop it when it is empty. Dropping a large table
    at once would take long. Returns what `rebuild_words` does."""
    for part, first, rows in (("data", 10, max(1, limit // 10)), ("docsize", -1, limit)):  # a row of data is a page
        ids = f"SELECT id FROM {table}_old_{part} WHERE id > {first} ORDER BY id LIMIT :rows"
        if db.run_counted(f"DELETE FROM {table}_old_{part} WHERE id IN ({ids})", {"rows": rows}):
            return IN_USE, 0
    db.run(f"DROP TABLE {table}_old", {})
    db.run("DELETE FROM rebuilding WHERE name = :name", {"name": table})
    return None
