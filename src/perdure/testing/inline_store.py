"""The SQLite store in the caller's own thread: the same SQL, deterministic, and able to crash."""

from __future__ import annotations

import sqlite3
from collections.abc import Awaitable, Callable
from datetime import datetime
from pathlib import Path
from typing import Concatenate, Literal, ParamSpec, TypeVar

from perdure.core.errors import StoreClosed
from perdure.core.ids import DEFAULT_ORG, OrgId
from perdure.core.tx import Tx
from perdure.storage.sqlite import SqliteDatabase, connect, typed, upgrade
from perdure.storage.tx import SqlTx
from perdure.testing.clock import START

__all__ = ["FaultPoint", "InlineStore", "no_faults"]

P = ParamSpec("P")
T = TypeVar("T")

FaultPoint = Literal["read", "write", "committed"]
"""Where a fault may strike: before a read, before a write, and after its commit before the caller is told."""


async def no_faults(point: FaultPoint) -> None:
    """Nothing goes wrong."""


class InlineStore:
    """`Store` without threads.

    `fault` is awaited at every point where something may go wrong. What it raises is raised to the caller: at `write`
    nothing is written, at `committed` everything is. A crash is `crash`: closed without commit.
    """

    def __init__(
        self,
        path: Path | str = ":memory:",
        *,
        at: datetime = START,
        org_id: OrgId = DEFAULT_ORG,
        fault: Callable[[FaultPoint], Awaitable[None]] = no_faults,
        durable: bool = False,
    ) -> None:
        self._path = Path(path)
        self._connection = (
            connect(self._path)
            if str(path) != ":memory:"
            else sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        )
        upgrade(self._connection, self._path, at=at)
        if not durable:  # a simulated crash loses no page cache, so there is nothing to sync for
            self._connection.execute("PRAGMA synchronous = OFF")
        self._database = SqliteDatabase(self._connection)
        self._tx = SqlTx(self._database, org_id)
        self._seen = SqlTx(SqliteDatabase(self._connection, read_only=True), org_id)
        self._fault = fault
        self._open = True

    async def read(self, unit: Callable[Concatenate[Tx, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        await self._fault("read")
        self._check_open()
        try:
            self._connection.execute("BEGIN")
            try:
                return unit(self._seen, *args, **kwargs)
            finally:
                self._connection.execute("ROLLBACK")
        except sqlite3.Error as error:
            raise typed(error, self._path) from error

    async def write(self, unit: Callable[Concatenate[Tx, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        await self._fault("write")
        self._check_open()
        try:
            self._database.begin()
            try:
                result = unit(self._tx, *args, **kwargs)
                self.fail_at_commit()
                self._connection.execute("COMMIT")
            except BaseException:
                if self._open and self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
                raise
        except sqlite3.Error as error:
            raise typed(error, self._path) from error
        await self._fault("committed")
        self._check_open()
        return result

    def fail_at_commit(self) -> None:
        """Called inside each write, after its unit and before its commit; a subclass may raise here."""

    def crash(self) -> None:
        """Close without commit, as a killed process does."""
        if self._open:
            self._open = False
            self._connection.close()

    async def close(self) -> None:
        self.crash()

    def _check_open(self) -> None:
        if not self._open:
            raise StoreClosed
