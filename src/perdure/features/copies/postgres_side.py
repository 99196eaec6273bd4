"""A PostgreSQL database as a side of a copy."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import psycopg
from psycopg import sql

from perdure.core.errors import StoreBusy
from perdure.core.incoming.addresses import without_password
from perdure.features.copies.shapes import OF_THE_FILE, TableShape
from perdure.storage.database.base import Database
from perdure.storage.database.postgres_errors import check_address, store_error
from perdure.storage.database.row_format import Row

FETCH = 200
LOCK_WAIT_S = 5
_TABLES = """
    SELECT c.relname, a.attname, array_position(i.indkey::int[], a.attnum::int)
    FROM pg_class c
    JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
    LEFT JOIN pg_index i ON i.indrelid = c.oid AND i.indisprimary
    WHERE c.relnamespace = quote_ident(current_schema())::regnamespace AND c.relkind IN ('r', 'p')
    AND NOT c.relispartition
    ORDER BY c.relname, a.attnum
"""


class PostgresCopySide:
    """A database on PostgreSQL as a `CopySide` of a copy: its tables are in `schema`, else in the first schema of
    the `search_path` of the address. `database` makes what runs SQL of the store on a connection."""

    def __init__(
        self, address: str, database: Callable[[psycopg.Connection[tuple[Any, ...]]], Database], *, schema: str = ""
    ) -> None:
        check_address(address)
        self.place = without_password(address)
        with self._errors():
            self._connection = psycopg.connect(address, connect_timeout=10, autocommit=True)
            if schema:
                search_first(self._connection, schema)
        self.db = database(self._connection)

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """Raise psycopg's errors as a `StoreError`; a lock that is not got is a `StoreBusy`."""
        try:
            yield
        except psycopg.errors.LockNotAvailable as error:
            raise StoreBusy(
                f"somebody writes to {self.place}: stop the processes that use it, then try again"
            ) from error
        except psycopg.Error as error:
            raise store_error(error) from error

    def shapes(self) -> Mapping[str, TableShape]:
        """Return the columns and keys of all tables."""
        found: dict[str, dict[str, int | None]] = {}  # table -> column -> its place in the primary key, None: not in it
        with self._errors():
            for table, column, place in self._connection.execute(_TABLES):
                found.setdefault(table, {})[column] = place
        shapes = {}
        for table, columns in found.items():
            key = sorted((place, column) for column, place in columns.items() if place is not None)
            shapes[table] = TableShape(table, list(columns), [column for _, column in key])
        return shapes

    @contextmanager
    def snapshot(self, *, lock: bool) -> Iterator[None]:
        tables = [name for name in self.shapes() if name not in OF_THE_FILE] if lock else []
        with self._errors():
            self._connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
            try:
                if tables:  # before anything is read, so that the snapshot is of a moment behind all others' commits
                    self._connection.execute(f"SET LOCAL lock_timeout = '{LOCK_WAIT_S}s'".encode())
                    names = sql.SQL(", ").join(map(sql.Identifier, tables))
                    self._connection.execute(sql.SQL("LOCK TABLE {} IN SHARE MODE").format(names))
                yield
            finally:
                self._roll_back()

    @contextmanager
    def change(self) -> Iterator[None]:
        with self._errors():
            self._connection.execute("BEGIN")
            try:
                yield
            except BaseException:
                self._roll_back()
                raise
            self._connection.execute("COMMIT")

    def _roll_back(self) -> None:
        if not self._connection.closed:
            self._connection.execute("ROLLBACK")

    def rows(self, shape: TableShape, after: Sequence[Any] | None = None) -> Iterator[Row]:
        key = _names(shape.key)
        select = sql.SQL("SELECT {} FROM {}").format(_names(shape.columns), sql.Identifier(shape.name))
        if after is not None:
            values = sql.SQL(", ").join(map(sql.Literal, after))
            select = sql.SQL("{} WHERE ({}) > ({})").format(select, key, values)
        with self._errors(), self._connection.cursor(name="perdure_copy", withhold=False) as cursor:
            cursor.itersize = FETCH
            cursor.execute(sql.SQL("{} ORDER BY {}").format(select, key))
            yield from cursor

    def insert(self, shape: TableShape, rows: Sequence[Row]) -> None:
        """Write rows by COPY."""
        into = sql.SQL("COPY {} ({}) FROM STDIN").format(sql.Identifier(shape.name), _names(shape.columns))
        with self._connection.cursor() as cursor, cursor.copy(into) as copy:
            for row in rows:
                copy.write_row(row)

    def finish(self) -> None:
        with self._errors():
            self._connection.execute("ANALYZE")

    def close(self) -> None:
        self._connection.close()


def search_first(connection: psycopg.Connection[tuple[Any, ...]], schema: str) -> None:
    """Put a schema first in a connection's `search_path`, before those where types are found. Raises: psycopg.Error."""
    connection.execute(
        "SELECT set_config('search_path', quote_ident(%s) || ', ' || current_setting('search_path'), false)", [schema]
    )


def _names(columns: Sequence[str]) -> sql.Composed:
    return sql.SQL(", ").join(map(sql.Identifier, columns))
