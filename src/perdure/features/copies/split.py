"""Split the tables of a store on PostgreSQL, which no process has open, into hash partitions, by the columns of
distribution.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

import psycopg
from psycopg import sql

from perdure.core.errors import InvalidInput, StoreBusy, StoreDamaged
from perdure.core.incoming.addresses import without_password
from perdure.core.tasks import Progress
from perdure.storage.database.postgres_errors import check_address, store_error
from perdure.storage.distribution import distributed, preparation
from perdure.storage.stores.postgres_store import OPEN_LOCK

PARTS_MAX = 256
_KIND = "SELECT relkind FROM pg_class WHERE oid = to_regclass(%s)"
_KEYS = """
    SELECT conname, pg_get_constraintdef(oid) FROM pg_constraint WHERE conrelid = %s::regclass AND contype IN ('p', 'u')
"""
_INDEXES = """
    SELECT pg_get_indexdef(i.indexrelid) FROM pg_index i WHERE i.indrelid = %s::regclass
    AND NOT EXISTS (SELECT 1 FROM pg_constraint c WHERE c.conindid = i.indexrelid)
"""
_PARTS = """
    SELECT COALESCE(MAX(parts), 0) FROM (
        SELECT COUNT(*) AS parts FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhparent
        WHERE c.relnamespace = quote_ident(%s)::regnamespace AND c.relkind = 'p' AND c.relname = ANY(%s) GROUP BY c.oid
    ) AS counts
"""


def split_store(address: str, parts: int, progress: Progress) -> int:
    """Split each table that is not split yet into `parts` partitions, in a transaction of its own; return how many it
    split. Killed, it goes on where it was. It needs room for a second copy of the largest table.

    Raises: InvalidInput: so many parts are not possible, or there is no store; StoreBusy: a process has the store open;
        StoreError.
    """
    if not 2 <= parts <= PARTS_MAX:
        raise InvalidInput(f"{parts} parts: choose 2 to {PARTS_MAX}")
    with connect_exclusively(address) as connection:
        return split_tables(connection, parts, progress)


def split_tables(connection: Connection, parts: int, progress: Progress) -> int:
    """Split the tables that a connection finds first, see `split_store`. Raises: InvalidInput: one is missing."""
    kinds = {table: connection.execute(_KIND, [table]).fetchone() for table in distributed()}
    if missing := sorted(table for table, kind in kinds.items() if kind is None):
        raise InvalidInput(f"there is no table {missing[0]}: open the store once with this version of Perdure")
    whole = [table for table, kind in kinds.items() if kind is not None and kind[0] in ("r", b"r")]
    for done, table in enumerate(whole):
        progress("splitting", done, len(whole))
        with connection.transaction():
            _split(connection, table, distributed()[table], parts)
    return len(whole)


def parts_of(connection: Connection, schema: str) -> int:
    """How many partitions each table of a store in this schema has; 0: they are not split. Raises: psycopg.Error."""
    (parts,) = connection.execute(_PARTS, [schema, list(distributed())]).fetchone() or (0,)
    return int(parts)


def _split(connection: Connection, table: str, column: str, parts: int) -> None:
    """Replace a table by one in `parts` partitions, by the hash of `column`, with the same rows, keys and indexes."""
    for statement in preparation(table):
        connection.execute(statement.encode())
    keys = connection.execute(_KEYS, [table]).fetchall()
    indexes = [row[0] for row in connection.execute(_INDEXES, [table]).fetchall()]
    whole = sql.Identifier(f"{table}_whole")
    name, by = sql.Identifier(table), sql.Identifier(column)
    connection.execute(sql.SQL("ALTER TABLE {} RENAME TO {}").format(name, whole))
    connection.execute(
        sql.SQL("CREATE TABLE {} (LIKE {} INCLUDING ALL EXCLUDING INDEXES) PARTITION BY HASH ({})").format(
            name, whole, by
        )
    )
    for part in range(parts):
        connection.execute(
            sql.SQL("CREATE TABLE {} PARTITION OF {} FOR VALUES WITH (MODULUS {}, REMAINDER {})").format(
                sql.Identifier(f"{table}_part{part}"), name, sql.Literal(parts), sql.Literal(part)
            )
        )
    connection.execute(sql.SQL("INSERT INTO {} SELECT * FROM {}").format(name, whole))
    connection.execute(sql.SQL("DROP TABLE {}").format(whole))
    for key, definition in keys:
        connection.execute(
            sql.SQL("ALTER TABLE {} ADD CONSTRAINT {} {}").format(name, sql.Identifier(key), sql.SQL(definition))
        )
    for definition in indexes:
        connection.execute(definition.encode())


ENDING_S = 1.0
"""How long the server may take to end the sessions of a process that has just ended."""

Connection = psycopg.Connection[tuple[Any, ...]]


@contextmanager
def connect_exclusively(address: str) -> Iterator[Connection]:
    """Connect to a store that no process has open, and none can open inside the context. Raises: StoreBusy."""
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
