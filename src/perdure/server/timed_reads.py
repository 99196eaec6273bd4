"""Reads of the store with a short time limit, for probes and for `/metrics`, which can't wait for a store that is away.
Other requests wait up to 30 s for it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

from perdure.core.errors import StoreUnavailable
from perdure.core.tasks import retrieve_error

T = TypeVar("T")

READY_S = 2.0
"""How long `/v1/ready/` waits for the store, in seconds."""
KEY_S, QUEUES_S = 0.5, 1.5
"""How long `/metrics` waits for its key, and then for the lengths of queues, in seconds."""


async def wait_within(seconds: float, work: Awaitable[T]) -> T:
    """What the work returns. It goes on if it takes longer: a thread that waits for a database can't be stopped.

    Raises: StoreUnavailable: it took longer; what the work raises.
    """
    task = asyncio.ensure_future(work)
    task.add_done_callback(retrieve_error)
    done, _ = await asyncio.wait({task}, timeout=seconds)
    if not done:
        raise StoreUnavailable(f"the store has not answered for {seconds:g} s")
    return task.result()


class TimedRead(Generic[T]):
    """A read that each caller waits for up to so many seconds. While one takes longer, further callers wait for the
    same one, so that probes never take up all threads."""

    def __init__(self, seconds: float, read: Callable[[], Awaitable[T]]) -> None:
        self._seconds, self._read = seconds, read
        self._task: asyncio.Future[T] | None = None

    async def __call__(self) -> T:
        """What was read. Raises: StoreError; StoreUnavailable: it took longer."""
        if self._task is None or self._task.done():
            self._task = asyncio.ensure_future(self._read())
        return await wait_within(self._seconds, self._task)
