"""Tasks of asyncio: wait for an event for some time, end tasks, and take note of their errors."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any


async def wait_for(event: asyncio.Event, most_s: float | None) -> None:
    """Wait for an event, at most so long.

    Not `asyncio.wait_for`: before Python 3.12 it swallows a cancellation that comes together with the event.
    """
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(most_s):
            await event.wait()


async def end_tasks(*tasks: asyncio.Future[Any] | None) -> None:
    """Cancel tasks and wait until they have ended; their errors are dropped. None: it was never begun."""
    begun = [task for task in tasks if task is not None]
    for task in begun:
        task.cancel()
    await asyncio.gather(*begun, return_exceptions=True)


def retrieve_error(task: asyncio.Future[Any]) -> None:
    """Mark a task's error as retrieved, or asyncio would log that nobody did; whoever waits gets it all the same."""
    if not task.cancelled():
        task.exception()
