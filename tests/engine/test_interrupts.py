"""Interrupting what a task waits for."""

from __future__ import annotations

import asyncio
import gc

import pytest

from perdure.engine.run.interrupts import Interrupted, Interruptible, to_the_end


async def test_a_fired_block_raises_interrupted_and_the_task_goes_on() -> None:
    """The cancellation is taken back at the end of the block."""
    waiting = Interruptible()
    asyncio.get_running_loop().call_soon(waiting.fire)

    with pytest.raises(Interrupted):
        async with waiting:
            await asyncio.sleep(60)

    await asyncio.sleep(0)  # a cancellation that was left behind would strike here


async def test_a_given_reason_is_raised_instead() -> None:
    """A lost lease is told apart from a cancelled run."""
    waiting = Interruptible()
    asyncio.get_running_loop().call_soon(waiting.fire, KeyError("lost"))

    with pytest.raises(KeyError, match="lost"):
        async with waiting:
            await asyncio.sleep(60)


async def test_a_cancellation_from_outside_stays_one() -> None:
    """Who cancels the task itself is not fooled."""
    started = asyncio.Event()

    async def work() -> None:
        async with Interruptible():
            started.set()
            await asyncio.sleep(60)

    task = asyncio.create_task(work())
    await started.wait()
    task.cancel()

    with pytest.raises(asyncio.CancelledError):
        await task


async def test_firing_outside_the_block_does_nothing() -> None:
    """Neither before nor after."""
    waiting = Interruptible()
    waiting.fire()
    async with waiting:
        await asyncio.sleep(0)
    waiting.fire()
    await asyncio.sleep(0)

    assert asyncio.current_task().cancelling() == 0  # type: ignore[union-attr]


async def test_the_error_of_abandoned_work_is_not_reported_as_unseen() -> None:
    """Whoever was interrupted over it hears that it was interrupted; asyncio has nothing to complain of."""
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
    waiter.cancel()  # now it does not wait for the end of the work any more
    with pytest.raises(asyncio.CancelledError):
        await waiter
    go_on.set()
    await asyncio.sleep(0)
    del waiter
    gc.collect()

    assert reports == []
