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
        self._owner_max = max(1, concurrency // 2)
        self._places_of: Counter[str] = Counter()  # by owner
        self._queues: dict[str, deque[asyncio.Future[None]]] = {}  # by owner, of jobs that wait
        self._turns = 0
        self._last_turn: dict[str, int] = {}  # of owners who hold a place or wait for one
        self.free_slots: asyncio.Queue[int] = asyncio.Queue()
        for slot in range(slots):
            self.free_slots.put_nowait(slot)

    @asynccontextmanager
    async def claim(self, owner: str) -> AsyncIterator[None]:
        """Hold a place inside the context, once it is this owner's turn. Jobs without an owner share ""."""
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._queues.setdefault(owner, deque()).append(turn)
        self._assign_places()
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():  # it had just got its place
                self._release(owner)
            else:
                self._leave_queue(owner, turn)
            raise
        try:
            yield
        finally:
            self._release(owner)

    def _assign_places(self) -> None:
        """Give free places to the jobs whose turn it is."""
        while self._free:
            ready = [owner for owner in self._queues if self._places_of[owner] < min(self._owner_max, self._free)]
            if not ready:
                return
            owner = min(ready, key=lambda owner: (self._places_of[owner], self._last_turn.get(owner, 0)))
            turn = self._queues[owner].popleft()
            if not self._queues[owner]:
                del self._queues[owner]
            if turn.done():  # cancelled, and its job does not know it yet
                continue
            self._turns += 1
            self._last_turn[owner] = self._turns
            self._free -= 1
            self._places_of[owner] += 1
            turn.set_result(None)

    def _release(self, owner: str) -> None:
        """Take back a place, and give it to the next job."""
        self._free += 1
        self._places_of[owner] -= 1
        self._assign_places()
        self._forget_idle(owner)

    def _leave_queue(self, owner: str, turn: asyncio.Future[None]) -> None:
        """Take a cancelled job out of the queue of its owner."""
        queue = self._queues.get(owner, deque())
        if turn in queue:
            queue.remove(turn)
            if not queue:
                del self._queues[owner]
        self._forget_idle(owner)

    def _forget_idle(self, owner: str) -> None:
        """Drop what is remembered of an owner without places and waiting jobs."""
        if not self._places_of[owner]:
            del self._places_of[owner]
            if owner not in self._queues:
                self._last_turn.pop(owner, None)
