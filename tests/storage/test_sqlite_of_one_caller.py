"""What the SQLite store does for one thread that waits alone: it runs units in the loop, and is as safe."""

from __future__ import annotations

import asyncio
import gc
import sqlite3
import threading
import time
import weakref
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, closing
from pathlib import Path

import pytest

from perdure.core.callers import is_alone, let_know
from perdure.core.errors import StoreBusy, StoreClosed, StoreFull
from perdure.core.tx import Tx
from perdure.library.portal import Portal
from perdure.storage.database import sqlite_store
from perdure.storage.database.sqlite_store import IN_A_ROW, SqliteStore
from perdure.testing.clock import START
from tests.contracts.base import Contract, said

units = Contract()
"""For its units of work; it opens nothing."""


class Threads:
    """How many wait for the loop of this test."""

    def __init__(self) -> None:
        self.waiting = 1
        let_know(lambda: self.waiting <= 1)


class Defect(Exception):
    """What a unit fails with."""


@asynccontextmanager
async def opened(path: Path, *, max_pages: int | None = None) -> AsyncIterator[SqliteStore]:
    store = SqliteStore.open(path / "perdure.db", at=START, max_pages=max_pages)
    try:
        yield store
    finally:
        await store.close()


def thread_of(tx: Tx) -> int:
    return threading.get_ident()


async def begun_by_the_writer(store: SqliteStore, unit: Callable[[Tx], object]) -> asyncio.Task[object]:
    """The write of this unit, which the writer's thread has begun; from now on one caller waits alone."""
    threads, begun = Threads(), threading.Event()
    threads.waiting = 2

    def begin(tx: Tx) -> object:
        begun.set()
        return unit(tx)

    task = asyncio.create_task(store.write(begin))
    await asyncio.to_thread(begun.wait, 20)
    threads.waiting = 1
    return task


async def test_units_of_one_caller_are_run_in_its_loop_and_those_of_several_are_not(tmp_path: Path) -> None:
    here = threading.get_ident()
    async with opened(tmp_path) as store:
        assert await store.write(thread_of) != here
        assert await store.read(thread_of) != here
        threads = Threads()
        assert await store.write(thread_of) == here
        assert await store.read(thread_of) == here
        threads.waiting = 2
        assert await store.write(thread_of) != here
        assert await store.read(thread_of) != here


async def test_a_unit_that_fails_leaves_nothing_behind_and_the_next_one_is_written(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        Threads()
        agent = await store.write(units.add_agent)

        def fails(tx: Tx) -> None:
            units.say(tx, agent.id, "never said")
            raise LookupError("a defect")

        with pytest.raises(LookupError, match="a defect"):
            await store.write(fails)
        await store.write(units.say, agent.id, "said")
        assert await store.read(said, agent.id) == ["said"]


async def test_a_full_disk_loses_nothing_that_was_acknowledged_to_one_caller(tmp_path: Path) -> None:
    acknowledged: list[str] = []
    async with opened(tmp_path, max_pages=150) as store:
        Threads()
        agent = await store.write(units.add_agent)
        with pytest.raises(StoreFull):
            while True:
                text = f"walrus {len(acknowledged)} " + "x" * 5000
                await store.write(units.say, agent.id, text)
                acknowledged.append(text)
        assert acknowledged
        assert await store.read(said, agent.id) == acknowledged


async def test_a_caller_who_writes_without_end_lets_the_other_tasks_of_the_loop_go_on(tmp_path: Path) -> None:
    """What is run in the loop waits for nothing: without a pause nobody else would have a turn."""
    async with opened(tmp_path) as store:
        Threads()
        agent = await store.write(units.add_agent)
        went_on: list[int] = []

        async def other() -> None:
            for turn in range(3):
                went_on.append(turn)
                await asyncio.sleep(0)

        task = asyncio.create_task(other())
        for number in range(3 * IN_A_ROW):
            await store.write(units.say, agent.id, str(number))
        assert went_on == [0, 1, 2]
        await task


async def test_a_unit_waits_behind_those_that_others_gave_to_the_writer(tmp_path: Path) -> None:
    """Its loop must not be blocked by them, nor come between."""
    async with opened(tmp_path) as store:
        agent = await store.write(units.add_agent)
        go_on = threading.Event()

        def slow(tx: Tx) -> None:
            assert go_on.wait(20)
            units.say(tx, agent.id, "first")

        first = await begun_by_the_writer(store, slow)
        second = asyncio.create_task(store.write(units.say, agent.id, "second"))
        await asyncio.sleep(0.01)
        assert not second.done()
        go_on.set()
        await asyncio.gather(first, second)
        assert await store.read(said, agent.id) == ["first", "second"]


async def test_a_loop_goes_on_while_another_process_writes(tmp_path: Path) -> None:
    """The writer's thread waits for the other one: reads, heartbeats and other callers do not."""
    async with opened(tmp_path) as store:
        Threads()
        agent = await store.write(units.add_agent)
        with closing(sqlite3.connect(tmp_path / "perdure.db", isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            began = time.monotonic()
            unit = asyncio.create_task(store.write(units.say, agent.id, "said"))
            await asyncio.sleep(0.05)
            assert await store.read(said, agent.id) == []
            assert not unit.done()
            assert time.monotonic() - began < 2
            other.execute("COMMIT")
        await unit
        assert await store.read(said, agent.id) == ["said"]


async def test_who_waited_long_for_another_process_is_told_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite_store, "BUSY_TIMEOUT_S", 0.2)
    async with opened(tmp_path) as store:
        agent = await store.write(units.add_agent)
        with closing(sqlite3.connect(tmp_path / "perdure.db", isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            Threads()
            with pytest.raises(StoreBusy, match="locked by another process"):
                await store.write(units.say, agent.id, "never said")
        await store.write(units.say, agent.id, "said")
        assert await store.read(said, agent.id) == ["said"]


async def test_a_closed_store_refuses_one_caller_too(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        Threads()
    with pytest.raises(StoreClosed):
        await store.write(thread_of)
    with pytest.raises(StoreClosed):
        await store.read(thread_of)


@pytest.mark.parametrize("verb", ["read", "write"])
async def test_a_store_that_is_closed_while_one_caller_lets_others_go_on_refuses_the_unit(
    tmp_path: Path, verb: str
) -> None:
    """Behind the last job nothing is done, and nobody would ever hear of it."""
    store = SqliteStore.open(tmp_path / "perdure.db", at=START)
    go_on = threading.Event()
    first = await begun_by_the_writer(store, lambda tx: go_on.wait(20))
    for _ in range(IN_A_ROW - 1):  # the next unit lets others go on first
        await store.read(thread_of)
    unit = asyncio.create_task(getattr(store, verb)(thread_of))
    closing = asyncio.create_task(store.close())
    await asyncio.wait([unit], timeout=1)
    go_on.set()
    await asyncio.gather(first, closing)
    assert unit.done()
    assert isinstance(unit.exception(), StoreClosed)


async def test_an_error_of_a_unit_is_gone_when_it_was_dealt_with(tmp_path: Path) -> None:
    """It holds what the unit had in hand, which may be much; the garbage collector may come late."""
    async with opened(tmp_path) as store:
        Threads()

        def fails(tx: Tx) -> None:
            raise Defect

        gc.disable()
        try:
            try:
                await store.write(fails)
            except Defect as error:
                left = weakref.ref(error)
            assert left() is None
        finally:
            gc.enable()


async def test_nobody_knows_who_waits_for_a_loop_that_is_not_ours() -> None:
    assert not is_alone()


def test_a_portal_tells_its_tasks_whether_one_thread_waits(portal: Portal) -> None:
    assert portal.run(alone())
    entered, leave = threading.Event(), asyncio.Event()

    async def wait() -> bool:
        entered.set()
        await leave.wait()
        return is_alone()

    async def end() -> bool:
        leave.set()
        return is_alone()

    answers: list[bool] = []
    other = threading.Thread(target=lambda: answers.append(portal.run(wait())))
    other.start()
    assert entered.wait(20)
    assert not portal.run(end())
    other.join(20)
    assert len(answers) == 1
    assert portal.run(alone())


async def alone() -> bool:
    """What a task that the asked one made is told."""
    return await asyncio.create_task(_alone())


async def _alone() -> bool:
    return is_alone()


@pytest.fixture
def portal() -> Iterator[Portal]:
    made = Portal()
    yield made
    made.close()
