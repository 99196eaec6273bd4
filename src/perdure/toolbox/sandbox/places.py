"""How many jobs run at a time, and which number each of their processes has."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

__all__ = ["Places"]


class Places:
    """Places for jobs, and slots for processes: a process may end a little later than its job."""

    def __init__(self, concurrency: int, slots: int) -> None:
        self._jobs = asyncio.Semaphore(concurrency)
        self._slots: asyncio.Queue[int] = asyncio.Queue()
        for slot in range(slots):
            self._slots.put_nowait(slot)

    @property
    def waiting(self) -> bool:
        """Whether a job waits for a place."""
        return self._jobs.locked()

    @asynccontextmanager
    async def taken(self) -> AsyncIterator[None]:
        async with self._jobs:
            yield

    async def slot(self) -> int:
        return await self._slots.get()

    def free(self, slot: int) -> None:
        self._slots.put_nowait(slot)
