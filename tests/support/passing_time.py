"""Time that passes when a test says so, instead of when the machine is quick enough."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any

from perdure.testing import HttpModel

HANGS_S = 5.0
"""A time limit that no answer needs; `when_it_hangs` lets it pass at once."""

READ_STEPS = 100
"""So many steps of the loop, and whoever waits in it has read what was sent to it."""


class Clock:
    """The clock of a loop, `ahead_s` seconds ahead of the real one."""

    def __init__(self, real: Callable[[], float]) -> None:
        self._real, self.ahead_s = real, 0.0

    def __call__(self) -> float:
        return self._real() + self.ahead_s


def time_passes(seconds: float) -> None:
    """Move the clock of the running loop on: what was to happen by then happens now. Whoever took `loop.time` before
    the first call has the real clock."""
    loop: Any = asyncio.get_running_loop()
    if not isinstance(loop.time, Clock):
        loop.time = Clock(loop.time)
    loop.time.ahead_s += seconds


@contextlib.asynccontextmanager
async def when_it_hangs(server: HttpModel, *, seconds: float = HANGS_S) -> AsyncIterator[None]:
    """Whenever the server hangs, and what it said before was read, let so much time pass."""

    async def pass_time() -> None:
        while True:
            await server.hanging.wait()
            server.hanging.clear()
            for _ in range(READ_STEPS):
                await asyncio.sleep(0)
            time_passes(seconds)

    time_passes(0)
    passing = asyncio.create_task(pass_time())
    try:
        yield
    finally:
        passing.cancel()
