"""The store over one SQLite file: one writer, a few readers, several processes.

Every write is durable before it is acknowledged: WAL with `synchronous=FULL`, and units of work that arrive together
share one commit. WAL needs a local disk; where it can't be had SQLite keeps its rollback journal, slower and as safe.
"""

from __future__ import annotations

import asyncio
import contextlib
import queue
import sqlite3
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar

from perdure.core.errors import StoreClosed, StoreError, StoreReadOnly, StoreUnavailable
from perdure.core.ids import DEFAULT_ORG, OrgId
from perdure.core.incoming.limits import DEFAULT_LIMITS, Limits
from perdure.core.tasks import Progress, run_in_thread
from perdure.storage.database.sqlite_errors import SQLITE_ERRORS, store_error, too_large
from perdure.storage.database.sqlite_file import MarkFile, check_log, check_mark
from perdure.storage.migrations import MIGRATIONS, Migration
from perdure.storage.store import StoreBase
from perdure.storage.stores.sqlite import (
    Outcome,
    SqliteDatabase,
    backup,
    connect,
    run_unit,
    scrub,
    scrub_progress,
    upgrade,
)
from perdure.storage.tx import Tx

P = ParamSpec("P")
T = TypeVar("T")

GROUP_COMMIT_UNITS = 256
GROUP_COMMIT_S = 0.05
"""CPU seconds after which no further unit joins the transaction: small units share a commit, large ones don't wait for
each other."""
READERS = 4
READER_WAIT_S = 0.02  # then a read opens another connection, which takes 2 ms to read the schema; most reads take less
SCRUB_LOOK_S = 0.5
"""How often the caller of a scrub is told how far it is."""


_Call = Callable[[], Any]
"""A unit of work with its transaction and arguments."""


@dataclass(slots=True)
class _Job:
    """A unit of work that waits for the writer; without a call the file is scrubbed, outside any transaction."""

    call: _Call | None
    future: asyncio.Future[Any]


def _resolve(future: asyncio.Future[Any], result: Any, error: BaseException | None) -> None:
    """Give a future its result or error, unless its caller has left."""
    if future.done():
        return
    if error is None:
        future.set_result(result)
    else:
        future.set_exception(error)


class SqliteStore(StoreBase):
    """`Store` over one SQLite file. Open it with `SqliteStore.open`.

    Units run in the writer's thread or in a reader's, not in the caller's event loop.
    """

    def __init__(self, path: Path, writer: sqlite3.Connection, org_id: OrgId, limits: Limits = DEFAULT_LIMITS) -> None:
        self._path, self._writer, self._org_id, self._limits = path, writer, org_id, limits
        self._database = SqliteDatabase(writer)
        self._tx = Tx(self._database, org_id, limits)
        self._marks = MarkFile(path)
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._closed = False
        self._broken: StoreError | None = None
        self._readers: list[sqlite3.Connection] = []
        self._free_readers: queue.SimpleQueue[tuple[sqlite3.Connection, Tx] | None] = queue.SimpleQueue()
        self._free_readers.put(None)  # the first reader, which is not open yet
        # It counts what other connections commit. It reads no schema, which the settings of `connect` do.
        self._watcher = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        self._watching = threading.Lock()
        self._pool = ThreadPoolExecutor(READERS, thread_name_prefix="perdure-read")
        self._thread = threading.Thread(target=self._write_jobs, name="perdure-write", daemon=True)
        self._thread.start()

    @classmethod
    def open(
        cls,
        path: Path,
        *,
        at: datetime,
        org_id: OrgId = DEFAULT_ORG,
        limits: Limits = DEFAULT_LIMITS,
        migrations: Sequence[Migration] = MIGRATIONS,
    ) -> SqliteStore:
        """Open, create or upgrade the store in this file. Raises: StoreReadOnly, StoreTooNew, NotAStore, StoreError."""
        path = path.absolute()  # connections are opened later, too, when the program may be in another folder
        least = check_log(path)
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)  # private to the user
        except OSError as error:
            raise StoreReadOnly(
                f"the data folder {path.parent} can't be created ({error.strerror}): name another one with PERDURE_HOME"
            ) from error
        if not path.exists():
            with contextlib.suppress(OSError):  # if this fails, SQLite fails too and reports the reason
                path.touch(mode=0o600)
        connection = connect(path)
        try:
            check_mark(path, connection, least)
            upgrade(connection, path, migrations, at=at)
        except BaseException:
            connection.close()
            raise
        return cls(path, connection, org_id, limits)

    @property
    def place(self) -> str:
        return str(self._path)

    async def read(self, unit: Callable[Concatenate[Tx, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        if self._closed:
            raise StoreClosed
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._pool, self._read, unit, args, kwargs)

    async def write(self, unit: Callable[Concatenate[Tx, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Queue the unit for the writer's thread, and wait for its result."""
        # No await between this check and `put`: a job behind the writer's last one would never run.
        if self._closed:
            raise StoreClosed
        if self._broken is not None:
            raise self._broken
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._jobs.put(_Job(partial(unit, self._tx, *args, **kwargs), future))
        try:
            return await future  # the unit runs even if its caller is cancelled
        finally:
            del future  # its error's traceback holds this frame

    async def scrub(self, progress: Callable[[int, int], None] = lambda done, total: None) -> None:
        """Rewrite the file in the writer's thread, so that nothing removed is left in it."""
        if self._closed:
            raise StoreClosed
        ending: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._jobs.put(_Job(None, ending))
        while not (await asyncio.wait({ending}, timeout=SCRUB_LOOK_S))[0]:
            progress(*scrub_progress(self._path))
        ending.result()

    async def backup(self, path: Path, progress: Callable[[int, int], None] = lambda done, total: None) -> None:
        if self._closed:
            raise StoreClosed

        def copy(tell: Progress) -> None:
            """Copy the database to the file."""
            # A connection and a thread of its own: inside the writer's transaction the copy would wait for itself.
            with contextlib.closing(connect(self._path, read_only=True)) as source:
                backup(source, path, lambda done, total: tell("", done, total))

        await run_in_thread(copy, lambda step, done, total: progress(done, total))

    async def mark(self) -> str:
        if self._closed:
            raise StoreClosed
        return await asyncio.get_running_loop().run_in_executor(self._pool, self._load_mark)

    async def close(self) -> None:
        """Finish all accepted units, then close. Closing twice is not an error."""
        if self._closed:
            return
        self._closed = True
        self._jobs.put(None)
        await asyncio.get_running_loop().run_in_executor(None, self._thread.join)
        self._pool.shutdown(wait=True)
        for connection in (*self._readers, self._watcher, self._writer):
            connection.close()

    def _load_mark(self) -> str:
        """What `mark` returns, read in this thread."""
        with self._watching:
            try:
                return str(self._watcher.execute("PRAGMA data_version").fetchone()[0])
            except SQLITE_ERRORS as error:
                raise store_error(error, self._path) from error

    def _read(self, unit: Callable[..., T], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> T:
        """What a unit returns, read over a connection that no other read uses."""
        reader: tuple[sqlite3.Connection, Tx] | None = None
        with contextlib.suppress(queue.Empty):
            reader = self._free_readers.get(timeout=READER_WAIT_S)
        if reader is None:
            connection = connect(self._path, read_only=True)
            reader = connection, Tx(SqliteDatabase(connection, read_only=True), self._org_id, self._limits)
            self._readers.append(connection)
        connection, tx = reader
        try:
            connection.execute("BEGIN")
            try:
                return unit(tx, *args, **kwargs)
            finally:
                if connection.in_transaction:
                    connection.execute("COMMIT")
        except SQLITE_ERRORS as error:
            raise store_error(error, self._path) from error
        except OverflowError as error:
            raise too_large(error) from error
        finally:
            self._free_readers.put(reader)

    def _write_jobs(self) -> None:
        """The writer's thread: write the waiting jobs, and resolve their futures, until `close`."""
        while (job := self._jobs.get()) is not None:
            jobs = [job]
            while job.call is not None and len(jobs) < GROUP_COMMIT_UNITS and not self._jobs.empty():
                if (job := self._jobs.get()) is None or job.call is None:
                    self._jobs.put(job)  # the end, or a scrub, for the loop above
                    break
                jobs.append(job)
            while jobs:
                calls = [job.call for job in jobs if job.call is not None]
                outcomes = self._write(calls) if calls else [self._scrub()]
                # An error's traceback holds the frames that it went through, so this frame lets go of each outcome.
                while outcomes:
                    future = jobs.pop(0).future
                    with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits
                        future.get_loop().call_soon_threadsafe(_resolve, future, *outcomes.pop(0))
                    del future

    def _scrub(self) -> Outcome:
        """Scrub the file, and return no result, or else the error."""
        try:
            scrub(self._writer, self._path)
        except StoreError as error:
            return None, error
        return None, None

    def _write(self, calls: Sequence[_Call]) -> list[Outcome]:
        """Run units in one transaction, as many as fit its time; return the outcomes of those that ran."""
        outcomes: list[Outcome] = []
        try:
            if self._broken is not None:  # these were queued before it broke
                raise self._broken
            self._database.begin()
            began = time.thread_time()
            for call in calls:
                outcomes.append(run_unit(self._writer, self._path, call, alone=len(calls) == 1))
                if len(calls) > len(outcomes) and time.thread_time() - began > GROUP_COMMIT_S:
                    break
            is_changed = any(error is None for _, error in outcomes)
            mark = self._marks.put(self._writer) if is_changed else 0
            self._writer.execute("COMMIT" if is_changed else "ROLLBACK")
            if mark:
                self._marks.note(mark)
        except BaseException as error:
            outcomes = [(None, self._roll_back(error))] * len(calls)
        return outcomes

    def _roll_back(self, error: BaseException) -> BaseException:
        """Undo the failed transaction; return the error for its callers."""
        failure = store_error(error, self._path) if isinstance(error, SQLITE_ERRORS) else error
        with contextlib.suppress(sqlite3.Error):
            if self._writer.in_transaction:
                self._writer.execute("ROLLBACK")
        # After a failed fsync the disk's state is unknown, and a second fsync may falsely succeed: stop writing.
        if getattr(error, "sqlite_errorname", "") in ("SQLITE_IOERR_FSYNC", "SQLITE_IOERR_DIR_FSYNC"):
            self._broken = StoreUnavailable(
                f"{self._path}: the disk could not confirm a write, so nobody knows what is on it: check the disk, then"
                " start anew; until then nothing is written"
            )
            return self._broken
        return failure
