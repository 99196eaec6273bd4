"""Floors: what any program pays that starts Python, or that commits a message twice."""

from __future__ import annotations

import sqlite3
import time
from pathlib import Path

__all__ = ["additions_s", "commits_ms"]

COMMITS = 2
"""A plain reply costs two transactions: accepted and asked, answered and ended."""

_ADDITIONS = compile("total = 0\nfor number in range(numbers):\n    total += number", "<additions>", "exec")


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


def additions_s(numbers: int = 3_000_000) -> float:
    """CPU seconds of 3,000,000 additions at a module's top level, by that of so many: how fast the machine is now."""
    began = time.process_time()
    exec(_ADDITIONS, {"numbers": numbers})
    return (time.process_time() - began) * 3_000_000 / numbers
