"""Numbered migrations. One is never edited after release; each runs in one transaction with the row that records it.

Each module here is one: `m0023_checksums` is number 23, and its `apply` changes the tables. The database fills in what
differs between databases: `{clustered}` (rows stored in key order), `{blob}`, and `full_text_table`.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Sequence

from perdure.storage.database.base import Database

Migration = tuple[int, str, Callable[[Database], None]]
"""Number, name, and the function that changes the tables."""

MIGRATIONS: Sequence[Migration] = [
    (int(name[1:5]), name[6:], importlib.import_module(f"{__name__}.{name}").apply)
    for name in sorted(module.name for module in pkgutil.iter_modules(__path__))
]
"""All migrations, in order."""


def version_of(migrations: Sequence[Migration]) -> int:
    """The version of the tables after all these migrations."""
    return migrations[-1][0]


SCHEMA_VERSION = version_of(MIGRATIONS)


def migrate(db: Database, migrations: Sequence[Migration] = MIGRATIONS, *, at: str) -> int:
    """Run the migrations that the open transaction's database does not have yet; return how many. Safe to run twice."""
    db.run("CREATE TABLE IF NOT EXISTS schema_migrations (number INTEGER PRIMARY KEY, name TEXT, applied_at TEXT)", {})
    done = {row[0] for row in db.rows("SELECT number FROM schema_migrations", {})}
    missing = [migration for migration in migrations if migration[0] not in done]
    for number, name, apply in missing:
        apply(db)
        db.run(
            "INSERT INTO schema_migrations (number, name, applied_at) VALUES (:number, :name, :at)",
            {"number": number, "name": name, "at": at},
        )
    return len(missing)
