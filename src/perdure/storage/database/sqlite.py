"""SQLite beneath the SQL: a connection, a file of this version, and our errors for its own."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from perdure.core.errors import (
    InvalidInput,
    NotAStore,
    StoreBusy,
    StoreDamaged,
    StoreError,
    StoreFull,
    StoreReadOnly,
    StoreTooNew,
    StoreUnavailable,
)
from perdure.core.text.words import Clause
from perdure.storage.database.base import FullText, Row, iso
from perdure.storage.database.sqlite_file import is_store
from perdure.storage.database.sqlite_forms import RUN_BITS, column_lengths, numbered, runs_of, word_rows
from perdure.storage.migrations import MIGRATIONS, Migration, migrate, version_of
from perdure.storage.tx import Tx

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["Outcome", "SqliteDatabase", "connect", "damaged", "run_unit", "store_error", "too_large", "upgrade"]

APPLICATION_ID = 0x50455244  # "PERD", so that other programs and we ourselves can tell the file
BUSY_TIMEOUT_S = 5.0
LIMIT_SLACK_BYTES = 1 << 20
"""What one commit may have had to write beyond a file's size, where the size is limited."""

FAULTS_MAX = 20
"""So many that `integrity` tells: where there is one, the file can't be trusted."""

READER_CACHE_KB = 8_000
"""Of each reader; SQLite's own 2,000 leave a search in 100,000 texts to read 280 pages anew, which takes 0.7 ms."""

Outcome = tuple[Any, BaseException | None]
"""What a unit of work gave, or what it raised."""


class SqliteDatabase:
    """One connection, as `Tx` needs it."""

    clustered = "WITHOUT ROWID"
    blob = "BLOB"
    row_key = "INTEGER"
    of_conversation = " INDEXED BY messages_by_conversation"  # it keeps no statistics, and guesses wrong
    for_update = ""  # a write transaction has the whole file to itself

    def __init__(self, connection: sqlite3.Connection, *, read_only: bool = False) -> None:
        self._cursor = connection.cursor()  # one for all statements: each has given all its rows before the next
        self.read_only, self.queued = read_only, 0
        self.touched: set[int] = set()
        self.embedding: str | None = None

    def begin(self) -> None:
        """Begin to write; nobody else does until the transaction ends."""
        self._cursor.execute("BEGIN IMMEDIATE")
        self.touched.clear()

    def commit(self) -> None:
        self._cursor.execute("COMMIT")

    def is_settled(self, number: int) -> bool:
        return number not in self.touched

    # Numbers in the statement itself would make each statement a new one to parse and to keep.
    def among(self, column: str, name: str, values: Sequence[int]) -> tuple[str, dict[str, Any]]:
        return f"{column} IN (SELECT value FROM json_each(:{name}))", {name: f"[{','.join(map(str, values))}]"}

    # Going on to the next row takes a fifth of looking for one; but a run ends with a row that is not wanted.
    def picked(self, table: str, column: str, name: str, values: Sequence[int]) -> tuple[str, str, dict[str, Any]]:
        runs = runs_of(values)
        if 4 * len(runs) > 3 * len(values):
            return (
                f"(SELECT value AS one FROM json_each(:{name})) CROSS JOIN {table}",
                f"{column} = one",
                {name: f"[{','.join(map(str, sorted(set(values))))}]"},
            )
        return (
            f"(SELECT value AS run FROM json_each(:{name})) CROSS JOIN {table}",
            f"{column} BETWEEN run >> {RUN_BITS} AND (run >> {RUN_BITS}) + (run & {(1 << RUN_BITS) - 1})",
            {name: f"[{','.join(map(str, runs))}]"},
        )

    def rows(self, sql: str, params: Mapping[str, Any]) -> Sequence[Row]:
        statement, values = numbered(sql)
        return self._cursor.execute(statement, values(params)).fetchall()

    # One text with all of them takes half as long as a row for each, and numpy reads it in a fifth of Python's time.
    def numbers(self, sql: str, params: Mapping[str, Any]) -> NDArray[np.int64]:
        import numpy as np

        joined = self.rows(f"SELECT group_concat(number) FROM ({sql})", params)[0][0]
        return np.fromstring(joined, np.int64, sep=",") if joined else np.zeros(0, np.int64)

    # A table is read in the order of its key, and what is read is joined in that order.
    def joined(self, column: str, by: str = "") -> str:
        return f"group_concat({column})"

    # Bytes become text and bytes again as they are: no encoding is looked at or changed.
    def joined_bytes(self, column: str, by: str) -> str:
        return f"CAST(group_concat({column}, '') AS BLOB)"

    def run(self, sql: str, params: Mapping[str, Any]) -> int:
        statement, values = numbered(sql)
        return self._cursor.execute(statement, values(params)).rowcount

    def run_many(self, sql: str, params: Sequence[Mapping[str, Any]]) -> None:
        statement, values = numbered(sql)
        self._cursor.executemany(statement, map(values, params))

    # SQLite keeps what RETURNING gives in a table of its own, made anew each time: two statements take half as long.
    def update(
        self, table: str, change: str, where: str, params: Mapping[str, Any], *, returning: str
    ) -> Sequence[Row]:
        changed = self.run(f"UPDATE {table} SET {change} WHERE {where}", params)
        return self.rows(f"SELECT {returning} FROM {table} WHERE {where}", params) if changed else ()

    # The index keeps no copy of the text (`content=''`). Its row number packs scope and sequence number: a scope is a
    # range of rows, which the index goes to at once. A token that all of them hold would have to be stepped through for
    # every word: 33 ms instead of 4 for a question to 100,000 rows.
    def full_text_table(self, table: str) -> None:
        self.run(f"CREATE VIRTUAL TABLE {table} USING fts5 (scope, words, content='', tokenize='ascii')", {})

    def index_words(self, table: str, number: int, rows: Sequence[tuple[int, str, str]]) -> None:
        self.run_many(
            f"INSERT INTO {table} (rowid, scope, words) VALUES (:rowid, :scope, :words)", word_rows(number, rows)
        )

    def unindex_words(self, table: str, number: int, rows: Sequence[tuple[int, str, str]]) -> None:
        self.run_many(
            f"INSERT INTO {table} ({table}, rowid, scope, words) VALUES ('delete', :rowid, :scope, :words)",
            word_rows(number, rows),
        )

    mends_words = False

    # The only thing that is kept of each row: how many words its two columns have, as variable-length integers.
    def indexed(self, table: str, number: int, first: int, last: int) -> dict[int, Any]:
        rows = self.rows(
            f"SELECT id & 4294967295, sz FROM {table}_docsize WHERE id BETWEEN :first AND :last",
            {"first": (number << 32) + first, "last": (number << 32) + last},
        )
        return {row[0]: column_lengths(row[1]) for row in rows}

    def index_mark(self, number: int, label: str, words: str) -> Any:
        return [1 + len(label.split()), len(words.split())]

    def integrity(self) -> Sequence[str]:
        rows = self.rows(f"PRAGMA integrity_check({FAULTS_MAX})", {})
        return [row[0] for row in rows if row[0] != "ok"]

    def full_text(
        self,
        table: str,
        number: int,
        clauses: Sequence[Clause],
        labels: Sequence[str],
        *,
        all_labels: bool = False,
        below: int | None = None,
    ) -> FullText:
        words = " AND ".join(
            'words : "' + " ".join(clause.tokens) + '"' + (" *" if clause.prefix else "") for clause in clauses
        )
        labelled = f" AND scope : ({(' AND ' if all_labels else ' OR ').join(labels)})" if labels else ""
        first = number << 32
        return FullText(
            source=f"{table} AS w",
            key="(w.rowid & 4294967295)",
            where=f"{table} MATCH :w_match AND w.rowid BETWEEN :w_first AND :w_last",
            order="w.rowid",
            params={
                "w_match": words + labelled,
                "w_first": first,
                "w_last": first + (1 << 32 if below is None else below) - 1,
            },
        )


def connect(path: Path, *, read_only: bool = False) -> sqlite3.Connection:
    """A connection in autocommit mode; transactions are begun by name.

    Raises: StoreReadOnly, NotAStore, StoreError.
    """
    try:
        connection = sqlite3.connect(
            path, timeout=BUSY_TIMEOUT_S, isolation_level=None, check_same_thread=False, cached_statements=512
        )
    except sqlite3.Error as error:
        raise store_error(error, path) from error
    try:
        connection.execute("PRAGMA foreign_keys = ON")
        connection.execute("PRAGMA synchronous = FULL")
        if read_only:
            connection.execute("PRAGMA query_only = ON")
            connection.execute(f"PRAGMA cache_size = -{READER_CACHE_KB}")
    except sqlite3.Error as error:
        connection.close()
        raise store_error(error, path) from error
    return connection


def upgrade(
    connection: sqlite3.Connection, path: Path, migrations: Sequence[Migration] = MIGRATIONS, *, at: datetime
) -> None:
    """Create the tables of a new file, or migrate an older one, in one transaction.

    Raises: StoreTooNew: a newer Perdure wrote it; NotAStore: it is something else; StoreDamaged. None is touched.
    """
    try:
        connection.execute("BEGIN")  # one snapshot: another process may be making the tables just now
        application = connection.execute("PRAGMA application_id").fetchone()[0]
        tables = connection.execute("SELECT COUNT(*) FROM sqlite_master").fetchone()[0]
        connection.execute("COMMIT")
        if application == APPLICATION_ID and not tables:
            raise damaged(path, "its tables are gone")
        if application != APPLICATION_ID and (tables or application):
            if is_store(path):
                raise damaged(path, f"its application id is {application:#x}, not {APPLICATION_ID:#x}")
            raise NotAStore(f"{path} is an SQLite file of another program: choose another path")
        if tables:
            found = connection.execute("SELECT MAX(number) FROM schema_migrations").fetchone()[0] or 0
            known = version_of(migrations)
            if found > known:
                raise StoreTooNew(str(path), found=found, known=known)
            if found == known:
                if connection.execute("PRAGMA journal_mode").fetchone()[0] != "wal":  # a copy made by VACUUM INTO
                    _use_wal(connection)
                _check_writable(connection)
                return
        _use_wal(connection)
        connection.execute("BEGIN IMMEDIATE")
        try:
            # A second process may have waited here while the first one migrated; then there is nothing left to do.
            migrate(SqliteDatabase(connection), migrations, at=iso(at))
            connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise
    except sqlite3.Error as error:
        raise store_error(error, path) from error


def _use_wal(connection: sqlite3.Connection) -> None:
    """SQLite itself does not wait here: while another process opens the same new file, it says `locked` at once."""
    deadline = time.monotonic() + BUSY_TIMEOUT_S
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as error:
            if error.sqlite_errorname != "SQLITE_BUSY" or time.monotonic() > deadline:
                raise
            time.sleep(0.01)


def _check_writable(connection: sqlite3.Connection) -> None:
    """Raises: OperationalError: the file is read-only. Its connection stays so, also when the disk is well again."""
    waits = connection.execute("PRAGMA busy_timeout").fetchone()[0]
    connection.execute("PRAGMA busy_timeout = 0")
    try:
        connection.execute("BEGIN")  # an immediate one succeeds on a read-only file
        connection.execute("UPDATE counters SET value = value WHERE name = ''")
    except sqlite3.OperationalError as error:
        if not error.sqlite_errorname.startswith("SQLITE_BUSY"):  # who is busy writing can write
            raise
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        connection.execute(f"PRAGMA busy_timeout = {int(waits)}")


def store_error(error: sqlite3.Error, path: Path) -> StoreError:
    """Our error for one of SQLite's."""
    name = getattr(error, "sqlite_errorname", None) or ""
    text = str(error)
    if name.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
        return StoreBusy(f"{path} was locked by another process for more than {BUSY_TIMEOUT_S:.0f} s: try again")
    # SHMSIZE: the small file beside the store that its processes share can't grow, as at a start on a full disk.
    if name.startswith(("SQLITE_FULL", "SQLITE_IOERR_SHMSIZE")):
        return StoreFull(f"no space left for {path}: free some, then send again; nothing of this was written")
    if name.startswith("SQLITE_READONLY"):
        return StoreReadOnly(f"{path} can't be written: check its permissions, or choose another folder (PERDURE_HOME)")
    if name.startswith("SQLITE_CANTOPEN"):
        return StoreReadOnly(f"{path} can't be opened: check that its folder exists and can be written (PERDURE_HOME)")
    if name.startswith("SQLITE_NOTADB") or "not a database" in text:
        if is_store(path):
            return damaged(path, "its header is gone")
        return NotAStore(f"{path} is not a Perdure store: choose another path")
    if text.startswith("Could not decode to UTF-8"):  # what follows quotes the text
        return damaged(path, "a text in it is not UTF-8")
    if name.startswith(("SQLITE_CORRUPT", "SQLITE_IOERR_CORRUPTFS", "SQLITE_IOERR_SHORT_READ")):
        return damaged(path, text)
    if name.startswith("SQLITE_IOERR"):
        return _disk_failed(path, name)
    return StoreError(f"{path}: {text}" + (f" ({name})" if name else ""))


def damaged(path: Path, what: str) -> StoreDamaged:
    return StoreDamaged(
        f"{path} is damaged ({what}): restore a backup, or recover what is there with `sqlite3 .recover`;"
        " `perdure verify` tells what is damaged"
    )


def _disk_failed(path: Path, name: str) -> StoreError:
    """SQLite tells a file-size limit, a quota and a broken disk by one name."""
    limit = _file_size_limit()
    sizes = [file.stat().st_size for file in (path, path.with_name(f"{path.name}-wal")) if file.exists()]
    if limit is not None and max(sizes, default=0) + LIMIT_SLACK_BYTES > limit:
        return StoreFull(
            f"{path} has reached the file-size limit of this process, {limit:,} bytes: raise it (ulimit -f), or delete"
            " what is not needed, then send again; nothing of this was written"
        )
    return StoreUnavailable(
        f"the disk of {path} failed ({name}): look at the system's log, and whether a quota is used up; nothing of this"
        " was written"
    )


def _file_size_limit() -> int | None:
    try:
        import resource
    except ImportError:  # Windows has none
        return None
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)[0]
    return None if limit == resource.RLIM_INFINITY else limit


def run_unit(connection: sqlite3.Connection, tx: Tx, unit: Callable[[Tx], Any], path: Path) -> Outcome:
    """The result of one unit of the open transaction. Its failure is undone, and its neighbours stay.

    Raises: sqlite3.Error: all of the transaction failed.
    """
    connection.execute("SAVEPOINT unit")
    try:
        result = unit(tx)
    except BaseException as error:
        # SQLite itself rolls everything back on a full disk or an input/output error: then all units failed.
        if not connection.in_transaction:
            raise
        connection.execute("ROLLBACK TO unit")
        connection.execute("RELEASE unit")
        if isinstance(error, OverflowError):
            return None, too_large(error)
        return None, store_error(error, path) if isinstance(error, sqlite3.Error) else error
    connection.execute("RELEASE unit")
    return result, None


def too_large(error: OverflowError) -> InvalidInput:
    """Python's numbers have no end, a column holds 64 bits."""
    refused = InvalidInput("a number is too large for the database")
    refused.__cause__ = error
    return refused
