"""Time that passes when a test says so, instead of when the machine is quick enough."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

from perdure.testing import HttpModel

HANGS_S = 5.0
"""A time limit that no answer needs; `when_it_hangs` lets it pass at once."""

READ_STEPS = 100
"""So many steps of the loop, and whoever waits in it has read what was sent to it."""


def time_passes(seconds: float) -> None:
    """Move the clock of the running loop on: what was to happen by then happens now."""
    loop = asyncio.get_running_loop()
    before = loop.time

    def later() -> float:
        return before() + seconds

    loop.time = later  # type: ignore[method-assign]


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

    passing = asyncio.create_task(pass_time())
    try:
        yield
    finally:
        passing.cancel()
