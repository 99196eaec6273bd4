"""Open a store by its address, a file path for SQLite or `postgresql://...`, and look at a file that does not open."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path

from perdure.core.errors import ExtraMissing, StoreError
from perdure.core.ids import DEFAULT_ORG, OrgId
from perdure.core.incoming.addresses import is_postgres
from perdure.core.incoming.limits import DEFAULT_LIMITS, Limits
from perdure.storage.database.row_format import Row
from perdure.storage.database.sqlite_file import check_log, check_mark
from perdure.storage.migrations import MIGRATIONS, is_current
from perdure.storage.store import Store


async def open_store(
    address: str | Path,
    *,
    at: datetime,
    org_id: OrgId = DEFAULT_ORG,
    limits: Limits = DEFAULT_LIMITS,
    connections: int = 4,
) -> Store:
    """The store at this address, created or upgraded if need be.

    Args:
        limits: how much of each thing may be stored.
        connections: how many are opened to PostgreSQL at most, besides one for signals.

    Raises: StoreReadOnly, StoreTooNew, NotAStore, StoreError; ExtraMissing: PostgreSQL without the `postgres` extra.
    """
    if is_postgres(address):
        try:
            from perdure.storage.stores.postgres_store import PostgresStore
        except ImportError as error:
            raise ExtraMissing("a store on PostgreSQL", extra="postgres") from error
        return await PostgresStore.open(str(address), at=at, org_id=org_id, limits=limits, connections=connections)
    from perdure.storage.stores.sqlite_store import SqliteStore

    return SqliteStore.open(Path(address), at=at, org_id=org_id, limits=limits)


def find_damage(path: Path, connection: sqlite3.Connection | None = None) -> str:
    """What quick checks, which change nothing, find wrong with the files of the store at `path`; empty: nothing.
    `connection` is needed if the store exists."""
    try:
        least = check_log(path)
        if connection is not None:
            check_mark(path, connection, least)
    except StoreError as error:
        return str(error)
    return ""


def find_refusal(place: str, rows: Callable[..., Sequence[Row]]) -> StoreError | None:
    """The error with which this Perdure refuses the tables of the store at `place`, a name for people; None: it opens
    them. `rows` takes a statement and returns its rows."""
    try:
        is_current(lambda sql, _: rows(sql), place, MIGRATIONS)
    except StoreError as error:
        return error
    return None
