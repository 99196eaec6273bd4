"""Copy a store table by table. The progress stands in the target, so a copy that was killed goes on where it was."""

from __future__ import annotations

import functools
import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass

from perdure.core.errors import Conflict, InvalidInput, StoreDamaged
from perdure.core.tasks import Progress
from perdure.core.vectors import OwnerKind
from perdure.features.copies.shapes import (
    OF_THE_FILE,
    Contents,
    CopySide,
    RowsDigest,
    TableShape,
    contents_of,
    shared_shapes,
)
from perdure.storage.database.row_format import Row
from perdure.storage.migrations import INCOMPLETE, MIGRATIONS, is_current, migrate
from perdure.storage.stores.sqlite import SqliteDatabase
from perdure.storage.upkeep.rebuild import TABLES, rebuild_words

BATCH_ROWS, BATCH_BYTES = 1_000, 4_000_000
WORDS_AT_ONCE = 500
SOURCE = ""
"""The row of `copy_progress` that says what is copied; all others are named after tables."""


@dataclass(frozen=True, slots=True)
class CopyReport:
    """A complete copy. `resumed`: an earlier call had made a part of it; `digest`: of all rows, equal on both sides."""

    rows: int
    tables: int
    digest: str
    resumed: bool


def copy_store(
    source: CopySide, target: CopySide, *, command: str, at: str, progress: Progress, lock: bool = False
) -> CopyReport:
    """Copy all rows, build the full-text indexes, and compare both sides. Until then the target can't be opened.

    Args:
        command: the command line that continues this copy: whoever opens the target before it is complete is told.
        at: the time now, in the store's form, for the tables that are made.
        lock: keep others from writing to the source; else it is copied as it is at the beginning.
    Raises: InvalidInput: the target is not empty, or is a copy of something else; Conflict: the source has changed
        since a part of it was copied; StoreBusy: others write to the source; StoreDamaged; StoreError.
    """
    resumed = _prepare(target, command, at)
    with source.snapshot(lock=lock):
        if not is_current(source.db.rows, source.place, MIGRATIONS):
            raise InvalidInput(f"{source.place} is of an older version: open it with this Perdure first")
        shapes = shared_shapes(source, target)
        _check_source(source, target)
        total = sum(source.db.rows(f"SELECT COUNT(*) FROM {shape.name}", {})[0][0] for shape in shapes)
        done, digests = 0, {}
        for shape in shapes:
            tell = functools.partial(lambda before, rows: progress("copying", before + rows, total), done)
            digest = digests[shape.name] = _copy_table(source, target, shape, tell)
            done += digest.rows
        for kind in TABLES:
            _index(target, kind, progress)
        contents = Contents(digests)
        if resumed:  # an earlier call read a part: it is read again, to see that the source has not changed since
            contents = contents_of(source, shapes, tell=lambda rows: progress("reading the source", rows, total))
    with target.snapshot(lock=False):
        after = contents_of(target, shapes, tell=lambda rows: progress("comparing", rows, total))
    _compare(source, target, contents, after)
    with target.change():
        target.db.run("DROP TABLE copy_progress", {})
        target.db.run("DELETE FROM schema_migrations WHERE number = :number", {"number": INCOMPLETE})
    target.finish()
    return CopyReport(contents.rows, len(shapes), contents.digest, resumed)


def _prepare(target: CopySide, command: str, at: str) -> bool:
    """Make the tables of the target, marked as incomplete; return whether an earlier call has made a part of this copy.

    Raises: InvalidInput: the target is not empty.
    """
    tables = target.shapes()
    with target.change():
        if "copy_progress" in tables:
            rows = target.db.rows("SELECT name FROM schema_migrations WHERE number = :number", {"number": INCOMPLETE})
            if rows and rows[0][0] == command:
                return True
            raise InvalidInput(
                f"{target.place} is a copy of something else that is not whole: go on with it by"
                f" `{rows[0][0] if rows else 'perdure migrate-db'}`, or remove it"
            )
        if "schema_migrations" not in tables and tables:
            raise InvalidInput(
                f"{target.place} has tables already ({', '.join(sorted(tables)[:3])}): name an empty one"
            )
        migrate(target.db, MIGRATIONS, at=at)
        is_current(target.db.rows, target.place, MIGRATIONS)
        filled = _filled_by_migrations(at)
        for name in target.shapes().keys() - OF_THE_FILE:
            count = target.db.rows(f"SELECT COUNT(*) FROM (SELECT 1 FROM {name} LIMIT 10) x", {})[0][0]
            if count > filled.get(name, 0):
                raise InvalidInput(f"{target.place} is not empty (there are rows in {name}): name an empty one")
            if count:
                target.db.run(f"DELETE FROM {name}", {})
        target.db.run(
            "CREATE TABLE copy_progress (name TEXT PRIMARY KEY, after TEXT, row_count BIGINT NOT NULL,"
            " digest TEXT NOT NULL, done SMALLINT NOT NULL)",
            {},
        )
        target.db.run(
            "INSERT INTO schema_migrations (number, name, applied_at) VALUES (:number, :name, :at)",
            {"number": INCOMPLETE, "name": command, "at": at},
        )
    return False


def _filled_by_migrations(at: str) -> dict[str, int]:
    """Map each table to how many rows it has in a store that was just made."""
    with closing(sqlite3.connect(":memory:")) as connection:
        db = SqliteDatabase(connection)
        migrate(db, MIGRATIONS, at=at)
        names = [row[0] for row in db.rows("SELECT name FROM sqlite_master WHERE type = 'table'", {})]
        return {name: db.rows(f"SELECT COUNT(*) FROM {name}", {})[0][0] for name in names}


def _check_source(source: CopySide, target: CopySide) -> None:
    """Note the source's counters in the target, or compare them with those of an earlier call. Raises: Conflict."""
    counters = json.dumps([list(row) for row in source.db.rows("SELECT name, value FROM counters ORDER BY name", {})])
    noted = target.db.rows("SELECT after FROM copy_progress WHERE name = :name", {"name": SOURCE})
    if noted and noted[0][0] != counters:
        raise Conflict(
            f"{source.place} has changed since a part of it was copied to {target.place}: remove that, and begin anew"
            " while nobody uses the source"
        )
    if not noted:
        with target.change():
            _note(target, SOURCE, counters, RowsDigest(), done=True)


def _note(target: CopySide, name: str, after: str | None, digest: RowsDigest, *, done: bool) -> None:
    """Store how far a table is copied; `after` is the key of its last copied row, as JSON, `digest` of all of these."""
    target.db.run(
        "INSERT INTO copy_progress (name, after, row_count, digest, done) VALUES (:name, :after, :rows, :digest, :done)"
        " ON CONFLICT (name) DO UPDATE SET after = :after, row_count = :rows, digest = :digest, done = :done",
        {"name": name, "after": after, "rows": digest.rows, "digest": str(digest), "done": int(done)},
    )


def _copy_table(source: CopySide, target: CopySide, shape: TableShape, tell: Callable[[int], None]) -> RowsDigest:
    """Copy rows that the target lacks, in batches; return its digest. `tell` gets the number of rows each time."""
    noted = target.db.rows(
        "SELECT after, row_count, digest, done FROM copy_progress WHERE name = :name", {"name": shape.name}
    )
    after, digest = None, RowsDigest()
    if noted:
        after, digest = json.loads(noted[0][0] or "null"), RowsDigest(noted[0][1], int(noted[0][2], 16))
        if noted[0][3]:
            return digest
    places = [list(shape.columns).index(column) for column in shape.key]
    batch: list[Row] = []
    size = 0

    def store(*, done: bool) -> None:
        """Write the batch and the progress in one transaction."""
        nonlocal size
        last = [batch[-1][place] for place in places] if batch else after
        with target.change():
            target.insert(shape, batch)
            _note(target, shape.name, json.dumps(last), digest, done=done)
        batch.clear()
        size = 0
        tell(digest.rows)

    for row in source.rows(shape, after):
        batch.append(row)
        size += digest.add(row)
        if len(batch) == BATCH_ROWS or size > BATCH_BYTES:
            store(done=False)
    store(done=True)
    return digest


def _index(target: CopySide, kind: OwnerKind, progress: Progress) -> None:
    """Build the full-text index of messages or of passages in the target, in steps, if an earlier call has not."""
    name = TABLES[kind]
    if target.db.rows("SELECT 1 FROM copy_progress WHERE name = :name", {"name": name}):
        return
    owners = target.db.rows(f"SELECT MAX(number) FROM {'agents' if kind == 'agent' else 'archives'}", {})[0][0] or 0
    place: tuple[int, int] | None = (0, 0)
    while place is not None:
        progress(f"indexing {'messages' if kind == 'agent' else 'passages'}", min(place[0], owners), owners)
        with target.change():
            place = rebuild_words(target.db, kind, limit=WORDS_AT_ONCE)
            if place is None:
                _note(target, name, None, RowsDigest(), done=True)


def _compare(source: CopySide, target: CopySide, contents: Contents, copied: Contents) -> None:
    """Raises: StoreDamaged: `contents`, what was read of the source, and `copied`, of the target, differ."""
    differing = [
        name
        for name, digest in contents.tables.items()
        if (digest.rows, digest.sum) != (copied.tables[name].rows, copied.tables[name].sum)
    ]
    if differing:
        raise StoreDamaged(
            f"{target.place} differs from {source.place} in {', '.join(sorted(differing)[:5])}: the source has changed"
            " since a part of it was copied, or a disk fails. Remove the copy, and begin anew while nobody uses the"
            " source"
        )
