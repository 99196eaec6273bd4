"""Two apps over one store whose changes meet: on PostgreSQL each has read before either writes, unless a lock keeps
one of them out. So a lock that is missing shows every time."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import pytest

from perdure import AsyncAgent, AsyncPerdure
from perdure.core.errors import PerdureError, StoreError
from perdure.storage.database.postgres_database import PostgresDatabase
from perdure.storage.database.row_format import Row
from perdure.storage.stores import postgres_store as postgres
from perdure.storage.stores.postgres_store import PostgresStore
from perdure.storage.tx import Tx

WAIT_S = 0.1
"""How long a unit waits for the other. One that is kept out by a lock comes later."""

Change: TypeAlias = Callable[[AsyncPerdure], Awaitable[Any]]
Case: TypeAlias = Callable[["Room"], AsyncIterator[tuple[Change, Change]]]
CASES: dict[str, list[Case]] = {}
"""Verb -> its cases."""


def case(*verbs: str) -> Callable[[Case], Case]:
    """Register a case of these verbs: it yields two changes, which are made at once, and then looks at what is there;
    the room has their results."""

    def register(one: Case) -> Case:
        for verb in verbs:
            CASES.setdefault(verb, []).append(one)
        return one

    return register


@dataclass
class Meetings:
    """Where the n-th write of one change meets the n-th write of the other."""

    barriers: dict[int, threading.Barrier] = field(default_factory=dict)

    def barrier(self, number: int) -> threading.Barrier:
        return self.barriers.setdefault(number, threading.Barrier(2))


@dataclass
class Visit:
    """How many writes a change has begun."""

    meetings: Meetings
    count: int = 0


_visit: ContextVar[Visit | None] = ContextVar("_visit", default=None)


class MeetingDatabase(PostgresDatabase):
    """Waits once before it writes, if the unit is one of two changes."""

    barrier: threading.Barrier | None = None

    def _meet(self) -> None:
        barrier, self.barrier = self.barrier, None
        if barrier is not None:
            with contextlib.suppress(threading.BrokenBarrierError):
                barrier.wait(WAIT_S)

    def run_counted(self, sql: str, params: Mapping[str, Any]) -> int:
        self._meet()
        return super().run_counted(sql, params)

    def run_many(self, sql: str, params: Sequence[Mapping[str, Any]]) -> None:
        if not sql.startswith("SELECT"):
            self._meet()
        super().run_many(sql, params)

    def rows(self, sql: str, params: Mapping[str, Any]) -> Sequence[Row]:
        if not sql.startswith("SELECT"):
            self._meet()
        return super().rows(sql, params)


def let_changes_meet(patch: pytest.MonkeyPatch) -> None:
    """From now on stores over PostgreSQL have the writes of `at_once` meet."""
    write = PostgresStore.write

    async def meeting(self: PostgresStore, unit: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        visit = _visit.get()
        if visit is None:
            return await write(self, unit, *args, **kwargs)
        barriers = [visit.meetings.barrier(visit.count)]
        visit.count += 1

        def met(tx: Tx, *args: Any, **kwargs: Any) -> Any:
            tx._db.barrier = barriers.pop() if barriers else None  # type: ignore[attr-defined]
            return unit(tx, *args, **kwargs)

        return await write(self, met, *args, **kwargs)

    patch.setattr(postgres, "PostgresDatabase", MeetingDatabase)
    patch.setattr(PostgresStore, "write", meeting)


@dataclass
class Room:
    """Two apps, and what became of two changes."""

    first: AsyncPerdure
    second: AsyncPerdure
    results: Sequence[Any] = ()
    count: int = 0

    @property
    def both(self) -> bool:
        """Whether neither change was refused."""
        return not any(isinstance(result, BaseException) for result in self.results)

    @property
    def refused(self) -> int:
        return sum(isinstance(result, BaseException) for result in self.results)

    def name(self, of: str = "thing") -> str:
        """A new name."""
        self.count += 1
        return f"{of}-{self.count}"

    async def agent(self, **options: Any) -> AsyncAgent:
        return await self.first.create_agent(self.name("agent"), **options)

    async def at_once(self, one: Change, other: Change) -> None:
        """Make two changes at once, one in each app."""
        meetings = Meetings()

        async def make(change: Change, library: AsyncPerdure) -> Any:
            _visit.set(Visit(meetings))
            return await change(library)

        self.results = await asyncio.gather(make(one, self.first), make(other, self.second), return_exceptions=True)
        for result in self.results:
            if isinstance(result, BaseException) and (
                not isinstance(result, PerdureError) or isinstance(result, StoreError)
            ):
                raise result


async def play(room: Room, one: Case) -> None:
    """Make the changes of a case, and look at what is there."""
    changes = one(room)
    await room.at_once(*await anext(changes))
    with contextlib.suppress(StopAsyncIteration):
        await anext(changes)
        raise AssertionError("a case yields once")


async def check_texts(room: Room) -> None:
    """Fail unless the whole store is as its texts say."""
    compared = await room.first.upkeep.compare(repair=False, progress=lambda *_: None)
    if compared.faults:
        raise AssertionError("; ".join(f"{fault.count} {fault.text} ({fault.owner_id})" for fault in compared.faults))
