"""Connections to PostgreSQL that are lost: nothing is lost or done twice, and what is unknown is said to be."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from perdure.core.agents import AgentFilter
from perdure.core.errors import StoreUnavailable
from perdure.storage.stores.postgres_store import PostgresStore
from perdure.storage.tx import Tx
from perdure.testing.clock import START
from tests.contracts.base import Contract
from tests.support.cut_lines import Cut, CutLine
from tests.support.own_postgres import own_postgres
from tests.support.postgres_server import address_of_an_empty_store, run_sql

units = Contract()


@pytest.fixture
def address() -> str:
    return address_of_an_empty_store()


@asynccontextmanager
async def store_behind_a_line(
    address: str, *, patience_s: float = 20.0
) -> AsyncIterator[tuple[PostgresStore, CutLine]]:
    line = CutLine(address)
    async with line.serving() as near:
        store = await PostgresStore.open(near, at=START, patience_s=patience_s)
        try:
            yield store, line
        finally:
            line.cut = ""
            await store.close()


def count_agents(tx: Tx) -> int:
    return tx.agents.count(AgentFilter())


@pytest.mark.parametrize("cut", ["before commit", "after commit"])
async def test_a_write_whose_line_is_cut_at_its_commit_is_made_once(address: str, cut: Cut) -> None:
    """It is run again if the database says that it was not committed, and returned if it was."""
    async with store_behind_a_line(address) as (store, line):
        runs = 0

        def unit(tx: Tx) -> str:
            nonlocal runs
            runs += 1
            return units.add_agent(tx, name=f"agent {runs}").name

        line.cut = cut
        name = await store.write(unit)

        assert line.cuts == 1
        assert (runs, name) == ((2, "agent 2") if cut == "before commit" else (1, "agent 1"))
        assert await store.read(count_agents) == 1


async def test_a_server_that_comes_back_is_waited_for(address: str) -> None:
    """Reads and writes that begin meanwhile end well."""
    async with store_behind_a_line(address) as (store, line):
        await asyncio.gather(*(store.write(units.add_agent, name=f"before {number}") for number in range(8)))
        line.cut = line.then = "dead"
        waiting = [asyncio.ensure_future(store.write(units.add_agent, name=f"while {number}")) for number in range(8)]
        read = asyncio.ensure_future(store.read(count_agents))
        await asyncio.sleep(0.3)
        assert not any(one.done() for one in (*waiting, read))
        line.cut = line.then = ""

        await asyncio.gather(*waiting)
        assert 8 <= await read <= 16
        assert await store.read(count_agents) == 16


async def test_a_server_that_stays_away_is_an_error_after_a_while(address: str) -> None:
    """It says that nothing was written, or that this is not known."""
    async with store_behind_a_line(address, patience_s=0.3) as (store, line):
        line.cut, line.then = "after commit", "dead"
        with pytest.raises(StoreUnavailable, match="unknown") as unknown:
            await store.write(units.add_agent, name="one")
        with pytest.raises(StoreUnavailable, match="reached") as known:
            await store.write(units.add_agent, name="two")

        assert (unknown.value.outcome_unknown, known.value.outcome_unknown) == (True, False)


async def test_what_others_hear(address: str) -> None:
    """The topics of commits, not of units that failed; and after a connection was made that some may be missing."""
    async with store_behind_a_line(address) as (store, _):
        other, heard = await PostgresStore.open(address, at=START), asyncio.Queue[object]()
        try:
            assert other.listen(heard.put_nowait)
            assert await asyncio.wait_for(heard.get(), 10) is None

            def refused(tx: Tx) -> None:
                tx.agents._db.signal("run agent-1 1")
                raise ValueError

            with pytest.raises(ValueError):
                await store.write(refused)
            await store.write(lambda tx: tx.agents._db.signal("run agent-1 2"))

            assert await asyncio.wait_for(heard.get(), 10) == ["run agent-1 2"]
            await other.write(lambda tx: tx.agents._db.signal("run agent-1 3"))
            await store.write(lambda tx: tx.agents._db.signal("run agent-1 4"))
            assert await asyncio.wait_for(heard.get(), 10) == ["run agent-1 4"]  # not what it has told itself
        finally:
            await other.close()


async def test_a_commit_that_a_crash_undid_is_made_again_though_its_number_was_given_to_another() -> None:
    """PostgreSQL gives the number of a transaction that did not reach the disk to another after a crash, so the number
    says "committed" of a transaction that is gone."""
    with own_postgres() as server:
        async with store_behind_a_line(server.address) as (store, line):
            await store.write(units.add_agent, name="before")
            line.cut, line.then = "before commit", "dead"
            lost = asyncio.ensure_future(store.write(units.add_agent, name="lost"))
            await line.refusals.acquire()
            server.stop("immediate")
            server.start()
            for number in range(50):
                run_sql(server.address, f"CREATE TABLE other_{number} (one INTEGER)")
            line.cut = line.then = ""
            await lost

            assert await store.read(count_agents) == 2


async def test_a_write_that_changes_nothing_leaves_no_mark(address: str) -> None:
    """A mark would cost a write to the disk each time that somebody looks for work."""
    store = await PostgresStore.open(address, at=START)
    try:
        marks = "SELECT slot FROM commit_marks"
        before = run_sql(address, marks)
        await store.write(count_agents)
        await store.write(lambda tx: tx.runs.release("nobody"))
        assert run_sql(address, marks) == before
        await store.write(units.add_agent)
        assert len(run_sql(address, marks)) == len(before) + 1
    finally:
        await store.close()
