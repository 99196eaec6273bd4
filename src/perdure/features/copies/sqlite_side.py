"""A SQLite file as a side of a copy."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from perdure.features.copies.shapes import TableShape
from perdure.storage.database.base import Database
from perdure.storage.database.row_format import Row
from perdure.storage.database.sqlite_errors import store_error
from perdure.storage.stores.sqlite import SqliteDatabase, connect, prepare_new

FETCH = 200


def connect_unchanged(path: Path) -> sqlite3.Connection:
    """A connection that writes neither the file nor beside it, unless its log has entries. Raises: StoreError."""
    log = path.with_name(f"{path.name}-wal")
    is_settled = not log.exists() or not log.stat().st_size
    try:
        # Without `immutable` SQLite would make a log beside a file in WAL mode.
        uri = f"{path.absolute().as_uri()}?mode=ro{'&immutable=1' if is_settled else ''}"
        return sqlite3.connect(uri, uri=True, isolation_level=None, check_same_thread=False)
    except sqlite3.Error as error:
        raise store_error(error, path) from error


class SqliteCopySide:
    """A SQLite file as a `CopySide`. `new`: an empty file that becomes a store; `unchanged`: it is only read."""

    def __init__(self, path: Path, *, new: bool = False, unchanged: bool = False) -> None:
        self._path, self.place = path, str(path)
        self._connection = connect_unchanged(path) if unchanged else connect(path)
        self.db: Database = SqliteDatabase(self._connection)
        if new:
            with self._errors():
                prepare_new(self._connection)

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise store_error(error, self._path) from error

    def shapes(self) -> Mapping[str, TableShape]:
        """Return the columns and keys of all tables, without those of full-text indexes."""
        with self._errors():
            tables = self._connection.execute("SELECT name, sql FROM sqlite_master WHERE type = 'table'").fetchall()
            # Tables of full-text indexes, and those in which SQLite keeps their parts: `words`, `words_data`, ...
            virtual = [name for name, sql in tables if sql.startswith("CREATE VIRTUAL")]
            parts = ("sqlite_", *(f"{name}_" for name in virtual))
            return {name: self._shape(name) for name, _ in tables if name not in virtual and not name.startswith(parts)}

    def _shape(self, name: str) -> TableShape:
        """Return the columns and the key of a table."""
        columns = self._connection.execute(f'PRAGMA table_info("{name}")').fetchall()
        key = sorted((row[5], row[1]) for row in columns if row[5])
        return TableShape(name, [row[1] for row in columns], [column for _, column in key])

    @contextmanager
    def snapshot(self, *, lock: bool) -> Iterator[None]:
        with self._errors():
            self._connection.execute("BEGIN IMMEDIATE" if lock else "BEGIN")
            try:
                self._connection.execute("SELECT COUNT(*) FROM sqlite_master").fetchone()  # the snapshot begins here
                yield
            finally:
                self._connection.execute("ROLLBACK")

    @contextmanager
    def change(self) -> Iterator[None]:
        with self._errors():
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield
                self._connection.execute("COMMIT")
            finally:
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")

    def rows(self, shape: TableShape, after: Sequence[Any] | None = None) -> Iterator[Row]:
        key = _names(shape.key)
        behind = "" if after is None else f" WHERE ({key}) > ({', '.join('?' * len(shape.key))})"
        sql = f'SELECT {_names(shape.columns)} FROM "{shape.name}"{behind} ORDER BY {key}'
        with self._errors():
            cursor = self._connection.execute(sql, after or ())
            while rows := cursor.fetchmany(FETCH):
                yield from rows

    def insert(self, shape: TableShape, rows: Sequence[Row]) -> None:
        values = ", ".join("?" * len(shape.columns))
        self._connection.executemany(f'INSERT INTO "{shape.name}" ({_names(shape.columns)}) VALUES ({values})', rows)

    def finish(self) -> None:
        with self._errors():
            self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def close(self) -> None:
        self._connection.close()


def _names(columns: Sequence[str]) -> str:
    return ", ".join(f'"{column}"' for column in columns)
