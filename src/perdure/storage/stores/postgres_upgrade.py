"""Create or upgrade the tables of a PostgreSQL database while other processes, also of an older version, work on it.

A migration changes tables that others read and write in an order of their own, so each may come to wait for the other.
The migration gives way: it waits for a lock only for a moment, then takes everything back and begins again.
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Sequence
from datetime import datetime
from typing import Any

import psycopg

from perdure.core.errors import StoreBusy
from perdure.storage.database.postgres_database import PostgresDatabase
from perdure.storage.database.row_format import iso
from perdure.storage.migrations import MIGRATIONS, Migration, is_current, migrate

log = logging.getLogger(__name__)

MIGRATION_LOCK = 0x50455244  # advisory; one process migrates, the others wait
UPGRADE_S = 60.0
"""How long an upgrade tries to get the tables that others use."""
LOCK_S = 0.5
"""How long a try waits for a table. New requests queue behind it; and it is less than PostgreSQL's `deadlock_timeout`
(1 s), so where both wait for each other it is the migration that gives way."""
PAUSE_S = 0.3


def upgrade(
    connection: psycopg.Connection[tuple[Any, ...]],
    *,
    at: datetime,
    migrations: Sequence[Migration] = MIGRATIONS,
    patience_s: float = UPGRADE_S,
) -> None:
    """Run the migrations that the database does not have yet in one transaction, and commit; where others hold a table
    that it changes, try again for `patience_s`. Raises: StoreBusy: they held it all the time; StoreTooNew;
    StoreIncomplete; psycopg.Error."""
    deadline = time.monotonic() + patience_s
    has_logged = False
    while True:
        try:
            with connection.transaction():
                _run_missing(PostgresDatabase(connection), migrations, at=at)
            return
        except (psycopg.errors.LockNotAvailable, psycopg.errors.DeadlockDetected) as error:
            if time.monotonic() > deadline:
                raise StoreBusy(
                    f"the tables could not be upgraded: others held them for {patience_s:.0f} s. Wait for a backup or"
                    f" another long transaction to end, then start again; nothing was changed ({error})"
                ) from error
        if not has_logged:
            log.info("others use the tables that the upgrade changes: trying again for %.0f s", patience_s)
            has_logged = True
        time.sleep(PAUSE_S * (0.5 + random.random()))


def _run_missing(db: PostgresDatabase, migrations: Sequence[Migration], *, at: datetime) -> None:
    """Run those of the migrations that the database does not have, in the open transaction."""
    # The process that migrates is waited for as long as it takes, so the limit of waits comes after this lock.
    db.rows("SELECT pg_advisory_xact_lock(:lock)", {"lock": MIGRATION_LOCK})
    is_there = db.rows("SELECT to_regclass('schema_migrations')", {})[0][0] is not None
    if not (is_there and is_current(db.rows, "the database", migrations)):
        db.run(f"SET LOCAL lock_timeout = {round(1_000 * LOCK_S)}", {})
        migrate(db, migrations, at=iso(at))
