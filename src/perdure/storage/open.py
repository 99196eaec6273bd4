"""Open a store by its address: a file path for SQLite, `postgresql://...` for PostgreSQL."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

from perdure.core.ids import DEFAULT_ORG, OrgId
from perdure.core.limits import DEFAULT_LIMITS, Limits
from perdure.storage.store import Store


async def open_store(
    address: str | Path, *, at: datetime, org_id: OrgId = DEFAULT_ORG, limits: Limits = DEFAULT_LIMITS
) -> Store:
    """The store at this address, created or upgraded if need be. `limits` is what it takes of each thing.

    Raises: StoreReadOnly, StoreTooNew, NotAStore, StoreError; ImportError: PostgreSQL without the `postgres` extra.
    """
    text = str(address)
    if text.startswith(("postgresql://", "postgres://")):
        from perdure.storage.database.postgres import PostgresStore

        return await PostgresStore.open(text, at=at, org_id=org_id, limits=limits)
    from perdure.storage.database.sqlite_store import SqliteStore

    return SqliteStore.open(Path(address), at=at, org_id=org_id, limits=limits)
