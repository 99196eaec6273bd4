"""Background work waits for a pause of the foreground, and takes a small share of the time where there is none."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from perdure.engine.workers.background import BUSY_SHARE, Pauses
from tests.support.passing_time import time_passes

QUIET_S, WAIT_S, PIECE_S = 1.0, 10.0, 0.5


class Stage:
    """Requests that begin and end when a test says so, and work whose pieces take half a second each."""

    def __init__(self) -> None:
        self.requests = self.pieces = 0
        self.pauses = Pauses(lambda: self.requests > 0, quiet_s=QUIET_S, wait_s=WAIT_S)

    def begin(self) -> None:
        self.pauses.note_begin()
        self.requests += 1

    def end(self) -> None:
        self.requests -= 1
        self.pauses.note_end()

    async def work(self) -> None:
        while True:
            async with self.pauses.piece():
                self.pieces += 1
                time_passes(PIECE_S)
            await asyncio.sleep(PIECE_S / 10)  # a machine that is busy may take a few milliseconds for 20 turns

    async def pieces_after(self, seconds: float) -> int:
        """Let time pass; return how many pieces have begun by then."""
        time_passes(seconds)
        for _ in range(20):
            await asyncio.sleep(0)
        return self.pieces


@pytest.fixture
async def stage() -> AsyncIterator[Stage]:
    stage = Stage()
    stage.begin()
    task = asyncio.create_task(stage.work())
    await stage.pieces_after(0)
    yield stage
    task.cancel()


async def test_work_begins_when_requests_have_paused_for_a_moment(stage: Stage) -> None:
    """Until the next one comes; a short gap is no pause."""
    assert await stage.pieces_after(5) == 0
    stage.end()
    assert await stage.pieces_after(QUIET_S / 2) == 0
    stage.begin()
    stage.end()
    assert await stage.pieces_after(QUIET_S / 2) == 0
    assert await stage.pieces_after(QUIET_S) == 1
    stage.begin()

    assert await stage.pieces_after(5) == 1


async def test_work_without_a_pause_takes_a_small_share_of_the_time(stage: Stage) -> None:
    assert await stage.pieces_after(WAIT_S - 1) == 0
    assert await stage.pieces_after(2) == 1
    assert await stage.pieces_after(PIECE_S / BUSY_SHARE - 2 * PIECE_S) == 1
    assert await stage.pieces_after(2 * PIECE_S) == 2


async def test_a_process_that_ends_lets_work_go_on(stage: Stage) -> None:
    stage.pauses.end()

    assert await stage.pieces_after(0) == 1
