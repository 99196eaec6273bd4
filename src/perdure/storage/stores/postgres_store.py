"""The store over PostgreSQL: the same SQL, run by a pool of synchronous connections in threads.

A connection that is lost is no error for a while: what was certainly not committed is run again on a new one, and of a
commit whose answer was lost the database is asked what became of it.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import random
import secrets
import threading
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar

from perdure.core.errors import AlreadyExists, FeatureMissing, PerdureError, StoreClosed, StoreError, StoreUnavailable
from perdure.core.features import Point
from perdure.core.ids import DEFAULT_ORG, OrgId
from perdure.core.incoming.limits import DEFAULT_LIMITS, Limits
from perdure.storage.migrations import MIGRATIONS, Migration
from perdure.storage.store import Hear, StoreBase
from perdure.storage.tx import Tx

try:
    import psycopg
    import psycopg.sql
    from psycopg.pq import TransactionStatus
    from psycopg_pool import ConnectionPool
except ImportError as exc:
    raise ImportError("the PostgreSQL store needs psycopg: install 'perdure[postgres]'") from exc

from perdure.storage.database.postgres_database import READ_MARK
from perdure.storage.database.postgres_database import PostgresDatabase as PostgresDatabase
from perdure.storage.database.postgres_errors import check_address, is_lost, is_starting, store_error
from perdure.storage.database.postgres_signals import PostgresSignals
from perdure.storage.stores.postgres_upgrade import MIGRATION_LOCK, upgrade

log = logging.getLogger(__name__)
# The pool warns of each connection that is lost or can't be made: the store tries again, and says so once. A pipeline
# warns of errors that it raises too.
for _name in ("psycopg", "psycopg.pool"):
    logging.getLogger(_name).setLevel(logging.ERROR)

P = ParamSpec("P")
T = TypeVar("T")

CONNECTIONS = 8
BACKUPS: Point[[str, Path, Callable[[int, int], None]], Awaitable[None]] = Point("database_backed_up")
"""Copies the database of an address to a new file of SQLite, as `Store.backup` says."""

OPEN_LOCK = f"{MIGRATION_LOCK}, hashtext(current_schema())"
"""Each connection of a store holds this advisory lock, shared, so that `perdure restore` sees whether one is open."""
RACE_TRIES = 8
"""How often a unit is run that others got in the way of."""
RACE_PAUSE_S = 0.02
PATIENCE_S = 30.0
"""How long a unit waits for a server that is away."""
PAUSE_S, PAUSE_MAX_S = 0.05, 1.0
GET_S = 1.0
"""How long a try waits for a connection. The pool makes one for each of our threads, so only for a new one."""
START_S = 10.0
DEFAULTS = {
    "application_name": "perdure",
    "connect_timeout": 5,
    "keepalives_idle": 30,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 30_000,
}
"""What an address may say otherwise: a machine that vanished is noticed after 45 seconds."""

RACES = (psycopg.errors.SerializationFailure, psycopg.errors.DeadlockDetected, psycopg.errors.UniqueViolation)
"""What a unit meets that another one got in the way of. The second run reads what the other has written."""

Connection = psycopg.Connection[tuple[Any, ...]]


@dataclass(slots=True)
class _Attempt:
    """How far one try of a unit came: the mark that its commit leaves, and its result once the commit was sent."""

    mark: Mapping[str, str]
    is_committing: bool = False
    result: Any = None


class PostgresStore(StoreBase):
    """`Store` over a PostgreSQL database. Open it with `PostgresStore.open`."""

    def __init__(
        self,
        pool: ConnectionPool[Connection],
        address: str,
        org_id: OrgId,
        limits: Limits = DEFAULT_LIMITS,
        *,
        patience_s: float = PATIENCE_S,
    ) -> None:
        self._pool, self._address, self._org_id, self._limits = pool, address, org_id, limits
        self._threads = ThreadPoolExecutor(pool.max_size, thread_name_prefix="perdure-postgres")
        self._signals = PostgresSignals(_parameters(address))
        self._patience_s = patience_s
        self._closed = threading.Event()
        self._id = secrets.token_hex(8)

    @classmethod
    async def open(
        cls,
        address: str,
        *,
        at: datetime,
        org_id: OrgId = DEFAULT_ORG,
        limits: Limits = DEFAULT_LIMITS,
        migrations: Sequence[Migration] = MIGRATIONS,
        connections: int = CONNECTIONS,
        patience_s: float = PATIENCE_S,
    ) -> PostgresStore:
        """Open the store at this address; create or upgrade it if needed.

        Args:
            connections: how many it opens at most, besides one for signals.
            patience_s: how long a read or write waits for a server that is away.
        Raises: StoreTooNew: a newer Perdure wrote it; StoreBusy: it needs an upgrade, and others hold its tables;
            StoreError: it can't be reached.
        """
        check_address(address)
        parameters = _parameters(address)

        def prepare() -> ConnectionPool[Connection]:
            """Migrate the database, and open the pool of connections."""
            try:
                with _connect_at_start(parameters) as connection:
                    upgrade(connection, migrations=migrations, at=at)
                    # The migrations of a test may not make it, and a replica is not written.
                    with suppress(psycopg.errors.UndefinedTable, psycopg.errors.ReadOnlySqlTransaction):
                        connection.execute("DELETE FROM commit_marks WHERE made_at < EXTRACT(EPOCH FROM now()) - 86400")
                pool: ConnectionPool[Connection] = ConnectionPool(
                    "",
                    kwargs={**parameters, "autocommit": True},  # units begin and commit with statements of their own
                    min_size=1,
                    max_size=connections,
                    reconnect_timeout=0,  # it pauses ever longer by itself: we try again at our own pace
                    open=False,
                    configure=_hold_open_lock,
                )
                pool.open(wait=True, timeout=START_S)
            except psycopg.Error as error:
                raise store_error(error) from error
            return pool

        pool = await asyncio.get_running_loop().run_in_executor(None, prepare)
        return cls(pool, address, org_id, limits, patience_s=patience_s)

    @property
    def place(self) -> str:
        found = _parameters(self._address)
        return f"the PostgreSQL database {found.get('dbname', '')!r} on {found.get('host', 'this machine')}"

    async def read(self, unit: Callable[Concatenate[Tx, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        return await self._in_thread(self._run, lambda tx: unit(tx, *args, **kwargs), snapshot=True)

    async def write(self, unit: Callable[Concatenate[Tx, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        return await self._in_thread(self._run, lambda tx: unit(tx, *args, **kwargs), snapshot=False)

    def listen(self, hear: Hear) -> bool:
        loop = asyncio.get_running_loop()

        def pass_on(topics: Sequence[str] | None) -> None:
            """Call the listener in the event loop."""
            loop.call_soon_threadsafe(hear, topics)

        self._signals.listen(pass_on)
        return True

    # The server's own log and backups keep what was removed until they are recycled.
    async def scrub(self, progress: Callable[[int, int], None] = lambda done, total: None) -> None:
        """Rewrite all tables, so that nothing removed is left in them."""
        names = "SELECT tablename FROM pg_tables WHERE schemaname = current_schema()"
        tables = await self._in_thread(self._execute, psycopg.sql.SQL(names))
        for done, (table,) in enumerate(tables):
            progress(done, len(tables))
            vacuum = psycopg.sql.SQL("VACUUM FULL {}").format(psycopg.sql.Identifier(table))
            await self._in_thread(self._execute, vacuum)

    async def backup(self, path: Path, progress: Callable[[int, int], None] = lambda done, total: None) -> None:
        if not BACKUPS.functions:
            raise FeatureMissing("copies", "the database can't be copied", "use `pg_dump`")
        for make in BACKUPS.functions:
            await make(self._address, path, progress)

    async def mark(self) -> str:
        """Return a text that changes with every commit."""
        # The transactions that have ended and those that are open, of the whole server.
        snapshot = psycopg.sql.SQL("SELECT pg_current_snapshot()::text")
        return str((await self._in_thread(self._execute, snapshot))[0][0])

    async def close(self) -> None:
        if self._closed.is_set():
            return
        self._closed.set()
        for end in (self._threads.shutdown, self._signals.close, self._pool.close):
            await asyncio.to_thread(end)

    async def _in_thread(self, work: Callable[..., T], *args: Any, **kwargs: Any) -> T:
        """What `work` returns, run in a thread of the store. It is given a `deadline` until which it may try again."""
        if self._closed.is_set():
            raise StoreClosed
        deadline = time.monotonic() + self._patience_s
        call = functools.partial(work, *args, deadline=deadline, **kwargs)
        return await asyncio.get_running_loop().run_in_executor(self._threads, call)

    def _execute(
        self,
        statement: bytes | psycopg.sql.SQL | psycopg.sql.Composed,
        params: Mapping[str, str] | None = None,
        *,
        deadline: float,
    ) -> list[tuple[Any, ...]]:
        """The rows of a statement outside a transaction, run again until `deadline` where the connection is lost."""
        pauses = _Pauses(self._closed, deadline)
        while True:
            try:
                with self._pool.connection(timeout=GET_S) as connection:
                    cursor = connection.execute(statement, params)
                    return cursor.fetchall() if cursor.description else []
            except psycopg.Error as error:
                if not is_lost(error) or not pauses.wait():
                    raise store_error(error) from error

    def _run(self, unit: Callable[[Tx], T], *, snapshot: bool, deadline: float) -> T:
        """What a unit returns, once its transaction is committed; `snapshot`: it only reads."""
        # A unit depends on its transaction only, so one that lost a deadlock, a race or its connection is run again.
        races, pauses = 0, _Pauses(self._closed, deadline)
        while True:
            attempt = _Attempt({"slot": f"{self._id} {threading.get_ident()}", "token": secrets.token_hex(8)})
            try:
                self._try(unit, attempt, snapshot=snapshot)
                return attempt.result  # type: ignore[no-any-return]
            except AlreadyExists:
                # Another transaction may have added it after the unit had looked: a second look finds it.
                if races:
                    raise
                races += 1
            except PerdureError:
                raise
            except RACES as error:
                races += 1
                if races == RACE_TRIES:
                    raise store_error(error) from error
                self._closed.wait(RACE_PAUSE_S * races * random.random())
            except psycopg.Error as error:
                if not is_lost(error):
                    raise store_error(error) from error
                if attempt.is_committing:
                    if self._is_committed(attempt.mark, error):
                        return attempt.result  # type: ignore[no-any-return]
                elif not pauses.wait():
                    raise store_error(error) from error

    def _try(self, unit: Callable[[Tx], Any], attempt: _Attempt, *, snapshot: bool) -> None:
        """Run a unit once, in a transaction. Raises: psycopg.Error; what the unit raises."""
        connection = self._pool.getconn(timeout=GET_S)
        try:
            database = PostgresDatabase(connection, read_only=snapshot)
            database.begin()
            attempt.result = unit(Tx(database, self._org_id, self._limits))
            attempt.is_committing = database.has_written
            status = database.commit(attempt.mark)
            if status != "COMMIT":  # a statement had failed, and the unit did not say so
                connection.close()  # as below
                raise database.failure or StoreError(f"the transaction ended with {status}: nothing was written")
        except psycopg.Error:
            # It may have skipped statements that psycopg takes for prepared now. The pool makes another connection.
            connection.close()
            raise
        finally:
            if connection.info.transaction_status not in (TransactionStatus.IDLE, TransactionStatus.UNKNOWN):
                with suppress(psycopg.Error):  # then the pool drops the connection
                    connection.execute("ROLLBACK", prepare=False)
            self._pool.putconn(connection)
        if database.topics:
            self._signals.send(database.topics)

    def _is_committed(self, mark: Mapping[str, str], lost: psycopg.Error) -> bool:
        """Whether a transaction was committed whose answer was lost: its mark stands in the database.

        The number of the transaction can't say it (`pg_xact_status`): after a crash PostgreSQL gives the numbers of
        transactions that did not reach the disk to others. This waits for a transaction that is still under way.
        Raises: StoreUnavailable: the database does not answer.
        """
        try:
            deadline = time.monotonic() + self._patience_s
            found = self._execute(READ_MARK, {**mark, "token": ""}, deadline=deadline)
        except StoreError as error:
            raise StoreUnavailable(
                "the connection was lost during a commit, and whether it was made is unknown: look before you try again"
                f" ({error})",
                outcome_unknown=True,
            ) from lost
        return bool(found[0][0] == mark["token"])


class _Pauses:
    """Ever longer pauses with jitter, until a time, or until the store is closed."""

    def __init__(self, closed: threading.Event, deadline: float) -> None:
        self._closed, self._deadline, self._pause_s = closed, deadline, 0.0

    def wait(self) -> bool:
        """Pause; False: there is no time left. The first time it does not wait: the pool may have other connections."""
        if self._closed.is_set() or time.monotonic() >= self._deadline:
            return False
        if self._pause_s == PAUSE_S:
            log.warning("the database is away: trying again for %.0f s", self._deadline - time.monotonic())
        self._closed.wait(self._pause_s * (0.5 + random.random()))
        self._pause_s = min(PAUSE_MAX_S, max(PAUSE_S, self._pause_s * 2))
        return not self._closed.is_set()


def _parameters(address: str) -> dict[str, Any]:
    """The parameters of a connection to an address."""
    return {**DEFAULTS, **psycopg.conninfo.conninfo_to_dict(address)}


def _hold_open_lock(connection: Connection) -> None:
    """Take the lock that says that a store is open, until the connection ends."""
    connection.execute(f"SELECT pg_advisory_lock_shared({OPEN_LOCK})".encode())


def _connect_at_start(parameters: Mapping[str, Any]) -> Connection:
    """A new connection. A server that is just starting gets `START_S` to do so. Raises: psycopg.Error."""
    deadline = time.monotonic() + START_S
    while True:
        try:
            return psycopg.connect(**parameters)
        except psycopg.OperationalError as error:
            if not is_starting(error) or time.monotonic() > deadline:
                raise
            time.sleep(0.2)
