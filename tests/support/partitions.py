"""A PostgreSQL schema whose tables are split by their columns of distribution, and the statements that a program runs
there.

PostgreSQL's own planner then says which parts a statement reads: it knows them if the statement names the column's
value, as Citus does.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import psycopg
import pytest

from perdure.features.copies.split import split_store
from perdure.storage.database import postgres_database
from perdure.storage.stores import postgres_store as postgres

PARTS = 8
"""More than the keys that one statement of a small test names."""


def split_tables(address: str, parts: int = PARTS) -> None:
    """Split each table into parts by the hash of its column."""
    split_store(address, parts, lambda step, done, total: None)


@dataclass(slots=True)
class Recording:
    """The statements that PostgreSQL stores run while it lasts, each with the parameters of its first use."""

    statements: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)

    def note(self, sql: str, params: Mapping[str, Any]) -> None:
        self.statements.setdefault(sql, dict(params))
        self.counts[sql] = self.counts.get(sql, 0) + 1


@contextlib.contextmanager
def record(monkeypatch: pytest.MonkeyPatch) -> Iterator[Recording]:
    """Record every statement that a PostgreSQL store of this process runs."""
    recording = Recording()

    class RecordingDatabase(postgres_database.PostgresDatabase):
        def rows(self, sql: str, params: Mapping[str, Any]) -> Sequence[Any]:
            recording.note(sql, params)
            return super().rows(sql, params)

        def rows_of_bytes(self, sql: str, params: Mapping[str, Any]) -> Sequence[Any]:
            recording.note(sql, params)
            return super().rows_of_bytes(sql, params)

        def run_counted(self, sql: str, params: Mapping[str, Any]) -> int:
            recording.note(sql, params)
            return super().run_counted(sql, params)

        def run_many(self, sql: str, params: Sequence[Mapping[str, Any]]) -> None:
            if params:
                recording.note(sql, params[0])
            super().run_many(sql, params)

    with monkeypatch.context() as patch:
        patch.setattr(postgres, "PostgresDatabase", RecordingDatabase)
        yield recording


def parts_read(address: str, sql: str, params: Mapping[str, Any]) -> Mapping[str, int]:
    """Table -> how many of its parts the planner reads or writes for a statement."""
    with psycopg.connect(address) as connection:
        plan = connection.execute(b"EXPLAIN (FORMAT JSON) " + postgres_database._pyformat(sql), params).fetchall()[0][0]
        connection.rollback()
    found: dict[str, set[str]] = {}
    for name in _relations(plan[0]["Plan"]):
        if match := re.fullmatch(r"(\w+)_part(\d+)", name):
            found.setdefault(match[1], set()).add(match[2])
    return {table: len(parts) for table, parts in found.items()}


def _relations(plan: Mapping[str, Any]) -> Iterator[str]:
    """The tables of a plan."""
    if "Relation Name" in plan:
        yield plan["Relation Name"]
    for child in plan.get("Plans", ()):
        yield from _relations(child)
