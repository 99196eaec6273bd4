"""A process that is about to end: it begins nothing, lets runs end, and another process goes on with what is left."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from perdure import AsyncPerdure
from perdure.core.errors import StoreClosed
from perdure.core.events import RunStarted, StepAbandoned, StoredEvent
from perdure.core.runs import Run, RunFilter
from perdure.testing import calls, says
from tests.support.two_apps import MODEL, STORES, Gate, address_of, two_apps

pytestmark = pytest.mark.parametrize("store", STORES)
TOOL = calls("archival_memory_insert", content="It rains.")


async def runs_of(perdure: AsyncPerdure) -> list[Run]:
    """All runs, oldest first."""
    return [*await perdure.app.store.read(lambda tx: tx.runs.page(RunFilter(), newest_first=False))]


async def test_a_run_under_way_ends_and_none_is_begun(store: str, tmp_path: Path) -> None:
    """Its caller gets the answer; who comes later is told to come again."""
    gate = Gate(TOOL, says("done"))
    async with two_apps(await address_of(store, tmp_path), gate) as (first, _):
        agent = await first.create_agent("a", model=MODEL)
        sending = asyncio.create_task(agent.send("hello"))
        await gate.reached(1)
        draining = asyncio.create_task(first.app.drain(20))
        await asyncio.sleep(0)
        with pytest.raises(StoreClosed, match="about to end"):
            await agent.send("later")
        assert not draining.done()
        gate.let(2)
        async with asyncio.timeout(10):
            await draining

        assert (await sending).text == "done"
        assert [run.status for run in await runs_of(first)] == ["completed"]


async def test_a_run_that_takes_longer_goes_on_elsewhere_at_once(store: str, tmp_path: Path) -> None:
    """It changes hands between two steps: no model call is made twice, and its reader sees the end of it."""
    gate = Gate(TOOL, says("done"))
    async with two_apps(await address_of(store, tmp_path), gate) as (first, second):
        agent = await first.create_agent("a", model=MODEL)
        accepted = await agent.submit("hello")
        reading = asyncio.create_task(_read(first, accepted.run))
        await gate.reached(1)
        draining = asyncio.create_task(first.app.drain(0.2))
        await asyncio.sleep(0.12)  # the first half is over
        gate.let()
        await draining
        (run,) = await runs_of(first)
        if run.lease_owner is None:  # else it was taken over already
            await second.app.runner.recover()
        gate.let()
        async with asyncio.timeout(10):
            events = await reading

        assert gate.asked == 2
        assert [event.event.lease_number for event in events if isinstance(event.event, RunStarted)] == [1, 2]
        assert not any(isinstance(event.event, StepAbandoned) for event in events)


async def test_what_does_not_end_in_time_is_begun_again_elsewhere(store: str, tmp_path: Path) -> None:
    """Nobody waits for the lease: it is released with the process's last write."""
    gate = Gate(says("done"))
    async with two_apps(await address_of(store, tmp_path), gate) as (first, second):
        agent = await first.create_agent("a", model=MODEL)
        accepted = await agent.submit("hello")
        await gate.reached(1)
        await first.app.drain(0.05)
        await first.close()
        await second.app.runner.recover()
        await gate.reached(2)
        gate.let()
        async with asyncio.timeout(10):
            events = await _read(second, accepted.run)

        assert sum(isinstance(event.event, StepAbandoned) for event in events) == 1


async def test_a_message_that_waits_is_left_to_others(store: str, tmp_path: Path) -> None:
    """It stands behind a run of the process that ends, which does not begin it afterwards."""
    gate = Gate(says("done"))
    async with two_apps(await address_of(store, tmp_path), gate) as (first, second):
        agent = await first.create_agent("a", model=MODEL)
        await agent.submit("one")
        await gate.reached(1)
        waiting = await agent.submit("two")
        draining = asyncio.create_task(first.app.drain(20))
        await asyncio.sleep(0)
        gate.let()
        await draining
        assert [run.lease_owner for run in await runs_of(first) if not run.ended] in ([None], [])
        await second.app.runner.recover()
        gate.let()
        async with asyncio.timeout(10):
            await _read(second, waiting.run)

        owners = [run.status for run in await runs_of(second)]
        assert owners == ["completed", "completed"]


async def _read(perdure: AsyncPerdure, run: Run) -> list[StoredEvent]:
    """The events of a run, when it has ended."""
    return [sent async for sent in perdure.app.runner.follow(run) if isinstance(sent, StoredEvent)]
