"""A file with something of everything, made once for a test run, and the rows of any file of SQLite."""

from __future__ import annotations

import asyncio
import functools
import sqlite3
import tempfile
from contextlib import closing
from pathlib import Path

from tests.storage.older_store import build_store
from tests.support.at_end import at_end

NOT_FILLED = ("rebuilding", "resetting", "erasures")
"""Work that goes on when the store is opened."""
WEIRD = "a 'text' with \x1b0000, \u00e4, \U0001f427\n\t\\N and \"quotes\""
ROWS = 3
"""How many rows are made in a table that nothing else fills."""


@functools.cache
def filled_store() -> Path:
    """A store with rows in every table: agents with histories, memory, files, vectors; where these have none, values
    that no database may change. Copy it."""
    folder = at_end.enter_context(tempfile.TemporaryDirectory())
    path = Path(folder) / "filled.db"
    asyncio.run(build_store(path))
    with closing(sqlite3.connect(path)) as connection:
        for name in table_names(path):
            if name not in NOT_FILLED and not connection.execute(f"SELECT 1 FROM {name}").fetchone():
                _fill(connection, name)
        connection.commit()
    return path


def _fill(connection: sqlite3.Connection, table: str) -> None:
    columns = connection.execute(f"PRAGMA table_info({table})").fetchall()
    for number in range(ROWS):
        row = [value(kind, number, named=bool(key)) for _, _, kind, _, _, key in columns]
        connection.execute(f"INSERT INTO {table} VALUES ({', '.join('?' * len(row))})", row)


def value(kind: str, number: int, *, named: bool) -> object:
    match kind:
        case "TEXT":
            return f"{number} {WEIRD}" if named or number else f"{WEIRD}{number}"
        case "BLOB":
            return bytes([0, 255, number])
        case "DOUBLE PRECISION":
            return 0.1 + number / 3
        case "BIGINT":
            return (1 << 62) + number
        case _:  # SMALLINT, INTEGER
            return number


def table_names(path: Path) -> list[str]:
    """The tables of a file, without full-text indexes and their parts."""
    with closing(sqlite3.connect(path)) as connection:
        tables = connection.execute("SELECT name, sql FROM sqlite_master WHERE type = 'table' ORDER BY name").fetchall()
    virtual = [name for name, sql in tables if "VIRTUAL" in sql]
    return [name for name, _ in tables if not any(name == one or name.startswith(f"{one}_") for one in virtual)]


def table_rows(path: Path, table: str) -> list[tuple[object, ...]]:
    """The rows of a table, in an order that depends on nothing else."""
    with closing(sqlite3.connect(path)) as connection:
        columns = sorted(row[1] for row in connection.execute(f"PRAGMA table_info({table})"))
        return sorted(connection.execute(f"SELECT {', '.join(columns)} FROM {table}").fetchall(), key=repr)
