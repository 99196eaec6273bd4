"""The store over PostgreSQL: the same SQL, run by a pool of synchronous connections in threads."""

from __future__ import annotations

import asyncio
import functools
import re
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

from perdure.core.errors import (
    PerdureError,
    StoreBusy,
    StoreClosed,
)
from perdure.core.ids import DEFAULT_ORG, OrgId
from perdure.core.limits import DEFAULT_LIMITS, Limits
from perdure.core.text.words import Clause
from perdure.storage.copy.backups import backup_database
from perdure.storage.copy.postgres_side import PostgresSide
from perdure.storage.database.base import FullText
from perdure.storage.database.row_format import Row, iso
from perdure.storage.migrations import MIGRATIONS, Migration, is_current, migrate
from perdure.storage.store import Views
from perdure.storage.tx import Tx

try:
    import psycopg
    import psycopg.sql
    from psycopg_pool import ConnectionPool
except ImportError as exc:
    raise ImportError("the PostgreSQL store needs psycopg: install 'perdure[postgres]'") from exc

from perdure.storage.database.postgres_errors import check_address, store_error

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

P = ParamSpec("P")
T = TypeVar("T")

CONNECTIONS = 8
MIGRATION_LOCK = 0x50455244  # advisory; one process migrates, the others wait
OPEN_LOCK = f"{MIGRATION_LOCK}, hashtext(current_schema())"
"""Each connection of a store holds this advisory lock, shared, so that `perdure restore` sees whether one is open."""
SERIALIZATION_TRIES = 5
TSVECTOR_BYTES = 900_000

_PARAMETER = re.compile(r"(?<!:):([a-z_]\w*)")


@functools.lru_cache(maxsize=1024)
def _pyformat(sql: str) -> str:
    """The statement with `%(name)s` for `:name`."""
    return _PARAMETER.sub(r"%(\1)s", sql.replace("%", "%%"))


class PostgresDatabase:
    """One connection, as `Tx` needs it."""

    clustered = ""
    blob = "BYTEA"
    row_key = "BIGINT"

    def __init__(self, connection: psycopg.Connection[tuple[Any, ...]], *, read_only: bool = False) -> None:
        self._connection, self.read_only, self.queued_texts = connection, read_only, 0
        self.changed_scopes: set[int] = set()
        self.embedding: str | None = None
        self.for_update = "" if read_only else " FOR UPDATE"

    def is_settled(self, number: int) -> bool:
        return self.read_only  # each statement of a write transaction sees later commits of others

    def by_index(self, name: str) -> str:
        return ""

    def in_numbers(self, column: str, name: str, values: Sequence[int]) -> tuple[str, dict[str, Any]]:
        return f"{column} = ANY(CAST(:{name} AS BIGINT[]))", {name: list(values)}

    def rows(self, sql: str, params: Mapping[str, Any]) -> Sequence[Row]:
        return self._connection.execute(_pyformat(sql).encode(), params).fetchall()

    def numbers(self, sql: str, params: Mapping[str, Any]) -> NDArray[np.int64]:
        import numpy as np

        return np.array([row[0] for row in self.rows(sql, params)], np.int64)

    def concat(self, column: str, by: str = "") -> str:
        return f"string_agg(CAST({column} AS TEXT), ','{f' ORDER BY {by}' if by else ''})"

    def concat_bytes(self, column: str, by: str) -> str:
        return f"string_agg({column}, CAST('' AS BYTEA) ORDER BY {by})"

    def run(self, sql: str, params: Mapping[str, Any]) -> int:
        return self._connection.execute(_pyformat(sql).encode(), params).rowcount

    def run_many(self, sql: str, params: Sequence[Mapping[str, Any]]) -> None:
        with self._connection.cursor() as cursor:
            cursor.executemany(_pyformat(sql).encode(), params)

    def full_text_table(self, table: str) -> None:
        self.run(
            f"CREATE TABLE {table} (number BIGINT NOT NULL, seq BIGINT NOT NULL, label TEXT NOT NULL,"
            " words TSVECTOR NOT NULL, PRIMARY KEY (number, seq))",
            {},
        )
        self.run(f"CREATE INDEX {table}_by_word ON {table} USING GIN (words)", {})

    def index_words(self, table: str, number: int, rows: Sequence[tuple[int, str, str]]) -> None:
        self.run_many(
            f"INSERT INTO {table} (number, seq, label, words) VALUES (:number, :seq, :label, CAST(:words AS tsvector))",
            [{"number": number, "seq": seq, "label": label, "words": _tsvector(words)} for seq, label, words in rows],
        )

    def unindex_words(self, table: str, number: int, rows: Sequence[tuple[int, str, str]]) -> None:
        self.run_many(
            f"DELETE FROM {table} WHERE number = :number AND seq = :seq",
            [{"number": number, "seq": seq} for seq, _, _ in rows],
        )

    def merge_words(self, table: str, *, begin: bool) -> bool:
        return False  # rows are removed with their words; `scrub` writes the index anew

    removes_by_number = True

    def index_marks(self, table: str, number: int, first: int, last: int) -> dict[int, Any]:
        rows = self.rows(
            f"SELECT seq, label, length(words) FROM {table} WHERE number = :number AND seq BETWEEN :first AND :last",
            {"number": number, "first": first, "last": last},
        )
        return {row[0]: (row[1], row[2]) for row in rows}

    def index_mark(self, number: int, label: str, words: str) -> Any:
        return label, len({word.rpartition(":")[0] for word in _tsvector(words).split(" ") if word})

    def integrity(self) -> Sequence[str]:
        return ()  # amcheck needs an administrator's rights

    def full_text(
        self,
        table: str,
        number: int,
        clauses: Sequence[Clause],
        labels: Sequence[str],
        *,
        all_labels: bool = False,
        below: int | None = None,
    ) -> FullText:
        match = " & ".join(
            "(" + " <-> ".join(f"'{token}'" for token in clause.tokens) + (":*" if clause.prefix else "") + ")"
            for clause in clauses
        )
        listed = ", ".join(f"'{label}'" for label in labels)
        return FullText(
            source=f"{table} w",
            key="w.seq",
            where="w.number = :w_number AND w.words @@ CAST(:w_match AS tsquery)"
            + (f" AND string_to_array(w.label, ' ') {'@>' if all_labels else '&&'} ARRAY[{listed}]" if labels else "")
            + ("" if below is None else f" AND w.seq < {int(below)}"),
            order="w.seq",
            params={"w_number": number, "w_match": match},
        )


def _tsvector(words: str) -> str:
    """The words as a tsvector literal with positions.

    PostgreSQL's parser would split words again and drop symbols. A tsvector holds at most 1 MB, so only the beginning
    of a longer text is indexed.
    """
    literal: list[str] = []
    size, seen = 0, set[str]()
    for position, word in enumerate(filter(None, words.split(" ")), start=1):  # a text may have no words
        size += 4 + (0 if word in seen else len(word.encode()))
        if size > TSVECTOR_BYTES:
            break
        seen.add(word)
        literal.append(f"'{word}':{min(position, 16_383)}")
    return " ".join(literal)


class PostgresStore(Views):
    """`Store` over a PostgreSQL database. Open it with `PostgresStore.open`."""

    def __init__(
        self,
        pool: ConnectionPool[psycopg.Connection[tuple[Any, ...]]],
        org_id: OrgId,
        limits: Limits = DEFAULT_LIMITS,
    ) -> None:
        self._pool, self._org_id, self._limits = pool, org_id, limits
        self._threads = ThreadPoolExecutor(CONNECTIONS, thread_name_prefix="perdure-postgres")
        self._closed = False

    @classmethod
    async def open(
        cls,
        address: str,
        *,
        at: datetime,
        org_id: OrgId = DEFAULT_ORG,
        limits: Limits = DEFAULT_LIMITS,
        migrations: Sequence[Migration] = MIGRATIONS,
    ) -> PostgresStore:
        """Open the store at this address; create or upgrade it if needed.

        Raises: StoreTooNew: a newer Perdure wrote it; StoreError: it can't be reached.
        """

        def prepare() -> ConnectionPool[psycopg.Connection[tuple[Any, ...]]]:
            check_address(address)
            try:
                with psycopg.connect(address, connect_timeout=10) as connection:
                    _upgrade(connection, migrations, at=at)
                pool: ConnectionPool[psycopg.Connection[tuple[Any, ...]]] = ConnectionPool(
                    address, min_size=1, max_size=CONNECTIONS, open=False, configure=_hold_open_lock
                )
                pool.open(wait=True, timeout=10)
            except psycopg.Error as error:
                raise store_error(error) from error
            return pool

        return cls(await asyncio.get_running_loop().run_in_executor(None, prepare), org_id, limits)

    @property
    def place(self) -> str:
        found = psycopg.conninfo.conninfo_to_dict(str(self._pool.conninfo))
        return f"the PostgreSQL database {found.get('dbname', '')!r} on {found.get('host', 'this machine')}"

    async def read(self, unit: Callable[Concatenate[Tx, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        return await self._in_thread(lambda: self._run(lambda tx: unit(tx, *args, **kwargs), snapshot=True))

    async def write(self, unit: Callable[Concatenate[Tx, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        return await self._in_thread(lambda: self._run(lambda tx: unit(tx, *args, **kwargs), snapshot=False))

    # The server's own log and backups keep what was removed until they are recycled.
    async def scrub(self, progress: Callable[[int, int], None] = lambda done, total: None) -> None:
        names = "SELECT tablename FROM pg_tables WHERE schemaname = current_schema()"
        tables = await self._in_thread(lambda: self._execute(psycopg.sql.SQL(names)))
        for done, (table,) in enumerate(tables):
            progress(done, len(tables))
            vacuum = psycopg.sql.SQL("VACUUM FULL {}").format(psycopg.sql.Identifier(table))
            await self._in_thread(functools.partial(self._execute, vacuum))

    async def backup(self, path: Path, progress: Callable[[int, int], None] = lambda done, total: None) -> None:
        address = str(self._pool.conninfo)
        await backup_database(lambda: PostgresSide(address, PostgresDatabase), path, progress)

    async def mark(self) -> str:
        # The transactions that have ended and those that are open, of the whole server.
        snapshot = psycopg.sql.SQL("SELECT pg_current_snapshot()::text")
        return str((await self._in_thread(lambda: self._execute(snapshot)))[0][0])

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        await asyncio.get_running_loop().run_in_executor(None, self._threads.shutdown)
        await asyncio.get_running_loop().run_in_executor(None, self._pool.close)

    async def _in_thread(self, work: Callable[[], T]) -> T:
        if self._closed:
            raise StoreClosed
        return await asyncio.get_running_loop().run_in_executor(self._threads, work)

    def _execute(self, statement: psycopg.sql.SQL | psycopg.sql.Composed) -> list[tuple[Any, ...]]:
        """The rows of a statement outside a transaction."""
        try:
            with self._pool.connection() as connection:
                connection.autocommit = True
                try:
                    cursor = connection.execute(statement)
                    return cursor.fetchall() if cursor.description else []
                finally:
                    connection.autocommit = False
        except psycopg.Error as error:
            raise store_error(error) from error

    def _run(self, unit: Callable[[Tx], T], *, snapshot: bool) -> T:
        # A unit depends on its transaction only, so one that lost a deadlock or a race is run again.
        for attempt in range(SERIALIZATION_TRIES):
            try:
                with self._pool.connection() as connection:
                    if snapshot:
                        connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
                    database = PostgresDatabase(connection, read_only=snapshot)
                    return unit(Tx(database, self._org_id, self._limits))
            except PerdureError:
                raise
            except (psycopg.errors.SerializationFailure, psycopg.errors.DeadlockDetected) as error:
                if attempt == SERIALIZATION_TRIES - 1:
                    raise StoreBusy(f"the database was too busy with competing transactions: {error}") from error
            except psycopg.Error as error:
                raise store_error(error) from error
        raise AssertionError("unreachable: the last attempt returns or raises")


def _hold_open_lock(connection: psycopg.Connection[tuple[Any, ...]]) -> None:
    connection.execute(f"SELECT pg_advisory_lock_shared({OPEN_LOCK})".encode())
    connection.commit()


def _upgrade(connection: psycopg.Connection[tuple[Any, ...]], migrations: Sequence[Migration], *, at: datetime) -> None:
    db = PostgresDatabase(connection)
    db.rows("SELECT pg_advisory_xact_lock(:lock)", {"lock": MIGRATION_LOCK})
    is_there = db.rows("SELECT to_regclass('schema_migrations')", {})[0][0] is not None
    if not (is_there and is_current(db, "the database", migrations)):
        migrate(db, migrations, at=iso(at))
