"""Checks of a store's files for losses that SQLite does not report.

SQLite takes an empty file beside a log for a new database and deletes the log, and it does not notice a missing log. So
a commit writes a mark, a growing number, into the store at most once a second, and after it into a small file beside
the store. A store with an older mark than that file, and not changed since, has lost the commits in its log.
"""

from __future__ import annotations

import contextlib
import sqlite3
import time
import zlib
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from perdure.core.errors import StoreDamaged

MARK_EVERY_S = 1.0
MARK_BYTES = 64

LOG_HEAD_BYTES = 32
"""The size of a log without a commit."""

FORMATS_AT = 18
SCAN_BYTES = 1 << 20
OWN_TABLE = b"CREATE TABLE message_revisions"
OWN_ID_AT, OWN_ID = 68, b"PERD"


@dataclass(frozen=True, slots=True)
class _Note:
    """The content of a mark file: the mark, the inode of the store then, and when it was written."""

    mark: int
    inode: int
    at_ns: int


class MarkFile:
    """A file beside the store with the mark of its newest commit, by which opening detects that the store lost commits.
    A mark is a growing time in milliseconds. Errors of writing are ignored."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._next_s = 0.0

    def put(self, writer: sqlite3.Connection) -> int:
        """Store a new mark in the open transaction and return it; 0: none is due yet."""
        if time.monotonic() < self._next_s:
            return 0
        now = time.time_ns() // 1_000_000
        writer.execute(
            "INSERT INTO counters (name, value) VALUES ('mark', ?)"
            " ON CONFLICT (name) DO UPDATE SET value = MAX(counters.value + 1, excluded.value)",
            (now,),
        )
        return int(writer.execute("SELECT value FROM counters WHERE name = 'mark'").fetchone()[0])

    def note(self, mark: int) -> None:
        """Write a committed mark to the file. It is not flushed, because an older mark there does no harm."""
        self._next_s = time.monotonic() + MARK_EVERY_S
        with contextlib.suppress(OSError):
            text = b"%d %d" % (mark, self._path.stat().st_ino)
            line = (b"%s %08x" % (text, zlib.crc32(text))).ljust(MARK_BYTES - 1) + b"\n"
            file = _mark_path(self._path)
            if not file.exists():
                file.touch(mode=0o600)
            with file.open("r+b", buffering=0) as noted:  # one small write, which is atomic for readers
                noted.write(line)


def check_log(path: Path) -> int:
    """The lowest mark that the store at this path must have, read before it is opened; 0: unknown. Raises:
    StoreDamaged: the store is empty but its log is not."""
    with contextlib.suppress(OSError):
        log = _log_path(path)
        if log.stat().st_size > LOG_HEAD_BYTES and (not path.exists() or path.stat().st_size == 0):
            raise StoreDamaged(
                f"{path} is empty, but its log {log.name} is not ({log.stat().st_size:,} bytes): the store was emptied"
                " or replaced. Nothing was touched. Put back the file that belongs to this log; or restore a backup"
                f" by `perdure restore FILE`, which keeps the log; `perdure store verify` looks at what is there then"
            )
    noted = _load_note(path)
    if noted is None or _changed_since(path, noted):
        return 0
    return noted.mark


def check_mark(path: Path, connection: sqlite3.Connection, least: int) -> None:
    """Check that a store's mark is at least `least`, of `check_log`: no commits are lost. Raises: StoreDamaged."""
    if not least:
        return
    try:
        rows = connection.execute("SELECT value FROM counters WHERE name = 'mark'").fetchall()
    except sqlite3.OperationalError as error:
        if "no such table" not in str(error):  # opening the store reports any other error
            return
        rows = []  # the log held the whole store
    except sqlite3.Error:
        return
    mark = int(rows[0][0]) if rows else 0
    if mark >= least:
        return
    log = _log_path(path).name
    since = f"between {_moment(mark)} and {_moment(least)}" if mark else f"up to {_moment(least)}"
    raise StoreDamaged(
        f"{path}: its log {log} is gone, or was cut: what was committed {since} is not there. Put {log} back if it was"
        " moved away, or restore a backup by `perdure restore FILE`; `perdure store verify --accept-loss` goes on with"
        " what is left"
    )


def forget_mark(path: Path) -> None:
    """Accept the store at this path as it is, even if commits were lost, so that it opens again."""
    _mark_path(path).unlink(missing_ok=True)


def is_store(path: Path) -> bool:
    """Whether a file that SQLite can't read was a Perdure store."""
    try:
        if _mark_path(path).exists():
            return True
        with path.open("rb") as file:
            head = file.read(SCAN_BYTES)
    except OSError:
        return False
    return head[OWN_ID_AT : OWN_ID_AT + 4] == OWN_ID or OWN_TABLE in head


def has_odd_header(path: Path) -> bool:
    """Whether the header names a format that no SQLite writes, so that it opens the file for reading alone."""
    with contextlib.suppress(OSError), path.open("rb") as file:
        formats = file.read(FORMATS_AT + 2)[FORMATS_AT:]
        return any(one not in (1, 2) for one in formats)
    return False


def _load_note(path: Path) -> _Note | None:
    """Return the content of the mark file of the store at this path; None: it is missing or can't be read."""
    try:
        file = _mark_path(path)
        text, _, digest = file.read_bytes()[:MARK_BYTES].strip().rpartition(b" ")
        mark, inode = map(int, text.split())
        if int(digest, 16) != zlib.crc32(text):
            return None
        return _Note(mark, inode, file.stat().st_mtime_ns)
    except (OSError, ValueError):
        return None


def _changed_since(path: Path, noted: _Note) -> bool:
    """Whether the store was replaced or written after the note: a restored backup has an older mark and lacks nothing.
    A later checkpoint of the log has the mark."""
    try:
        status = path.stat()
        if status.st_ino != noted.inode or max(status.st_mtime_ns, status.st_ctime_ns) > noted.at_ns:
            return True
        log = _log_path(path)
        return log.exists() and log.stat().st_size > LOG_HEAD_BYTES and log.stat().st_mtime_ns > noted.at_ns
    except OSError:
        return True


def _log_path(path: Path) -> Path:
    """Where SQLite keeps the log of the store at this path."""
    return path.with_name(f"{path.name}-wal")


def _mark_path(path: Path) -> Path:
    """Return the path of the file with the mark of the newest commit, for the store at this path; see `MarkFile`."""
    return path.with_name(f"{path.name}-mark")


def _moment(mark: int) -> str:
    """The time of a mark, in words."""
    return datetime.fromtimestamp(mark / 1_000, UTC).isoformat(" ", "seconds").replace("+00:00", " UTC")


def tables_with_broken_text(connection: sqlite3.Connection) -> list[str]:
    """A sentence for each table with text that is not UTF-8: SQLite does not check it, and queries can't read it."""
    found = []
    cursor = connection.cursor()
    tables = cursor.execute("SELECT name FROM sqlite_schema WHERE type = 'table' AND sql NOT LIKE 'CREATE VIRTUAL%'")
    for (table,) in tables.fetchall():
        columns = [row[1] for row in cursor.execute(f"PRAGMA table_info({table})") if row[2].upper() == "TEXT"]
        texts = " || x'00' || ".join(f"COALESCE(CAST({column} AS BLOB), x'')" for column in columns)
        if not columns:
            continue
        for (text,) in cursor.execute(f"SELECT CAST({texts} AS BLOB) FROM {table}"):
            try:
                text.decode()
            except UnicodeDecodeError:
                found.append(f"table {table} has a text that is not UTF-8")
                break
    return found
