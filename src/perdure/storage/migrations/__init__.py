"""Numbered migrations. One is never edited after release; each runs in one transaction with the row that records it.

`m0023_checksums` is number 23: the statements of a file `m0023_checksums.sql`, and then, where SQL is not enough,
`apply` of a module `m0023_checksums`. What differs between databases is in braces: `{clustered}` (rows stored in key
order), `{blob}`, `{row_key}`. A folder in `sql` has twenty numbers. Those of a feature's tables lie in its own folder
`migrations`, numbered with all others.

A line `-- least: 22` says that version 22 of the tables can live with them after this migration: its processes go on,
and open such a store. Without it no older version can.
"""

from __future__ import annotations

import functools
import importlib
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from perdure.core.errors import StoreError, StoreIncomplete, StoreTooNew
from perdure.core.features import find_features
from perdure.storage.database.base import Database
from perdure.storage.database.row_format import Row

Rows = Callable[[str, Mapping[str, Any]], Sequence[Row]]
"""Takes a statement and its parameters; returns its rows."""
OLDEST = 8
"""The lowest version whose tables are upgraded."""
LEAST_SINCE = 70
"""The migration since which the lowest versions are known."""
INCOMPLETE = 1_000_000
"""The number of the row that stands among the migrations of a copy until it is whole. So an older version refuses it,
too. Its name is the command that makes the copy."""


class Migration(NamedTuple):
    """A change of the tables. `least`: the lowest version that can live with the changed tables; 0: this one."""

    number: int
    name: str
    apply: Callable[[Database], None]
    least: int = 0


_FOLDER = Path(__file__).parent
FOLDERS = {
    _FOLDER: __name__,
    **{feature.folder / "migrations": f"{feature.package}.migrations" for feature in find_features()},
}
"""Folder of migrations -> its package."""
SCHEMA_FILE = "schema.sql"
"""The file in each of these with the tables of a new store, as all migrations leave them."""
_STATEMENTS = {path.stem: path for folder in FOLDERS for path in folder.rglob("m*.sql")}
_MODULES = {path.stem: f"{package}.{path.stem}" for folder, package in FOLDERS.items() for path in folder.glob("m*.py")}
_COMMENT = re.compile(r"--.*")
_FULL_TEXT = re.compile(r"^-- full text: (\w+)$", re.MULTILINE)
_LEAST = re.compile(r"^-- least: (\d+)$", re.MULTILINE)


def _run_file(file: Path, db: Database) -> None:
    """Run the statements of a file, in the words of this database, after making the full-text indexes that it names."""
    text = file.read_text(encoding="utf-8")
    for index in _FULL_TEXT.findall(text):
        db.full_text_table(index)
    text = _COMMENT.sub("", text)
    for word in ("clustered", "blob", "row_key"):
        text = text.replace(f"{{{word}}}", getattr(db, word))
    for statement in filter(None, map(str.strip, text.split(";"))):
        db.run(statement, {})


def _apply(name: str, db: Database) -> None:
    """Run the migration of this name, such as `m0023_checksums`: its statements, then its module."""
    if name in _STATEMENTS:
        _run_file(_STATEMENTS[name], db)
    if name in _MODULES:
        importlib.import_module(_MODULES[name]).apply(db)


def _least(name: str) -> int:
    """The lowest version that can live with the migration of this name, as its file says; 0: it does not say."""
    found = _LEAST.search(_STATEMENTS[name].read_text(encoding="utf-8")) if name in _STATEMENTS else None
    return int(found[1]) if found else 0


MIGRATIONS: Sequence[Migration] = [
    Migration(int(name[1:5]), name[6:], functools.partial(_apply, name), _least(name))
    for name in sorted({*_STATEMENTS, *_MODULES})
]
"""All migrations, in order."""


RECORD = "CREATE TABLE IF NOT EXISTS schema_migrations (number INTEGER PRIMARY KEY, name TEXT, applied_at TEXT)"


def version_of(migrations: Sequence[Migration]) -> int:
    """The version of the tables after all these migrations."""
    return migrations[-1][0]


SCHEMA_VERSION = version_of(MIGRATIONS)


def is_current(rows: Rows, place: str, migrations: Sequence[Migration]) -> bool:
    """Whether a store with tables, read by `rows`, lacks none of these migrations. Those of a newer version are
    accepted if this version can live with all of them. Raises: StoreTooNew; StoreIncomplete: a copy, not yet whole;
    StoreError: it is older than any release."""
    made = rows("SELECT number, name FROM schema_migrations ORDER BY number", {})
    done = {row[0] for row in made}
    if INCOMPLETE in done:
        raise StoreIncomplete(place, command=made[-1][1])
    if done and max(done) < OLDEST:
        raise StoreError(f"{place} has tables of version {max(done)}, from before any release: nothing upgrades them")
    known = version_of(migrations)
    if any(number > known for number in done):
        column = "COALESCE(least, number)" if LEAST_SINCE in done else "number"
        if rows(f"SELECT MAX({column}) FROM schema_migrations WHERE number > {known}", {})[0][0] > known:
            raise StoreTooNew(place, found=max(done), known=known)
    return all(migration.number in done for migration in migrations)


def run_steps(db: Database, migrations: Sequence[Migration], *, at: str) -> None:
    """Run these migrations one by one, each with the row that records it."""
    for migration in migrations:
        migration.apply(db)
        _record(db, [migration], at=at)


def _record(db: Database, migrations: Sequence[Migration], *, at: str) -> None:
    """Store that these migrations have run, at this time (`iso`)."""
    db.run_many(
        "INSERT INTO schema_migrations (number, name, applied_at) VALUES (:number, :name, :at)",
        [{"number": migration.number, "name": migration.name, "at": at} for migration in migrations],
    )


def migrate(db: Database, migrations: Sequence[Migration] = MIGRATIONS, *, at: str) -> int:
    """Run the migrations that the open transaction's database does not have yet; return how many. Safe to run twice. A
    new store gets its tables from files `schema.sql`, in place of some ninety steps."""
    db.run(RECORD, {})
    done = {row[0] for row in db.rows("SELECT number FROM schema_migrations", {})}
    missing = [migration for migration in migrations if migration.number not in done]
    steps = missing
    if not done and missing[: len(MIGRATIONS)] == MIGRATIONS:
        _record(db, MIGRATIONS, at=at)
        for folder in FOLDERS:
            if (folder / SCHEMA_FILE).exists():
                _run_file(folder / SCHEMA_FILE, db)
        steps = missing[len(MIGRATIONS) :]
    run_steps(db, steps, at=at)
    if LEAST_SINCE in done.union(migration.number for migration in missing):
        db.run_many(
            "UPDATE schema_migrations SET least = :least WHERE number = :number",
            [{"number": one.number, "least": one.least or one.number} for one in missing],
        )
    return len(missing)
