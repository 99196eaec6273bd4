"""Put a backup in the place of a store on PostgreSQL: copied into a schema beside, swapped in one transaction."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

import psycopg
from psycopg import sql

from perdure.core.errors import InvalidInput, StoreBusy, StoreDamaged
from perdure.core.text.addresses import without_password
from perdure.storage.copy.copier import Progress, copy_store
from perdure.storage.copy.postgres_side import PostgresSide
from perdure.storage.copy.sqlite_side import SqliteSide
from perdure.storage.database.postgres import OPEN_LOCK, PostgresDatabase
from perdure.storage.database.postgres_errors import check_address, store_error
from perdure.storage.database.row_format import iso

ENDING_S = 1.0
"""How long the server may take to end the sessions of a process that has just ended."""
NEW_SCHEMA = "perdure_restore"
_RELATIONS = """
    SELECT relname FROM pg_class WHERE relnamespace = %s::regnamespace AND relkind IN ('r', 'p')
"""
_FUNCTIONS = """
    SELECT p.oid::regprocedure::text FROM pg_proc p WHERE p.pronamespace = %s::regnamespace
    AND NOT EXISTS (SELECT 1 FROM pg_depend d WHERE d.objid = p.oid AND d.deptype = 'e')
"""

Connection = psycopg.Connection[tuple[Any, ...]]


def check_unused(address: str) -> None:
    """Raises: StoreBusy: a process has the store open; StoreError: the server can't be reached."""
    with alone(address):
        pass


def copy_and_swap(copy: Path, tell: Progress, *, address: str, at: datetime) -> str:
    """Copy a store file into a schema of its own, and make its tables those of the store; the old ones are kept in
    another schema. Returns the name of that; empty: there were none.

    Raises: StoreBusy: a process has the store open; StoreError.
    """
    with alone(address) as connection:
        (schema,) = connection.execute("SELECT current_schema()").fetchone() or ("",)
        if schema is None:
            raise InvalidInput(f"{without_password(address)} names no schema that exists: make it, or name another one")
        connection.execute(f"DROP SCHEMA IF EXISTS {NEW_SCHEMA} CASCADE".encode())
        connection.execute(f"CREATE SCHEMA {NEW_SCHEMA}".encode())
        with (
            closing(SqliteSide(copy)) as source,
            closing(PostgresSide(address, PostgresDatabase, schema=NEW_SCHEMA)) as target,
        ):
            copy_store(source, target, command="perdure restore", at=iso(at), progress=tell)
        kept = f"{schema}_before_{at:%Y%m%d_%H%M%S}"
        return _swap(connection, str(schema), kept)


def _swap(connection: Connection, schema: str, kept: str) -> str:
    """Swap the tables in one transaction, with what belongs to them."""
    with connection.transaction():
        ours = {row[0] for row in connection.execute(_RELATIONS, [NEW_SCHEMA])}
        old = [row[0] for row in connection.execute(_RELATIONS, [schema]) if row[0] in ours]
        if old:
            connection.execute(sql.SQL("CREATE SCHEMA {}").format(sql.Identifier(kept)))
        functions = [row[0] for row in connection.execute(_FUNCTIONS, [NEW_SCHEMA])]
        names = {name.split("(")[0].rpartition(".")[2] for name in functions}
        for name in [row[0] for row in connection.execute(_FUNCTIONS, [schema])]:
            if old and name.split("(")[0].rpartition(".")[2] in names:
                connection.execute(f"ALTER FUNCTION {name} SET SCHEMA {kept}".encode())
        for name in old:
            _move(connection, schema, name, kept)
        for name in ours:
            _move(connection, NEW_SCHEMA, name, schema)
        for name in functions:
            connection.execute(f"ALTER FUNCTION {name} SET SCHEMA {schema}".encode())
        connection.execute(f"DROP SCHEMA {NEW_SCHEMA}".encode())
    return kept if old else ""


def _move(connection: Connection, from_schema: str, name: str, to_schema: str) -> None:
    connection.execute(
        sql.SQL("ALTER TABLE {}.{} SET SCHEMA {}").format(
            sql.Identifier(from_schema), sql.Identifier(name), sql.Identifier(to_schema)
        )
    )


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
