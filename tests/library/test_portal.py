"""One event loop in one thread: who is told to be alone, and what becomes of tasks when the loop stops."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Iterator
from pathlib import Path

import pytest

from perdure.core.callers import is_alone
from perdure.core.errors import StoreError
from perdure.library.portal import Portal
from perdure.testing import calls, says
from tests.library.opened import open_sync


@pytest.fixture
def portal() -> Iterator[Portal]:
    made = Portal()
    yield made
    made.close()


async def alone() -> bool:
    return is_alone()


def test_a_loop_that_a_tool_runs_in_its_own_thread_is_not_ours(portal: Portal) -> None:
    """The thread has the context of the call; others may wait for what goes on in that loop."""

    async def call() -> tuple[bool, bool]:
        return await asyncio.to_thread(lambda: asyncio.run(alone())), is_alone()

    assert portal.run(call()) == (False, True)


def test_nobody_is_alone_while_runs_of_several_conversations_go_on(tmp_path: Path) -> None:
    """One thread may start many runs: what they write at once shares a flush of the disk."""
    answers: list[tuple[int, bool]] = []
    barriers = {runs: asyncio.Barrier(runs) for runs in (1, 2)}

    async def look(runs: int) -> str:
        """Look around.

        Args:
            runs: how many look at once
        """
        await barriers[runs].wait()
        answers.append((runs, is_alone()))
        await barriers[runs].wait()  # none has ended before all have looked
        return ""

    script = [calls("look", runs=1), says("OK."), calls("look", runs=2), calls("look", runs=2)]
    with open_sync(tmp_path / "agents.db", *script, tools=[look]) as perdure:
        perdure.create_agent().send("go")
        perdure.create_agent().submit("go")
        perdure.create_agent().send("go")
    assert answers == [(1, True), (2, False), (2, False)]


def test_what_still_waits_in_a_loop_that_a_tool_stopped_is_ended(
    portal: Portal, caplog: pytest.LogCaptureFixture
) -> None:
    ended: list[str] = []

    async def other() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            ended.append("other")

    async def stop() -> None:
        task = asyncio.create_task(other())
        await asyncio.sleep(0)
        asyncio.get_running_loop().stop()
        try:
            await task
        finally:
            ended.append("stopper")
            asyncio.get_running_loop().stop()

    with pytest.raises(StoreError, match="stopped by a tool"):
        portal.run(stop())
    portal.close()
    assert sorted(ended) == ["other", "stopper"]
    gc.collect()  # a task that still waits is complained of when it is destroyed
    assert not caplog.records
