"""The writer's thread: the caller's loop goes on while it waits, and an error leaves nothing behind."""

from __future__ import annotations

import asyncio
import gc
import sqlite3
import threading
import weakref
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path

import pytest

from perdure.core.errors import StoreBusy, StoreClosed
from perdure.storage.stores import sqlite
from perdure.storage.stores.sqlite_store import SqliteStore
from perdure.storage.tx import Tx
from perdure.testing.clock import START
from tests.contracts.base import Contract, list_texts

units = Contract()
"""For its units of work; it opens nothing."""


class Defect(Exception):
    """What a unit fails with."""


@asynccontextmanager
async def open_store(path: Path) -> AsyncIterator[SqliteStore]:
    store = SqliteStore.open(path / "perdure.db", at=START)
    try:
        yield store
    finally:
        await store.close()


def thread_of(tx: Tx) -> int:
    return threading.get_ident()


async def test_units_run_outside_the_callers_thread(tmp_path: Path) -> None:
    async with open_store(tmp_path) as store:
        writers = {await store.write(thread_of) for _ in range(3)}
        reader = await store.read(thread_of)
    assert len(writers) == 1
    assert threading.get_ident() not in {*writers, reader}


async def test_a_unit_that_fails_leaves_nothing_behind_and_the_next_one_is_written(tmp_path: Path) -> None:
    async with open_store(tmp_path) as store:
        agent = await store.write(units.add_agent)

        def fails(tx: Tx) -> None:
            units.say(tx, agent.id, "never said")
            raise LookupError("a defect")

        with pytest.raises(LookupError, match="a defect"):
            await store.write(fails)
        await store.write(units.say, agent.id, "said")
        assert await store.read(list_texts, agent.id) == ["said"]


async def test_a_loop_goes_on_while_another_process_writes(tmp_path: Path) -> None:
    """The writer's thread waits for the other one: reads, heartbeats and other callers do not."""
    async with open_store(tmp_path) as store:
        agent = await store.write(units.add_agent)
        with closing(sqlite3.connect(tmp_path / "perdure.db", isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            unit = asyncio.create_task(store.write(units.say, agent.id, "said"))
            await asyncio.sleep(0.05)
            assert await store.read(list_texts, agent.id) == []
            assert not unit.done()
            other.execute("COMMIT")
        await unit
        assert await store.read(list_texts, agent.id) == ["said"]


async def test_a_long_wait_for_another_process_ends_with_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite, "BUSY_TIMEOUT_S", 0.2)
    async with open_store(tmp_path) as store:
        agent = await store.write(units.add_agent)
        with closing(sqlite3.connect(tmp_path / "perdure.db", isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            with pytest.raises(StoreBusy, match="locked by another process"):
                await store.write(units.say, agent.id, "never said")
        await store.write(units.say, agent.id, "said")
        assert await store.read(list_texts, agent.id) == ["said"]


async def test_a_closed_store_refuses_units(tmp_path: Path) -> None:
    async with open_store(tmp_path) as store:
        pass
    with pytest.raises(StoreClosed):
        await store.write(thread_of)
    with pytest.raises(StoreClosed):
        await store.read(thread_of)


async def test_an_error_of_a_unit_is_gone_when_it_was_dealt_with(tmp_path: Path) -> None:
    """It holds what the unit had in hand, which may be much; the garbage collector may come late."""
    async with open_store(tmp_path) as store:

        def fails(tx: Tx) -> None:
            raise Defect

        gc.disable()
        try:
            try:
                await store.write(fails)
            except Defect as error:
                left = weakref.ref(error)
            assert await store.write(thread_of)  # the writer has let go of the unit before
            assert left() is None
        finally:
            gc.enable()
