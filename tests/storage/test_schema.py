"""A new store is made from `schema.sql`, which says what all migrations make."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing

import psycopg
import pytest

from perdure.storage.database.base import Database
from perdure.storage.database.postgres_database import PostgresDatabase
from perdure.storage.database.row_format import iso
from perdure.storage.migrations import MIGRATIONS, RECORD, migrate, run_steps
from perdure.storage.stores.sqlite import SqliteDatabase
from perdure.testing.clock import START
from scripts.write_schema import build_schemas
from tests.support.postgres_server import address_of_a_new_schema, run_sql

pytestmark = pytest.mark.migrates

AT = iso(START)


def by_steps(db: Database) -> None:
    """Make the tables by every migration in turn, as they were made over time."""
    db.run(RECORD, {})
    run_steps(db, MIGRATIONS, at=AT)
    db.run("UPDATE schema_migrations SET least = number", {})


def at_once(db: Database) -> None:
    """Make the tables of a new store."""
    migrate(db, at=AT)
    db.run("UPDATE schema_migrations SET least = number", {})


def sqlite_content(make: Callable[[Database], None]) -> dict[str, object]:
    """Table or index -> its columns, its statement without spaces, its rows."""
    with closing(sqlite3.connect(":memory:")) as connection:
        make(SqliteDatabase(connection))
        found: dict[str, object] = {}
        for kind, name, sql in connection.execute("SELECT type, name, sql FROM sqlite_master"):
            columns = connection.execute(f"PRAGMA table_xinfo({name})").fetchall()
            rows = (
                connection.execute(f"SELECT * FROM {name}").fetchall()
                if kind == "table" and "_words" not in name
                else []
            )
            found[name] = (kind, columns, "".join((sql or "").split()), rows)
        return found


def test_the_file_is_what_the_migrations_make() -> None:
    """Whoever adds a migration runs `python -m scripts.write_schema`."""
    schemas = build_schemas()

    assert {file: file.read_text(encoding="utf-8") for file in schemas} == schemas


def test_a_new_sqlite_store_is_that_of_all_migrations() -> None:
    """Tables, columns, indexes and first rows are equal."""
    steps, whole = sqlite_content(by_steps), sqlite_content(at_once)

    assert steps.keys() == whole.keys()
    for name, content in steps.items():
        assert whole[name] == content


COLUMNS = """
    SELECT table_name, column_name, ordinal_position, data_type, is_nullable, column_default
    FROM information_schema.columns WHERE table_schema = current_schema() ORDER BY 1, 3
"""
INDEXES = """
    SELECT tablename, indexname, replace(indexdef, quote_ident(schemaname) || '.', '') FROM pg_indexes
    WHERE schemaname = current_schema() ORDER BY 1, 2
"""
CONSTRAINTS = """
    SELECT c.conrelid::regclass::text, c.conname, pg_get_constraintdef(c.oid) FROM pg_constraint c
    WHERE c.connamespace = quote_ident(current_schema())::regnamespace ORDER BY 1, 2
"""
ROWS = (
    "SELECT * FROM schema_migrations ORDER BY 1",
    "SELECT * FROM counters ORDER BY 1",
    "SELECT * FROM organisations",
)


def postgres_content(make: Callable[[Database], None]) -> list[list[tuple[object, ...]]]:
    """The columns, indexes, constraints and first rows of a new PostgreSQL store."""
    address = address_of_a_new_schema()
    with psycopg.connect(address) as connection:
        make(PostgresDatabase(connection))
    return [run_sql(address, sql) for sql in (COLUMNS, INDEXES, CONSTRAINTS, *ROWS)]


def test_a_new_postgres_store_is_that_of_all_migrations() -> None:
    """Tables, columns, indexes, constraints and first rows are equal."""
    for steps, whole in zip(postgres_content(by_steps), postgres_content(at_once), strict=True):
        assert steps == whole
