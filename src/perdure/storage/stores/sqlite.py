"""SQLite beneath the SQL: a connection, and a file of this version."""

from __future__ import annotations

import contextlib
import functools
import operator
import os
import re
import sqlite3
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from perdure.core.errors import InvalidInput, NotAStore, StoreBusy
from perdure.core.text.words import Clause
from perdure.storage.database.base import FullText, WordRows
from perdure.storage.database.row_format import Row, iso
from perdure.storage.database.sqlite_errors import BUSY_TIMEOUT_S, SQLITE_ERRORS, damaged, store_error, too_large
from perdure.storage.database.sqlite_file import is_store, tables_with_broken_text
from perdure.storage.migrations import MIGRATIONS, Migration, is_current, migrate

APPLICATION_ID = 0x50455244  # "PERD", so that other programs and we ourselves can tell the file
BACKUP_PAGES = 1_000
"""How much of a backup is copied between two reports of its progress: 4 MB."""

FAULTS_MAX = 20
"""The number of faults that `integrity` returns; any fault means that the file can't be trusted."""

MERGE_PAGES = 500
"""How many pages of a full-text index one transaction merges."""
SCRUB_TRIES = 5

READER_CACHE_KB = 8_000
"""The page cache of each reader. With SQLite's default of 2,000 a search in 100,000 texts reads 280 pages again."""

_PARAMETER = re.compile(r"(?<!:):([a-z_]\w*)")

Outcome = tuple[Any, BaseException | None]
"""The result of a unit of work, and its error."""


class SqliteDatabase:
    """One connection, as `Tx` needs it."""

    clustered = "WITHOUT ROWID"
    blob = "BLOB"
    row_key = "INTEGER"
    has_wide = "GLOB '*[０-ｚ]*'"
    for_update = ""  # a write transaction has the whole file to itself

    def __init__(self, connection: sqlite3.Connection, *, read_only: bool = False) -> None:
        self._cursor = connection.cursor()  # one cursor for all statements: each result is fetched whole
        self.read_only, self.queued_texts = read_only, 0
        self.changed_scopes: set[int] = set()
        self.embedding: str | None = None

    def begin(self) -> None:
        """Begin a write transaction; other writers wait until it ends."""
        self._cursor.execute("BEGIN IMMEDIATE")
        self.changed_scopes.clear()

    def signal(self, topic: str) -> None:
        """Do nothing: other processes look by themselves."""

    def is_settled(self, number: int) -> bool:
        """Whether what this transaction reads of a scope's vectors is committed and of one moment."""
        return number not in self.changed_scopes  # a transaction sees no later commits of others

    def lock(self, table: str, id_: str) -> None:
        """Do nothing: a write transaction has the whole file to itself."""

    def by_index(self, name: str) -> str:
        return f" INDEXED BY {name}"  # without statistics it would choose a worse one

    def on_conflict(self, table: str, column: str) -> str:
        return f"ON CONFLICT ({column})"

    # Numbers in the text would make every statement a new one to parse and cache.
    def in_numbers(self, column: str, name: str, values: Sequence[int]) -> tuple[str, dict[str, Any]]:
        """Return the condition that a column is one of many numbers, and its parameter."""
        return f"{column} IN (SELECT value FROM json_each(:{name}))", {name: f"[{','.join(map(str, values))}]"}

    def rows(self, sql: str, params: Mapping[str, Any]) -> Sequence[Row]:
        statement, values = _positional(sql)
        return self._cursor.execute(statement, values(params)).fetchall()

    rows_of_bytes = rows

    # SQLite reads a table in the order of its key, and concatenates in the order of reading.
    def concat(self, column: str, by: str = "") -> str:
        return f"group_concat({column})"

    # The casts between bytes and text change no byte.
    def concat_bytes(self, column: str, by: str) -> str:
        return f"CAST(group_concat({column}, '') AS BLOB)"

    def run(self, sql: str, params: Mapping[str, Any]) -> None:
        statement, values = _positional(sql)
        self._cursor.execute(statement, values(params))

    def run_counted(self, sql: str, params: Mapping[str, Any]) -> int:
        statement, values = _positional(sql)
        return self._cursor.execute(statement, values(params)).rowcount

    def run_many(self, sql: str, params: Sequence[Mapping[str, Any]]) -> None:
        statement, values = _positional(sql)
        self._cursor.executemany(statement, map(values, params))

    # The index keeps no copy of the text (`content=''`). Its row id packs scope and sequence number, so a scope is a
    # range of rows that SQLite seeks to. A token for the scope would have to be intersected with every word: 33 ms
    # instead of 4 for a query of 100,000 rows.
    def full_text_table(self, table: str) -> None:
        self.run(f"CREATE VIRTUAL TABLE {table} USING fts5 (scope, words, content='', tokenize='ascii')", {})

    def index_words(self, table: str, number: int, rows: Sequence[tuple[int, str, str]]) -> None:
        """Add the words of texts to a full-text index."""
        self.run_many(
            f"INSERT INTO {table} (rowid, scope, words) VALUES (:rowid, :scope, :words)", _word_rows(number, rows)
        )

    def unindex_words(self, table: str, number: int, rows: Sequence[tuple[int, str, str]]) -> None:
        """Remove texts from a full-text index, which needs their words."""
        self.run_many(
            f"INSERT INTO {table} ({table}, rowid, scope, words) VALUES ('delete', :rowid, :scope, :words)",
            _word_rows(number, rows),
        )

    # A removed row stays in FTS5's segments until they are merged into one. A negative number begins that.
    def merge_words(self, table: str, *, begin: bool) -> bool:
        """Merge a part of the index, to drop removed words; return whether more is left."""
        before = self._cursor.connection.total_changes
        pages = -MERGE_PAGES if begin else MERGE_PAGES
        self.run(f"INSERT INTO {table} ({table}, rank) VALUES ('merge', :pages)", {"pages": pages})
        return self._cursor.connection.total_changes - before >= 2

    removes_by_number = False

    # FTS5 keeps only the number of words of each row's two columns, as variable-length integers.
    def index_marks(self, table: str, number: int, first: int, last: int) -> dict[int, Any]:
        """Return number of a text -> the fingerprint of its index row."""
        rows = self.rows(
            f"SELECT id & 4294967295, sz FROM {table}_docsize WHERE id BETWEEN :first AND :last",
            {"first": (number << 32) + first, "last": (number << 32) + last},
        )
        return {row[0]: _column_lengths(row[1]) for row in rows}

    def index_mark(self, number: int, label: str, words: str) -> Any:
        """Return the fingerprint that the index row of a text should have."""
        return [1 + len(label.split()), len(words.split())]

    def integrity(self) -> Sequence[str]:
        """Return the faults that SQLite finds in the file."""
        rows = self.rows(f"PRAGMA integrity_check({FAULTS_MAX})", {})
        faults = [row[0] for row in rows if row[0] != "ok"]
        return faults or tables_with_broken_text(self._cursor.connection)  # it may be unable to read a damaged table

    def full_text(self, rows: WordRows, clauses: Sequence[Clause]) -> FullText:
        either = '" OR "'  # between the phrases of which a row with the clause holds one
        words = " AND ".join(
            f'words : ("{(either if clause.either else " ").join(clause.tokens)}"{" *" if clause.prefix else ""})'
            for clause in clauses
        )
        either = " AND " if rows.all_labels else " OR "
        labelled = f" AND scope : ({either.join(rows.labels)})" if rows.labels else ""
        first = rows.number << 32
        return FullText(
            source=f"{rows.table} AS w",
            key="(w.rowid & 4294967295)",
            where=f"{rows.table} MATCH :w_match AND w.rowid BETWEEN :w_first AND :w_last",
            order="w.rowid",
            params={
                "w_match": words + labelled,
                "w_first": first,
                "w_last": first + (1 << 32 if rows.below is None else rows.below) - 1,
            },
        )


@functools.lru_cache(maxsize=1024)
def _positional(sql: str) -> tuple[str, Callable[[Mapping[str, Any]], Sequence[Any]]]:
    """The statement with `?1`, `?2`, ... for its names, and a function that returns their values in order. `sqlite3`
    looks each name up at every execution, and releases the interpreter lock each time."""
    names = list(dict.fromkeys(_PARAMETER.findall(sql)))
    statement = _PARAMETER.sub(lambda match: f"?{names.index(match[1]) + 1}", sql)
    match names:
        case []:
            return statement, lambda params: ()
        case [name]:
            return statement, lambda params: (params[name],)
        case _:
            return statement, operator.itemgetter(*names)


def _word_rows(number: int, rows: Sequence[tuple[int, str, str]]) -> list[dict[str, Any]]:
    """The parameters that write rows (sequence number, labels, words) of scope `number` to the full-text index."""
    return [
        {"rowid": number << 32 | seq, "scope": f"s{number} {label}".rstrip(), "words": words}
        for seq, label, words in rows
    ]


def _column_lengths(sizes: bytes) -> list[int]:
    """Decode FTS5's column `sz`: integers of seven bits per byte, highest first, all but the last with the top bit."""
    lengths, number = [], 0
    for byte in sizes:
        number = number << 7 | byte & 0x7F
        if byte < 0x80:
            lengths.append(number)
            number = 0
    return lengths


def connect(path: Path, *, read_only: bool = False) -> sqlite3.Connection:
    """Open a file in autocommit mode; `BEGIN` starts a transaction. Raises: StoreReadOnly, NotAStore, StoreError."""
    try:
        connection = sqlite3.connect(
            path, timeout=BUSY_TIMEOUT_S, isolation_level=None, check_same_thread=False, cached_statements=512
        )
    except SQLITE_ERRORS as error:
        raise store_error(error, path) from error
    try:
        connection.create_function("lower", 1, _lower, deterministic=True)  # its own knows ASCII only
        connection.execute("PRAGMA foreign_keys = ON")
        connection.execute("PRAGMA synchronous = FULL")
        if read_only:
            connection.execute("PRAGMA query_only = ON")
            connection.execute(f"PRAGMA cache_size = -{READER_CACHE_KB}")
    except SQLITE_ERRORS as error:
        connection.close()
        raise store_error(error, path) from error
    return connection


def _lower(value: object) -> str | None:
    """Return a text in lower case as PostgreSQL does it, for SQL."""
    # As PostgreSQL does it, each letter by itself: Python knows two of "Σ", and makes two of "İ".
    return None if value is None else str(value).replace("Σ", "σ").replace("İ", "i").lower()


def scrub(connection: sqlite3.Connection, path: Path) -> None:
    """Rewrite the file without free space, and empty its log, so that nothing removed can be found in either.

    Raises: StoreBusy: another process reads or writes at all times; StoreFull: no room for a second file; StoreError.
    """
    try:
        # `secure_delete` clears only what is deleted from then on, not what lies in free space from before; and
        # `incremental_vacuum` moves pages with the free space in them. 500 MB take 30 s on two slow, busy cores.
        connection.execute("VACUUM")
        for _ in range(SCRUB_TRIES):
            is_busy, _, _ = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
            if not is_busy:
                return
    except SQLITE_ERRORS as error:
        raise store_error(error, path) from error
    raise StoreBusy(f"the log of {path} can't be emptied while another process reads it: end that, then try again")


def backup(source: sqlite3.Connection, path: Path, progress: Callable[[int, int], None]) -> None:
    """Copy the database of a connection, which no other thread uses meanwhile, to a new file. `progress` takes how many
    pages are copied, and how many there are; its own error ends the copy. Raises: InvalidInput: the file exists;
    StoreError. On an error there is no file."""
    make_new_file(path)
    try:
        with contextlib.closing(sqlite3.connect(path)) as target:
            # One snapshot for all steps: SQLite begins a copy again when another connection writes between two of them.
            source.execute("BEGIN")
            try:
                source.execute("SELECT COUNT(*) FROM sqlite_master").fetchone()
                source.backup(
                    target, pages=BACKUP_PAGES, progress=lambda _, left, total: progress(total - left, total), sleep=0
                )
            finally:
                source.execute("COMMIT")
    except BaseException as error:
        remove_files(path)
        if isinstance(error, sqlite3.Error):
            raise store_error(error, path) from error
        raise


def make_new_file(path: Path) -> None:
    """Make an empty file, private to the user. Raises: InvalidInput: it exists, or can't be made."""
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))  # private to the user
    except FileExistsError as error:
        raise InvalidInput(f"{path} exists: name a new file") from error
    except OSError as error:
        raise InvalidInput(f"{path} can't be written ({error.strerror}): name a file of a folder of yours") from error


def remove_files(path: Path) -> None:
    """Remove a store's file with the log and the other files beside it."""
    for suffix in ("", "-wal", "-shm", "-journal", "-mark"):
        path.with_name(f"{path.name}{suffix}").unlink(missing_ok=True)


def scrub_progress(path: Path) -> tuple[int, int]:
    """(MB that `scrub` has written to the log, MB of the file). Its copy before that is not counted."""
    total = path.stat().st_size >> 20
    log = path.with_name(f"{path.name}-wal")
    return min(total, log.stat().st_size >> 20 if log.exists() else 0), total


def upgrade(
    connection: sqlite3.Connection, path: Path, migrations: Sequence[Migration] = MIGRATIONS, *, at: datetime
) -> None:
    """Create the tables of a new file, or migrate an older one, in one transaction. Raises: StoreTooNew: a newer
    Perdure wrote it; StoreIncomplete; NotAStore: another program's file; StoreDamaged. Such a file is not changed."""
    try:
        connection.execute("BEGIN")  # one snapshot: another process may be creating the tables
        application = connection.execute("PRAGMA application_id").fetchone()[0]
        tables = connection.execute("SELECT COUNT(*) FROM sqlite_master").fetchone()[0]
        connection.execute("COMMIT")
        if application == APPLICATION_ID and not tables:
            raise damaged(path, "its tables are gone")
        if application != APPLICATION_ID and (tables or application):
            if is_store(path):
                raise damaged(path, f"its application id is {application:#x}, not {APPLICATION_ID:#x}")
            raise NotAStore(f"{path} is an SQLite file of another program: choose another path")
        if tables and is_current(SqliteDatabase(connection).rows, str(path), migrations):
            if connection.execute("PRAGMA journal_mode").fetchone()[0] != "wal":  # a copy made by VACUUM INTO
                _use_wal(connection)
            _check_writable(connection)
            return
        _use_wal(connection)
        connection.execute("BEGIN IMMEDIATE")
        try:
            # Another process may have migrated the file while this one waited; then nothing is left to run.
            migrate(SqliteDatabase(connection), migrations, at=iso(at))
            connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            connection.execute("COMMIT")
            # The tables stand in the file itself from here on: a store that loses its log has them still. SQLite moves
            # pages by itself after the first 1,000, and does not tell which.
            connection.execute("PRAGMA wal_checkpoint(PASSIVE)")
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise
    except SQLITE_ERRORS as error:
        raise store_error(error, path) from error


def prepare_new(connection: sqlite3.Connection) -> None:
    """Make a file a store of Perdure, still without tables."""
    _use_wal(connection)
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")


def single_file(connection: sqlite3.Connection) -> None:
    """Write the log into the file, and remove the log. Raises: OperationalError: others have the file open."""
    connection.execute("PRAGMA journal_mode = DELETE")


def _use_wal(connection: sqlite3.Connection) -> None:
    """Switch to WAL. SQLite does not wait here for another process that opens the same new file, so this retries."""
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
    """Check that a connection can write. Raises: OperationalError: the file is read-only; so it stays for this one."""
    waits = connection.execute("PRAGMA busy_timeout").fetchone()[0]
    connection.execute("PRAGMA busy_timeout = 0")
    try:
        connection.execute("BEGIN")  # an immediate one succeeds on a read-only file
        connection.execute("UPDATE counters SET value = value WHERE name = ''")
    except sqlite3.OperationalError as error:
        if not error.sqlite_errorname.startswith("SQLITE_BUSY"):  # a busy file is writable
            raise
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        connection.execute(f"PRAGMA busy_timeout = {int(waits)}")


def run_unit(connection: sqlite3.Connection, path: Path, unit: Callable[[], Any], *, alone: bool = False) -> Outcome:
    """Run one unit of the open transaction; return its result or error. If it fails, its own changes are rolled back;
    for a unit `alone` in its transaction that is left to the caller. Raises: sqlite3.Error: the whole transaction
    failed.
    """
    if not alone:
        connection.execute("SAVEPOINT unit")
    try:
        result = unit()
    except BaseException as error:
        # On a full disk or an I/O error SQLite rolls back the whole transaction: then all units failed.
        if not connection.in_transaction:
            raise
        if not alone:
            connection.execute("ROLLBACK TO unit")
            connection.execute("RELEASE unit")
        if isinstance(error, OverflowError):
            return None, too_large(error)
        return None, store_error(error, path) if isinstance(error, SQLITE_ERRORS) else error
    if not alone:
        connection.execute("RELEASE unit")
    return result, None
