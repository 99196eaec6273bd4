"""New stores as copies of one template: running all migrations takes longer than most tests."""

from __future__ import annotations

import functools
import sqlite3
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

import pytest

from perdure.storage.migrations import MIGRATIONS, Migration
from perdure.storage.stores import sqlite, sqlite_store
from perdure.testing import inline_store
from perdure.testing.clock import START
from tests.support.warm_server import without_flushes

_upgrade = sqlite.upgrade
_template_lock = threading.Lock()


@contextmanager
def copied_stores() -> Iterator[None]:
    """Inside the context, an empty database becomes a store by a copy of the template; others are upgraded as usual.
    No store waits for the disk."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sqlite_store, "connect", without_flushes(sqlite.connect))
        for module in (sqlite_store, inline_store):
            patch.setattr(module, "upgrade", _copy_template)
        yield


def _copy_template(
    connection: sqlite3.Connection, path: Path, migrations: Sequence[Migration] = MIGRATIONS, *, at: datetime
) -> None:
    with _template_lock:
        if migrations is MIGRATIONS and _is_empty(connection):
            file = connection.execute("PRAGMA database_list").fetchone()[2]
            if not file:  # in memory
                return _template().backup(connection)
            if Path(f"{file}-wal").exists():  # of a process that was killed: it would be taken for the copy's
                return _upgrade(connection, path, migrations, at=at)
            # Nothing was read through the connection but that the file is empty, so it sees what stands there now. A
            # backup would write each page twice, and switching to WAL waits for the disk.
            Path(file).write_bytes(_template_bytes())
            return None
    return _upgrade(connection, path, migrations, at=at)


def _is_empty(connection: sqlite3.Connection) -> bool:
    """Whether the database has no tables; False if it can't be read, so that `upgrade` raises the error."""
    try:
        (application,) = connection.execute("PRAGMA application_id").fetchone()
        (tables,) = connection.execute("SELECT COUNT(*) FROM sqlite_master").fetchone()
        return (application, tables) == (0, 0)
    except sqlite3.Error:
        return False


@functools.cache
def _template() -> sqlite3.Connection:
    connection = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
    _upgrade(connection, Path(":memory:"), at=START)
    return connection


@functools.cache
def _template_bytes() -> bytes:
    """The template as a file in WAL mode."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "template.db"
        connection = sqlite3.connect(path, isolation_level=None)
        sqlite._use_wal(connection)
        _template().backup(connection)
        connection.close()  # empties the WAL into the file
        return path.read_bytes()
