"""A connection to a store on PostgreSQL that no process has open."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

import psycopg

from perdure.core.errors import StoreBusy, StoreDamaged
from perdure.core.text.addresses import without_password
from perdure.storage.database.postgres import OPEN_LOCK
from perdure.storage.database.postgres_errors import check_address, store_error

ENDING_S = 1.0
"""How long the server may take to end the sessions of a process that has just ended."""

Connection = psycopg.Connection[tuple[Any, ...]]


@contextmanager
def alone(address: str) -> Iterator[Connection]:
    """A connection while no process has the store open, and none opens it. Raises: StoreBusy."""
    check_address(address)
    try:
        with closing(psycopg.connect(address, connect_timeout=10, autocommit=True)) as connection:
            deadline = time.monotonic() + ENDING_S
            while connection.execute(f"SELECT pg_try_advisory_lock({OPEN_LOCK})".encode()).fetchone() != (True,):
                if time.monotonic() < deadline:
                    time.sleep(0.05)
                    continue
                raise StoreBusy(
                    f"a process has {without_password(address)} open: stop it (`perdure serve`, a chat), then try again"
                )
            yield connection
    except psycopg.errors.DataCorrupted as error:
        raise StoreDamaged(f"the database is damaged: {error}") from error
    except psycopg.Error as error:
        raise store_error(error) from error
