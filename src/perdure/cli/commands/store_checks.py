"""The checks of `perdure doctor` on the data folder. They only read: no table is made, no run starts."""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections.abc import Callable, Collection, Iterator
from contextlib import closing
from pathlib import Path

from perdure.app import KEY_FILE, NOT_DELETED, find_damage, find_refusal, schema_version, store_error
from perdure.cli.commands.checks import UPGRADED, Check
from perdure.cli.commands.database.table_checks import (
    Rows,
    database_checks,
    fix_of,
    mcp_checks,
    secrets_check,
    vectors_check,
)
from perdure.cli.views.fold import plural
from perdure.core.errors import InvalidInput, StoreDamaged
from perdure.core.text.addresses import is_postgres
from perdure.settings import Settings

QUICK_CHECK_BYTES = 64 * 2**20
"""A file up to this size is read in about a second."""

FREE_BYTES = 100 * 2**20
FULL_BYTES = 2**16
"""Less than a small commit takes in the log."""
RESTORE = "`perdure restore FILE` puts a backup in its place: see docs/operations.md"
BUSY_TIMEOUT_S = 1.0


def _free_bytes(folder: Path) -> int:
    """How much room is left where a folder is; as if there were enough, if the system doesn't tell."""
    try:
        return shutil.disk_usage(folder).free
    except OSError:
        return FREE_BYTES


def store_checks(settings: Settings, free_bytes: Callable[[Path], int] = _free_bytes) -> Iterator[Check]:
    """The folder, the file, its tables, and room on the disk; or the database on a server.

    Args:
        free_bytes: how much room is left where a folder is.
    """
    if is_postgres(settings.store):
        yield from database_checks(settings)
        return
    try:
        path = settings.store_path
        exists = path.exists()
    except (InvalidInput, OSError, ValueError) as error:
        yield Check("data", "broken", str(error), "set PERDURE_HOME to a folder you may write to")
        return
    if not exists and (loss := find_damage(path)):
        yield Check("data", "broken", loss, "see docs/operations.md, a damaged file")
        return
    if not exists:
        folder = _nearest_folder(path.parent)
        if folder.is_dir() and os.access(folder, os.W_OK):
            yield Check("data", "ok", f"no store yet: {path} is made when the first agent is")
        else:
            why = "read-only for you" if folder.is_dir() else "not a folder"
            yield Check("data", "broken", f"{path} can't be made: {folder} is {why}", "set PERDURE_HOME to another one")
        yield from _disk_check(free_bytes(folder))
        return
    free = free_bytes(path.parent)
    yield from _file_checks(path, settings, free)
    yield from _disk_check(free)


def _file_checks(path: Path, settings: Settings, free: int) -> Iterator[Check]:
    """The store file: whose it is, its schema, whether it is whole and can be written, and what is in it."""
    newest = schema_version()
    try:
        size = path.stat().st_size
        read_only = f"{path.absolute().as_uri()}?mode=ro"
        with closing(sqlite3.connect(read_only, uri=True, timeout=BUSY_TIMEOUT_S)) as connection:
            if loss := find_damage(path, connection):
                yield Check("data", "broken", loss, "see docs/operations.md, a damaged file")
                return
            tables = {row[0] for row in connection.execute("SELECT name FROM sqlite_master")}
            if "schema_migrations" not in tables:
                if tables:
                    fix = "set PERDURE_HOME to another folder, or move the file away"
                    yield Check("data", "broken", f"{path} is the database of another program", fix)
                else:
                    yield Check("data", "ok", f"{path} is empty")
                return
            version = connection.execute("SELECT max(number) FROM schema_migrations").fetchone()[0] or 0
            rows = _reader(connection)
            if refusal := find_refusal(str(path), rows):
                yield Check("data", "broken", str(refusal), fix_of(refusal))
                return
            agents = connection.execute(f"SELECT count(*) FROM agents WHERE {NOT_DELETED}").fetchone()[0]
            fault = _find_fault(connection) if size <= QUICK_CHECK_BYTES else None
            vectors = vectors_check(rows, models="group_concat(DISTINCT model)") if "vector_scopes" in tables else None
            servers = list(mcp_checks(rows)) if "mcp_servers" in tables else []
            secrets = _secrets_check(rows, tables, settings, path.parent / KEY_FILE)
    except (sqlite3.Error, OSError) as error:
        if isinstance(error, sqlite3.Error) and isinstance(damage := store_error(path, error), StoreDamaged):
            yield Check(
                "data",
                "broken",
                str(damage),
                "`perdure restore FILE` puts a backup in its place: see docs/operations.md",
            )
            return
        fix = "check who owns it; a backup can take its place: see docs/operations.md"
        yield Check("data", "broken", f"{path} can't be read: {error}", fix)
        return
    summary = f"{path}, schema {version}, {_size_text(size)}, {plural(agents, 'agent')}"
    if fault:
        yield Check(
            "data",
            "broken",
            f"{summary}: damaged: {fault}",
            "`perdure restore FILE` puts a backup in its place: see docs/operations.md",
        )
        return
    state = "whole" if size <= QUICK_CHECK_BYTES else "too large to be read through here: PRAGMA integrity_check does"
    upgrade = f", brought to {newest} {UPGRADED}" if version < newest else ""
    yield Check("data", "ok", f"{summary}, {state}{upgrade}")
    yield _write_check(path, free)
    if vectors is not None:
        yield vectors
    if secrets is not None:
        yield secrets
    yield from servers


def _secrets_check(rows: Rows, tables: Collection[str], settings: Settings, file: Path) -> Check | None:
    """Whether the keys of the secrets are here, and only ours; None: there are no secrets."""
    check = secrets_check(rows, tables, settings, source="PERDURE_SECRET_KEY" if settings.secret_key else str(file))
    if check is None or check.status != "ok" or settings.secret_key:
        return check
    if file.stat().st_mode & 0o077:
        return Check("secrets", "note", f"{file} can be read by others", f"chmod 600 {file}")
    return check


def _reader(connection: sqlite3.Connection) -> Rows:
    """A function that reads rows."""
    return lambda sql, *values: connection.execute(sql, values).fetchall()


def _find_fault(connection: sqlite3.Connection) -> str | None:
    """The first fault of the file; None if it is whole."""
    result = str(connection.execute("PRAGMA quick_check(1)").fetchone()[0])
    return None if result == "ok" else result


def _write_check(path: Path, free: int) -> Check:
    """Whether the store can be written."""
    if free < FULL_BYTES:
        return Check("writing", "broken", "the disk is full: nothing can be written", "make room on it")
    if not (os.access(path, os.W_OK) and os.access(path.parent, os.W_OK)):
        fix = "give yourself the right to write the file and its folder"
        return Check("writing", "broken", f"{path} or its folder is read-only for you", fix)
    try:
        uri = f"{path.absolute().as_uri()}?mode=rw"
        with closing(sqlite3.connect(uri, uri=True, timeout=BUSY_TIMEOUT_S, isolation_level=None)) as connection:
            connection.execute("BEGIN")  # an immediate one succeeds on a read-only file
            connection.execute("UPDATE counters SET value = value WHERE name = ''")
            connection.execute("ROLLBACK")
    except sqlite3.OperationalError as error:
        if "locked" in str(error) or "busy" in str(error):
            return Check("writing", "note", "another process is writing just now", "try again; see who has it open")
        return Check("writing", "broken", f"{path} can't be written: {error}", "check the disk and who owns the file")
    return Check("writing", "ok", "the store can be written")


def _disk_check(free: int) -> Iterator[Check]:
    """A check only if there is little room on the disk."""
    if free < FREE_BYTES:
        yield Check(
            "disk", "broken", f"only {_size_text(free)} are free where the data is", "make room: writes fail soon"
        )


def _nearest_folder(folder: Path) -> Path:
    """The folder itself, or the nearest one above it that exists."""
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    return folder


def _size_text(count: int) -> str:
    """A number of bytes as people write it."""
    amount, unit = float(count), "B"
    for unit in ("B", "KB", "MB", "GB", "TB"):  # the last one is used
        if amount < 1_000 or unit == "TB":
            break
        amount /= 1_000
    return f"{amount:.0f} {unit}" if unit == "B" or amount >= 100 else f"{amount:.1f} {unit}"
