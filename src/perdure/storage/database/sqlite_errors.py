"""SQLite's errors as Perdure's."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from perdure.core import errors
from perdure.storage.database.sqlite_file import has_odd_header, is_store

BUSY_TIMEOUT_S = 5.0
LIMIT_SLACK_BYTES = 1 << 20
"""The bytes that one commit may need beyond the present size of a file."""

SQLITE_ERRORS = (sqlite3.Error, UnicodeDecodeError)
"""What SQLite's module raises. The second is raised where the text of an error quotes a schema that is not UTF-8."""

DAMAGED_SCHEMA = ("no such column", "no such table", "no such index", "invalid fts5 file format", "vtable constructor")
"""How errors begin of a store in whose schema, or settings of the index, a letter has changed."""

DAMAGED_HELPS = (
    "restore a backup by `perdure restore FILE`, or recover what is there with `sqlite3 .recover`; `perdure store"
    " verify` tells what is damaged"
)


def store_error(error: sqlite3.Error | UnicodeDecodeError, path: Path) -> errors.PerdureError:
    """Perdure's error for an error of SQLite."""
    if isinstance(error, UnicodeDecodeError):
        return damaged(path, "its schema is not UTF-8")
    name = getattr(error, "sqlite_errorname", None) or ""
    text = str(error)
    if name in ("SQLITE_CONSTRAINT_UNIQUE", "SQLITE_CONSTRAINT_PRIMARYKEY"):
        columns = text.partition(": ")[2]
        return errors.AlreadyExists(f"a row of {columns.partition('.')[0]}", columns)
    if name.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
        return errors.StoreBusy(f"{path} was locked by another process for more than {BUSY_TIMEOUT_S:.0f} s: try again")
    # SHMSIZE: the shared-memory file beside the store can't grow, as at a start on a full disk.
    if name.startswith(("SQLITE_FULL", "SQLITE_IOERR_SHMSIZE")):
        return errors.StoreFull(f"no space left for {path}: free some, then send again; nothing of this was written")
    if "unsupported file format" in text or (name.startswith("SQLITE_READONLY") and has_odd_header(path)):
        return damaged(path, "its header has changed")
    if name.startswith("SQLITE_READONLY"):
        return errors.StoreReadOnly(
            f"{path} can't be written: check its permissions, or choose another folder (PERDURE_HOME)"
        )
    if name.startswith("SQLITE_CANTOPEN"):
        if path.is_dir():
            return errors.NotAStore(f"{path} is a folder: name a file in it, such as {path / 'perdure.db'}")
        return errors.StoreReadOnly(f"{path} can't be opened: its folder must exist and be writable (PERDURE_HOME)")
    if name.startswith("SQLITE_NOTADB") or "not a database" in text:
        if is_store(path):
            return damaged(path, "its header is gone")
        return errors.NotAStore(f"{path} is not a Perdure store: choose another path")
    if text.startswith("Could not decode to UTF-8"):  # the rest of the message quotes the text
        return damaged(path, "a text in it is not UTF-8")
    if text.startswith(DAMAGED_SCHEMA):
        return damaged(path, text)
    if name.startswith(("SQLITE_CORRUPT", "SQLITE_IOERR_CORRUPTFS", "SQLITE_IOERR_SHORT_READ")):
        return damaged(path, text)
    if name.startswith("SQLITE_IOERR"):
        return _disk_failed(path, name)
    return errors.StoreError(f"{path}: {text}" + (f" ({name})" if name else ""))


def damaged(path: Path, what: str) -> errors.StoreDamaged:
    """The error for a damaged store at this path; `what` says what is wrong with it."""
    return errors.StoreDamaged(f"{path} is damaged ({what}): {DAMAGED_HELPS}")


def _disk_failed(path: Path, name: str) -> errors.StoreError:
    """The error of a failed write. SQLite reports a file-size limit, a quota and a broken disk alike."""
    limit = _file_limit_bytes()
    sizes = [file.stat().st_size for file in (path, path.with_name(f"{path.name}-wal")) if file.exists()]
    if limit is not None and max(sizes, default=0) + LIMIT_SLACK_BYTES > limit:
        return errors.StoreFull(
            f"{path} has reached the file-size limit of this process, {limit:,} bytes: raise it (ulimit -f), or delete"
            " what is not needed, then send again; nothing of this was written"
        )
    return errors.StoreUnavailable(
        f"the disk of {path} failed ({name}): look at the system's log, and whether a quota is used up; nothing of this"
        " was written"
    )


def _file_limit_bytes() -> int | None:
    """The largest file that this process may write; None: there is no limit."""
    try:
        import resource
    except ImportError:  # Windows has none
        return None
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)[0]
    return None if limit == resource.RLIM_INFINITY else limit


def too_large(error: OverflowError) -> errors.InvalidInput:
    """The error for an integer of more than the 64 bits that a column holds."""
    refused = errors.InvalidInput("a number is too large for the database")
    refused.__cause__ = error
    return refused
