"""Floors: what any program pays that commits a message twice, and how fast the machine is at this moment."""

from __future__ import annotations

import sqlite3
import time
from pathlib import Path
from types import TracebackType

__all__ = ["DESIGN_ROW_US", "Yardstick", "as_of_design", "commits_ms"]

DESIGN_ROW_US = 15.0
"""What a row like the `Yardstick`'s took in the measurements that the design was chosen by, in CPU microseconds.

Their program was another one, so a time scaled by this tells how slow a machine is now, and meets no bar.
"""

COMMITS = 2
"""A plain reply costs two transactions: accepted and asked, answered and ended."""


def commits_ms(folder: Path, *, messages: int) -> float:
    """CPU milliseconds per message of writing one row and committing it twice at `synchronous=FULL`."""
    connection = sqlite3.connect(folder / "floor.db", isolation_level=None)
    try:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("CREATE TABLE messages (seq INTEGER PRIMARY KEY, text TEXT, state INTEGER)")
        began = time.process_time()
        for seq in range(messages):
            connection.execute("BEGIN IMMEDIATE")
            connection.execute("INSERT INTO messages VALUES (?, ?, 0)", (seq, f"message {seq}"))
            connection.execute("COMMIT")
            for state in range(1, COMMITS):
                connection.execute("BEGIN IMMEDIATE")
                connection.execute("UPDATE messages SET state = ? WHERE seq = ?", (state, seq))
                connection.execute("COMMIT")
        return (time.process_time() - began) * 1000 / messages
    finally:
        connection.close()


class Yardstick:
    """How fast the machine is now, beside the one that the design was measured on, where a row took `DESIGN_ROW_US`.

    A row is inserted and committed (WAL, `synchronous=NORMAL`: nothing waits for the disk) and selected again: Python,
    SQLite and the kernel, in the thread that asks. A machine's speed can change twofold within minutes, so a time is
    taken together with the rows before and after it.
    """

    def __init__(self, folder: Path) -> None:
        self._connection = sqlite3.connect(folder / "yardstick.db", isolation_level=None)
        self._connection.execute("PRAGMA journal_mode = WAL")
        self._connection.execute("PRAGMA synchronous = NORMAL")
        self._connection.execute("CREATE TABLE IF NOT EXISTS rows (id INTEGER PRIMARY KEY, owner TEXT, body TEXT)")
        self.row_us(1_000)  # the file and its log have their size, and all is in the processor's caches

    def __enter__(self) -> Yardstick:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._connection.close()

    def row_us(self, rows: int = 200) -> float:
        """CPU microseconds of a row now, by so many."""
        execute, body = self._connection.execute, "x" * 100
        began = time.process_time()
        for _ in range(rows):
            execute("BEGIN IMMEDIATE")
            added = execute("INSERT INTO rows (owner, body) VALUES (?, ?)", ("agent", body))
            execute("COMMIT")
            execute("SELECT * FROM rows WHERE id = ?", (added.lastrowid,)).fetchone()
        return (time.process_time() - began) * 1e6 / rows


def as_of_design(spent: float, row_us: float) -> float:
    """A time as it would about be on the machine that the design was measured on; of a faster one it stays as it is."""
    return spent * min(1.0, DESIGN_ROW_US / row_us)
