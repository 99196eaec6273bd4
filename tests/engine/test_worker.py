"""The loop of all background workers."""

from __future__ import annotations

import asyncio
import gc
import itertools
import logging

import pytest

from perdure.core.conversations import ConversationKey
from perdure.core.errors import NotFound, StoreBusy, StoreClosed, StoreError, StoreUnavailable
from perdure.core.ids import AgentId
from perdure.engine.workers.background import KeyedWorker
from perdure.engine.workers.worker import Worker


class Looks:
    """What a worker does, and what comes of each look: an error, or when to look again. Then it waits to be woken."""

    def __init__(self, *outcomes: Exception | float) -> None:
        self._outcomes, self.count, self.last = list(outcomes), 0, asyncio.Event()

    async def look(self) -> float | None:
        self.count += 1
        if not self._outcomes:
            self.last.set()
            return None
        outcome = self._outcomes.pop(0)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome


async def steps(count: int = 20) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


@pytest.mark.parametrize("error", [StoreUnavailable("no space left"), RuntimeError("a defect")])
async def test_no_error_ends_a_worker(error: Exception, caplog: pytest.LogCaptureFixture) -> None:
    """Neither one of the store nor a defect: it is in the log, and the worker looks again."""
    looks = Looks(error)
    worker = Worker("counting", looks.look, 0.0)

    await worker.start()
    await looks.last.wait()
    await worker.close()

    (record,) = caplog.records
    assert record.getMessage().startswith("counting ")
    assert (record.levelno == logging.WARNING) == isinstance(error, StoreError)


async def test_a_closed_store_ends_a_worker() -> None:
    looks = Looks(StoreClosed(), 0.0)
    worker = Worker("counting", looks.look, 0.0)

    await worker.start()
    await asyncio.gather(*worker.tasks)

    assert looks.count == 1


def test_work_that_is_stopped_before_its_first_step_is_never_made(recwarn: pytest.WarningsRecorder) -> None:
    """Else Python warns of a coroutine that nobody awaited, in whatever runs next."""
    pieces = iter(["piece"])

    async def claim() -> str | None:
        return next(pieces, None)

    async def work(piece: str) -> None:
        raise AssertionError(piece)

    async def take_and_close() -> None:
        worker = Worker("counting", Looks().look, None)
        await worker.take(claim, work, at_once=1)
        await worker.close()

    asyncio.run(take_and_close())
    gc.collect()

    assert not recwarn.list


@pytest.mark.parametrize("when", range(6))
async def test_a_worker_that_is_woken_looks_again(when: int) -> None:
    """Whether it waits then, or is about to."""
    looks = Looks()
    worker = Worker("counting", looks.look, None)

    await worker.start()
    await steps(when)
    before = looks.count
    worker.wake()
    await steps()

    assert looks.count == before + 1
    await worker.close()


async def test_only_an_error_that_lasts_holds_work_up() -> None:
    """A busy store passes by itself; a full disk is told to those who wait for the work."""
    full, looks = StoreUnavailable("no space left"), Looks(StoreBusy("locked"), 0.0)
    worker = Worker("counting", looks.look, 0.0)

    await worker.start()
    await looks.last.wait()
    assert worker.held_up is None
    worker.hold_up(full)
    assert worker.held_up is full
    await worker.close()


async def test_pieces_of_work_are_bounded_and_followed_by_others() -> None:
    """Of five pieces at most two are worked on at once; the end of one wakes the worker, which takes the next."""
    waiting, done, busiest, busy = [1, 2, 3, 4, 5], list[int](), 0, 0

    async def claim() -> int | None:
        return waiting.pop(0) if waiting else None

    async def work(piece: int) -> None:
        nonlocal busiest, busy
        busy += 1
        busiest = max(busiest, busy)
        await steps(3)
        busy -= 1
        done.append(piece)

    async def look() -> None:
        await worker.take(claim, work, at_once=2)

    worker = Worker("counting", look, None)
    await worker.start()
    await steps(200)

    assert (sorted(done), busiest, len(worker.tasks)) == ([1, 2, 3, 4, 5], 2, 1)
    await worker.close()


@pytest.mark.parametrize("error", [StoreUnavailable("no space left"), RuntimeError("a defect")])
async def test_a_piece_that_fails_is_met_again_after_a_pause(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its claim may be released at once, and others wait behind it: the worker neither spins nor stands still."""
    monkeypatch.setattr("perdure.engine.workers.worker.PAUSE_S", 0.05)
    begun, done = list[float](), asyncio.Event()
    time = asyncio.get_running_loop().time

    async def claim() -> int | None:
        return None if done.is_set() else 1

    async def work(piece: int) -> None:
        begun.append(time())
        if len(begun) < 3:
            raise error
        done.set()

    async def look() -> None:
        await worker.take(claim, work, at_once=1)

    worker = Worker("counting", look, None)
    await worker.start()
    await done.wait()
    await worker.close()

    assert all(later - before >= 0.05 for before, later in itertools.pairwise(begun))


async def test_close_ends_what_was_begun() -> None:
    """A piece that hangs is cancelled, and `close` returns once it has ended."""
    ended = list[bool]()

    async def claim() -> int | None:
        return None if ended else 1

    async def hang(piece: int) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(True)

    async def look() -> None:
        await worker.take(claim, hang, at_once=1)

    worker = Worker("counting", look, None)
    await worker.start()
    await steps()
    await worker.close()

    assert ended == [True]
    assert all(task.done() for task in worker.tasks)


@pytest.mark.parametrize("error", [StoreUnavailable("no space left"), RuntimeError("a defect")])
async def test_work_on_a_conversation_that_fails_is_logged_and_begun_again(
    error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    """Whatever it fails of; and what was deleted meanwhile is not worth a word."""
    outcomes: list[Exception | None] = [error, NotFound("agent", "agent-1"), None]
    done = list[ConversationKey]()

    async def work(line: ConversationKey) -> None:
        if (outcome := outcomes.pop(0)) is not None:
            raise outcome
        done.append(line)

    worker, line = KeyedWorker("counting", work), (AgentId("agent-1"), 3)
    for _ in range(3):
        worker.start(line)
        await worker.close()

    assert done == [line]
    (record,) = caplog.records
    assert record.getMessage().startswith("counting of conversation 3 of agent-1")
