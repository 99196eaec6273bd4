"""Whose job runs next, where more want to than can."""

from __future__ import annotations

import asyncio
import errno
import itertools
import os
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.core.tools.sandbox import SandboxJob, SandboxLimits, SandboxResult
from perdure.toolbox.sandbox.places import Places
from tests.toolbox.sandbox.cages import LIMITS, Cage


class Jobs:
    """Jobs that hold their places until they are told to end."""

    def __init__(self, concurrency: int) -> None:
        self.places = Places(concurrency, concurrency)
        self.running: list[tuple[str, asyncio.Event]] = []
        self.tasks: list[asyncio.Task[None]] = []

    async def start(self, owner: str, count: int = 1) -> None:
        self.tasks += [asyncio.create_task(self._run(owner)) for _ in range(count)]
        await self.settle()

    async def end_first(self) -> None:
        self.running[0][1].set()
        await self.settle()

    async def settle(self) -> None:
        for _ in range(5):
            await asyncio.sleep(0)

    @property
    def owners(self) -> Counter[str]:
        return Counter(owner for owner, _ in self.running)

    async def _run(self, owner: str) -> None:
        async with self.places.claim(owner):
            mine = (owner, asyncio.Event())
            self.running.append(mine)
            try:
                await mine[1].wait()
            finally:
                self.running.remove(mine)


async def test_one_owner_has_half_of_the_places() -> None:
    """However many of its jobs wait, another one's runs at once."""
    jobs = Jobs(8)

    await jobs.start("greedy", 100)
    await jobs.start("modest", 2)

    assert jobs.owners == {"greedy": 4, "modest": 2}


async def test_two_owners_together_leave_places_for_others() -> None:
    """An attacker may have two agents: however many calls they make, a third one's runs at once, and a fourth one's."""
    jobs = Jobs(8)
    await jobs.start("first", 100)
    await jobs.start("second", 100)
    assert jobs.owners == {"first": 4, "second": 2}

    await jobs.start("newcomer", 1)
    await jobs.start("another", 1)

    assert jobs.owners == {"first": 4, "second": 2, "newcomer": 1, "another": 1}


async def test_a_place_goes_to_who_has_the_fewest() -> None:
    """So a newcomer waits for the end of one job at most, however many others wait."""
    jobs = Jobs(4)
    for owner in "abc":
        await jobs.start(owner, 10)
    await jobs.start("newcomer", 1)
    assert jobs.owners == {"a": 2, "b": 1, "c": 1}

    await jobs.end_first()

    assert jobs.owners == {"a": 1, "b": 1, "c": 1, "newcomer": 1}


async def test_equals_take_turns() -> None:
    """With one place, whoever had it waits for all others, whatever the order they came in."""
    jobs = Jobs(1)
    order: list[str] = []
    await jobs.start("a", 3)
    await jobs.start("b", 2)
    await jobs.start("c", 1)

    for _ in range(6):
        order += jobs.owners
        await jobs.end_first()

    assert order == ["a", "b", "c", "a", "b", "a"]


@given(
    st.integers(min_value=1, max_value=9),
    st.lists(st.tuples(st.sampled_from(["start", "end", "cancel"]), st.sampled_from("abc")), max_size=40),
)
def test_places_are_never_lost_nor_doubled(concurrency: int, actions: list[tuple[str, str]]) -> None:
    """Whatever starts, ends and is cancelled: nobody past half, nobody waits who could run, and all end."""

    async def all_of_them() -> None:
        jobs = Jobs(concurrency)
        share = max(1, concurrency // 2)
        for action, owner in actions:
            if action == "start":
                await jobs.start(owner)
            elif action == "end" and jobs.running:
                await jobs.end_first()
            elif action == "cancel" and jobs.tasks:
                jobs.tasks[len(jobs.tasks) // 2].cancel()
                if jobs.running:
                    jobs.running[0][1].set()  # a place is given in the same moment
                await jobs.settle()
            else:
                continue
            running = jobs.owners
            assert running.total() <= concurrency
            free = concurrency - running.total()
            assert all(running[owner] >= min(share, free) for owner in jobs.places._queues)
            assert max(running.values(), default=0) <= share
        while jobs.running:
            await jobs.end_first()
        await asyncio.gather(*jobs.tasks, return_exceptions=True)
        assert not jobs.places._queues
        for owner in "ab":
            await jobs.start(owner, concurrency)
        assert jobs.owners["a"] == share
        assert jobs.owners["b"] == min(share, -(-(concurrency - share) // 2))
        while jobs.running:
            await jobs.end_first()

    asyncio.run(all_of_them())


def test_tools_of_one_agent_do_not_keep_others_queues(cage: Cage) -> None:
    """As many as there are places, that sleep for as long as they may: another agent's call does not notice."""
    limits = SandboxLimits(wall_s=30)

    async def run() -> SandboxResult:
        sleeper = SandboxJob(source="import time\ntime.sleep(30)", limits=limits, owner="agent-greedy")
        sleepers = [asyncio.create_task(cage.sandbox.run(sleeper)) for _ in range(20)]
        await asyncio.sleep(0.3)
        async with asyncio.timeout(20):
            result = await cage.sandbox.run(SandboxJob(source="1 + 1", limits=limits, owner="agent-modest"))
        assert not any(task.done() for task in sleepers)
        for task in sleepers:
            task.cancel()
        await asyncio.gather(*sleepers, return_exceptions=True)
        return result

    assert cage.wait(run()).value == 2


def test_no_call_takes_longer_than_the_setting() -> None:
    """Also of a tool that was made when more was allowed."""
    cage = Cage(timeout_s=0.3)
    try:
        result = cage.run("import time\ntime.sleep(20)", limits=SandboxLimits(wall_s=3_000))
    finally:
        cage.close()

    assert (result.status, result.error) == ("timeout", "it did not end within 0.3 s, and was stopped")


@pytest.mark.parametrize("when", ["waiting", "served"])
async def test_who_gives_up_keeps_no_place(when: str) -> None:
    """Whether it waited still, or had been given its place in the same moment: the next one gets it."""
    places = Places(1, 1)

    async def wait() -> None:
        async with places.claim("second"):
            raise AssertionError("it had given up")

    async with places.claim("first"):
        waiter = asyncio.create_task(wait())
        await asyncio.sleep(0)
        if when == "waiting":
            waiter.cancel()
    waiter.cancel()
    await asyncio.gather(waiter, return_exceptions=True)

    async with asyncio.timeout(5), places.claim("third"):
        assert not places._queues


def test_a_server_out_of_open_files_loses_no_place(monkeypatch: pytest.MonkeyPatch) -> None:
    """The pipes of a call can't be made for a while: what was made of them is closed, and later calls run."""
    small = Cage(concurrency=1)

    def few_pipes(made: Iterator[int], pipe: Callable[[], tuple[int, int]] = os.pipe) -> tuple[int, int]:
        if next(made) % 3 == 2:
            raise OSError(errno.EMFILE, "Too many open files")
        return pipe()

    try:
        assert small.run("1").value == 1
        files = len([*Path("/proc/self/fd").iterdir()])
        monkeypatch.setattr(os, "pipe", partial(few_pipes, itertools.count()))
        for _ in range(4):
            with pytest.raises(OSError, match="Too many open files"):
                small.wait(asyncio.wait_for(small.sandbox.run(SandboxJob(source="1", limits=LIMITS)), 5))
        monkeypatch.undo()
        assert len([*Path("/proc/self/fd").iterdir()]) == files
        assert small.run("2").value == 2
    finally:
        small.close()
