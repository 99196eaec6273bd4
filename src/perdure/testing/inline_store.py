"""The SQLite store in the caller's own thread: the same SQL, deterministic, and able to crash."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Awaitable, Callable, Sequence
from contextlib import nullcontext
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any, Concatenate, Literal, ParamSpec, TypeVar, cast

from perdure.core.errors import StoreClosed
from perdure.core.ids import DEFAULT_ORG, OrgId
from perdure.storage.database.sqlite_errors import store_error
from perdure.storage.store import StoreBase
from perdure.storage.stores.sqlite import Outcome, SqliteDatabase, backup, connect, run_unit, scrub, upgrade
from perdure.storage.tx import Tx
from perdure.testing.clock import START

P = ParamSpec("P")
T = TypeVar("T")

FaultPoint = Literal["read", "write", "commit", "committed"]
"""Where a fault may strike: before a read, before a write, between its unit and its commit, or after the commit before
the caller gets the result."""


async def no_faults(point: FaultPoint) -> None:
    """Inject no fault; see `InlineStore`."""


class InlineStore(StoreBase):
    """`Store` without threads.

    `fault` is awaited at every `FaultPoint`. Its error is raised to the caller: at `write` and `commit` nothing is
    written, at `committed` everything is. While it waits at `commit`, readers see what was committed before. `crash`
    closes the store without a commit.
    """

    def __init__(
        self,
        path: Path | str = ":memory:",
        *,
        at: datetime = START,
        org_id: OrgId = DEFAULT_ORG,
        fault: Callable[[FaultPoint], Awaitable[None]] = no_faults,
    ) -> None:
        self._path = Path(path)
        is_file = str(path) != ":memory:"
        self._connection = (
            connect(self._path) if is_file else sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        )
        upgrade(self._connection, self._path, at=at)
        self._connection.execute("PRAGMA synchronous = OFF")  # a simulated crash loses no page cache
        # A store in memory has one connection, so its readers wait for a commit.
        self._reader = connect(self._path, read_only=True) if is_file else self._connection
        self._database = SqliteDatabase(self._connection)
        self._tx = Tx(self._database, org_id)
        self._read_tx = Tx(SqliteDatabase(self._reader, read_only=True), org_id)
        self._fault = fault
        self._write_lock = asyncio.Lock()
        self._open = True

    @property
    def place(self) -> str:
        return str(self._path)

    async def read(self, unit: Callable[Concatenate[Tx, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run the unit in the caller's thread, after the fault that a test planned."""
        await self._fault("read")
        async with self._write_lock if self._reader is self._connection else nullcontext():
            return self._read(lambda tx: unit(tx, *args, **kwargs))

    async def write(self, unit: Callable[Concatenate[Tx, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run the unit in a transaction in the caller's thread, after the fault that a test planned."""
        await self._fault("write")
        async with self._write_lock:
            ((result, raised),) = await self._transact([lambda tx: unit(tx, *args, **kwargs)])
        if raised is not None:
            try:
                raise raised
            finally:
                del raised  # its traceback holds this frame
        await self._fault("committed")
        self._check_open()
        return cast(T, result)

    async def scrub(self, progress: Callable[[int, int], None] = lambda done, total: None) -> None:
        async with self._write_lock:
            self._check_open()
            scrub(self._connection, self._path)

    async def backup(self, path: Path, progress: Callable[[int, int], None] = lambda done, total: None) -> None:
        async with self._write_lock:
            self._check_open()
            backup(self._reader, path, progress)

    async def mark(self) -> str:
        """A text that differs after each change of the store."""
        self._check_open()
        others = self._reader.execute("PRAGMA data_version").fetchone()[0]
        return f"{others} {self._connection.total_changes}"

    def crash(self) -> None:
        """Close without commit, as a killed process does."""
        if self._open:
            self._open = False
            if self._connection.in_transaction:  # `close` alone leaves the file locked while a statement is cached
                self._connection.execute("ROLLBACK")
            self._connection.close()
            self._reader.close()

    async def close(self) -> None:
        self.crash()

    async def _transact(self, units: Sequence[Callable[[Tx], Any]]) -> list[Outcome]:
        """Run the units in one transaction; the caller holds the lock. If it raises, nothing is written."""
        self._check_open()
        try:
            self._database.begin()
            try:
                outcomes = [run_unit(self._connection, self._path, partial(unit, self._tx)) for unit in units]
                await self._fault("commit")
                self._check_open()
                self._connection.execute("COMMIT")
            except BaseException:
                if self._open and self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
                raise
        except sqlite3.Error as error:
            raise store_error(error, self._path) from error
        return outcomes

    def _read(self, unit: Callable[[Tx], T]) -> T:
        """Run a unit of work on the reading connection, and return its result."""
        self._check_open()
        try:
            self._reader.execute("BEGIN")
            try:
                return unit(self._read_tx)
            finally:
                self._reader.execute("ROLLBACK")
        except sqlite3.Error as error:
            raise store_error(error, self._path) from error

    def _check_open(self) -> None:
        if not self._open:
            raise StoreClosed
