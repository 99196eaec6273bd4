"""The stores of tests with processes of their own: files, or with `PERDURE_TEST_STORE=postgres` schemas of a server."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, closing
from pathlib import Path

from perdure.storage.store import Store
from perdure.storage.stores.open import open_store
from perdure.testing.clock import START

POSTGRES = os.environ.get("PERDURE_TEST_STORE") == "postgres"
"""Whether tests that take any store take one on PostgreSQL: `make faults` runs them on both."""

SECRET_KEY = "a key of tests, long enough"
"""PostgreSQL has no folder for a key of its own."""


def new_address(folder: Path, name: str = "perdure.db", *, postgres: bool = POSTGRES) -> str:
    """The address of a new store: of a file in this folder, or of an empty schema."""
    if not postgres:
        return str(folder / name)
    from tests.support.postgres_server import address_of_a_new_schema

    with ThreadPoolExecutor(1) as thread:  # the caller may be in an event loop
        return thread.submit(address_of_a_new_schema).result()


def new_settings(folder: Path) -> dict[str, str]:
    """The variables of a server over a new store."""
    return {"PERDURE_STORE": new_address(folder), "PERDURE_SECRET_KEY": SECRET_KEY}


@asynccontextmanager
async def opened(address: str) -> AsyncIterator[Store]:
    """The store alone, without the work of an app, to be looked at."""
    store = await open_store(address, at=START)
    try:
        yield store
    finally:
        await store.close()


def check_integrity(address: str) -> None:
    """Check the file of a store; PostgreSQL looks after its own."""
    if not address.startswith("postgresql:"):
        with closing(sqlite3.connect(address)) as connection:
            assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
