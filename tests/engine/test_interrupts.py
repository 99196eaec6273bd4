"""Interrupting what a task waits for while it holds a run."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator
from typing import Any

import anyio
import pytest

from perdure import AsyncPerdure
from perdure.core.ids import AgentId, ConversationId, RunId
from perdure.core.runs import Run, RunKey
from perdure.core.tasks import to_the_end
from perdure.engine.log.interrupts import WaitInterrupted
from perdure.engine.ports import Ports
from perdure.engine.records.leases import holding
from perdure.testing import InlineStore
from perdure.testing.clock import START

RUN = Run(
    id=RunId("run-1"),
    key=RunKey(AgentId("agent-1"), 0),
    conversation_seq=0,
    conversation_id=ConversationId("conv-1"),
    status="running",
    created_at=START,
)


@pytest.fixture
async def ports() -> AsyncIterator[Ports]:
    async with await AsyncPerdure.open(store=InlineStore(), models={}) as perdure:
        yield perdure.app.ports


async def test_an_interrupted_block_raises_and_the_task_goes_on(ports: Ports) -> None:
    """The cancellation is taken back at the end of the block."""
    with pytest.raises(WaitInterrupted):
        async with holding(RUN, ports):
            asyncio.get_running_loop().call_soon(ports.interrupts[RUN.key].fire)
            await asyncio.sleep(60)

    await asyncio.sleep(0)  # a cancellation that was left behind would strike here


async def test_a_given_reason_is_raised_instead(ports: Ports) -> None:
    """A lost lease is told apart from a cancelled run."""
    with pytest.raises(KeyError, match="lost"):
        async with holding(RUN, ports):
            asyncio.get_running_loop().call_soon(ports.interrupts[RUN.key].fire, KeyError("lost"))
            await asyncio.sleep(60)


async def test_an_error_of_an_interrupted_block_is_raised_and_the_task_goes_on(ports: Ports) -> None:
    """An adapter may turn the cancellation into an error of its own."""
    with pytest.raises(ZeroDivisionError):
        async with holding(RUN, ports):
            asyncio.get_running_loop().call_soon(ports.interrupts[RUN.key].fire)
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                raise ZeroDivisionError from None

    assert asyncio.current_task().cancelling() == 0  # type: ignore[union-attr]


async def test_a_cancellation_from_outside_stays_one(ports: Ports) -> None:
    """Who cancels the task itself is not fooled."""
    started = asyncio.Event()

    async def work() -> None:
        async with holding(RUN, ports):
            started.set()
            await asyncio.sleep(60)

    task = asyncio.create_task(work())
    await started.wait()
    task.cancel()

    with pytest.raises(asyncio.CancelledError):
        await task


async def test_nothing_can_be_interrupted_after_the_block(ports: Ports) -> None:
    """Whoever cancels the run then finds no wait to end."""
    async with holding(RUN, ports):
        await asyncio.sleep(0)

    assert not ports.interrupts


async def test_work_ends_before_its_caller_however_often_that_is_cancelled() -> None:
    """The caller hears that it was cancelled, not the error of the work; asyncio has nothing to complain of."""
    reports: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: reports.append(context))
    begun, go_on = asyncio.Event(), asyncio.Event()

    async def fail() -> None:
        begun.set()
        await go_on.wait()
        raise OSError("the disk is full")

    async def wait() -> None:
        await to_the_end(fail())

    waiter = asyncio.create_task(wait())
    await begun.wait()
    waiter.cancel()
    await asyncio.sleep(0)
    waiter.cancel()
    await asyncio.sleep(0)
    assert not waiter.done()
    go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await waiter
    del waiter
    gc.collect()

    assert reports == []


async def test_who_waits_to_the_end_in_a_cancelled_scope_does_not_keep_the_loop_busy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A scope of anyio, as a streamed answer has one, cancels its task again and again."""
    looks: list[object] = []
    wait = asyncio.wait

    def counted(tasks: Any, **options: Any) -> Any:
        looks.append(tasks)
        return wait(tasks, **options)

    async def work() -> None:
        for _ in range(100):
            await asyncio.sleep(0)

    monkeypatch.setattr(asyncio, "wait", counted)
    with anyio.CancelScope() as scope:
        scope.cancel()
        await to_the_end(work())

    assert scope.cancelled_caught and len(looks) <= 3
