"""How many jobs run at a time, whose turn it is, and which number each of their processes has."""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class Places:
    """Places for jobs, and slots for processes: a process may end a little later than its job.

    One owner has at most half of the places, and never more than were free when it took its last: of 8 places the first
    can have 4, then a second 2, a third 1, a fourth 1. So few together can't keep a newcomer waiting, however long
    their jobs take. A place goes to the owner who has the fewest, and among equals to who was served longest ago.
    """

    def __init__(self, concurrency: int, slots: int) -> None:
        self._free = concurrency
        self._share = max(1, concurrency // 2)
        self._held: Counter[str] = Counter()
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}  # by owner
        self._turns = 0
        self._last_turn: dict[str, int] = {}  # of owners who hold or wait
        self._slots: asyncio.Queue[int] = asyncio.Queue()
        for slot in range(slots):
            self._slots.put_nowait(slot)

    @property
    def waiting(self) -> bool:
        """Whether a job waits for a place."""
        return bool(self._waiting)

    @asynccontextmanager
    async def taken(self, owner: str) -> AsyncIterator[None]:
        """A place, as soon as it is this owner's turn. Jobs of nobody in particular have one owner, an empty text."""
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(owner, deque()).append(turn)
        self._give()
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():  # it had just got its place
                self._take_back(owner)
            else:
                self._leave(owner, turn)
            raise
        try:
            yield
        finally:
            self._take_back(owner)

    async def slot(self) -> int:
        return await self._slots.get()

    def free(self, slot: int) -> None:
        self._slots.put_nowait(slot)

    def _give(self) -> None:
        """Give free places to those whose turn it is."""
        while self._free:
            ready = [owner for owner in self._waiting if self._held[owner] < min(self._share, self._free)]
            if not ready:
                return
            owner = min(ready, key=lambda owner: (self._held[owner], self._last_turn.get(owner, 0)))
            turn = self._waiting[owner].popleft()
            if not self._waiting[owner]:
                del self._waiting[owner]
            if turn.done():  # cancelled, and does not know it yet
                continue
            self._turns += 1
            self._last_turn[owner] = self._turns
            self._free -= 1
            self._held[owner] += 1
            turn.set_result(None)

    def _take_back(self, owner: str) -> None:
        self._free += 1
        self._held[owner] -= 1
        self._give()
        self._forget_idle(owner)

    def _leave(self, owner: str, turn: asyncio.Future[None]) -> None:
        queue = self._waiting.get(owner, deque())
        if turn in queue:
            queue.remove(turn)
            if not queue:
                del self._waiting[owner]
        self._forget_idle(owner)

    def _forget_idle(self, owner: str) -> None:
        if not self._held[owner]:
            del self._held[owner]
            if owner not in self._waiting:
                self._last_turn.pop(owner, None)
