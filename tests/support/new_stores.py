"""New stores as copies of one that was made once: the statements of all migrations take longer than most tests."""

from __future__ import annotations

import functools
import sqlite3
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

import pytest

from perdure.storage.database import sqlite
from perdure.storage.migrations import MIGRATIONS, Migration
from perdure.testing import inline_store
from perdure.testing.clock import START

__all__ = ["copied_stores"]

_MIGRATED = sqlite.upgrade
_ONE_AT_A_TIME = threading.Lock()


@contextmanager
def copied_stores() -> Iterator[None]:
    """Inside, an empty database becomes a store by a copy; what is in use is looked at as ever."""
    with pytest.MonkeyPatch.context() as patch:
        for module in (sqlite, inline_store):
            patch.setattr(module, "upgrade", _copied)
        yield


def _copied(
    connection: sqlite3.Connection, path: Path, migrations: Sequence[Migration] = MIGRATIONS, *, at: datetime
) -> None:
    if migrations is not MIGRATIONS or not _is_empty(connection):
        return _MIGRATED(connection, path, migrations, at=at)
    sqlite._use_wal(connection)
    with _ONE_AT_A_TIME:
        _template().backup(connection)
    return None


def _is_empty(connection: sqlite3.Connection) -> bool:
    """Whether nobody has written to it. What is no database, or is locked, is not: its error is `upgrade`'s to tell."""
    try:
        (application,) = connection.execute("PRAGMA application_id").fetchone()
        (tables,) = connection.execute("SELECT COUNT(*) FROM sqlite_master").fetchone()
        return (application, tables) == (0, 0)
    except sqlite3.Error:
        return False


@functools.cache
def _template() -> sqlite3.Connection:
    made = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
    _MIGRATED(made, Path(":memory:"), at=START)
    return made
