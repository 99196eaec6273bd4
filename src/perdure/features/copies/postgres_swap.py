"""Put a backup in the place of a store on PostgreSQL: copied into a schema beside, swapped in one transaction."""

from __future__ import annotations

from contextlib import closing
from datetime import datetime
from pathlib import Path

from psycopg import sql

from perdure.core.errors import InvalidInput
from perdure.core.incoming.addresses import without_password
from perdure.core.tasks import Progress
from perdure.features.copies.copier import copy_store
from perdure.features.copies.postgres_side import PostgresCopySide, search_first
from perdure.features.copies.split import Connection, connect_exclusively, parts_of, split_tables
from perdure.features.copies.sqlite_side import SqliteCopySide
from perdure.storage.database.row_format import iso
from perdure.storage.stores.postgres_store import PostgresDatabase

NEW_SCHEMA = "perdure_restore_"
"""What the name of the schema beside begins with; the name of the store's own follows."""
NAME_CHARS_MAX = 63
_RELATIONS = """
    SELECT relname FROM pg_class WHERE relnamespace = quote_ident(%s)::regnamespace AND relkind IN ('r', 'p')
"""
_FUNCTIONS = """
    SELECT p.oid::regprocedure::text FROM pg_proc p WHERE p.pronamespace = quote_ident(%s)::regnamespace
    AND NOT EXISTS (SELECT 1 FROM pg_depend d WHERE d.objid = p.oid AND d.deptype = 'e')
"""


def copy_and_swap(copy: Path, tell: Progress, *, address: str, at: datetime) -> str:
    """Copy a store file into a new schema, and swap its tables and those of the store at `address`; if those are split
    into partitions, so are the new ones. Return the schema that keeps the old tables; empty: there were none.

    Raises: StoreBusy: a process has the store open; StoreError.
    """
    with connect_exclusively(address) as connection:
        (schema,) = connection.execute("SELECT current_schema()").fetchone() or ("",)
        if schema is None:
            raise InvalidInput(f"{without_password(address)} names no schema that exists: make it, or name another one")
        new = f"{NEW_SCHEMA}{schema}"[:NAME_CHARS_MAX]
        connection.execute(sql.SQL("DROP SCHEMA IF EXISTS {} CASCADE").format(sql.Identifier(new)))
        connection.execute(sql.SQL("CREATE SCHEMA {}").format(sql.Identifier(new)))
        with (
            closing(SqliteCopySide(copy)) as source,
            closing(PostgresCopySide(address, PostgresDatabase, schema=new)) as target,
        ):
            copy_store(source, target, command="perdure restore", at=iso(at), progress=tell)
        if parts := parts_of(connection, str(schema)):
            search_first(connection, new)
            split_tables(connection, parts, tell)
            connection.execute("RESET search_path")
        kept = f"{schema}_before_{at:%Y%m%d_%H%M%S}"
        return _swap(connection, new, str(schema), kept)


def _swap(connection: Connection, new: str, schema: str, kept: str) -> str:
    """Move `schema`'s tables and functions that `new` has to `kept`, and `new`'s to `schema`; return `kept` or ""."""
    with connection.transaction():
        tables = {row[0] for row in connection.execute(_RELATIONS, [new])}
        old = [row[0] for row in connection.execute(_RELATIONS, [schema]) if row[0] in tables]
        if old:
            connection.execute(sql.SQL("CREATE SCHEMA {}").format(sql.Identifier(kept)))
        functions = [row[0] for row in connection.execute(_FUNCTIONS, [new])]
        names = {name.split("(")[0].rpartition(".")[2] for name in functions}
        for name in [row[0] for row in connection.execute(_FUNCTIONS, [schema])]:
            if old and name.split("(")[0].rpartition(".")[2] in names:
                _move_function(connection, name, kept)
        for name in old:
            _move_table(connection, schema, name, kept)
        for name in tables:
            _move_table(connection, new, name, schema)
        for name in functions:
            _move_function(connection, name, schema)
        connection.execute(sql.SQL("DROP SCHEMA {}").format(sql.Identifier(new)))
    return kept if old else ""


def _move_function(connection: Connection, signature: str, to_schema: str) -> None:
    """Move a function to another schema; `signature` is its quoted name with the types of its arguments."""
    statement = sql.SQL("ALTER FUNCTION {} SET SCHEMA {}")
    connection.execute(statement.format(sql.SQL(signature), sql.Identifier(to_schema)))


def _move_table(connection: Connection, from_schema: str, name: str, to_schema: str) -> None:
    connection.execute(
        sql.SQL("ALTER TABLE {}.{} SET SCHEMA {}").format(
            sql.Identifier(from_schema), sql.Identifier(name), sql.Identifier(to_schema)
        )
    )
