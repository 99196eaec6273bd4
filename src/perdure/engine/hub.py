"""Who in this process listens to which run."""

from __future__ import annotations

import asyncio
from collections import defaultdict

from perdure.core.errors import PerdureError
from perdure.core.events import Delta, StoredEvent
from perdure.core.runs import RunKey

__all__ = ["Hub", "Sent"]

Sent = StoredEvent | Delta | PerdureError | None
"""What a listener gets: an event, a preview, why this process gave the run up; None when it no longer drives it."""


class Hub:
    """Passes on what a run tells; who listens too late reads the stored events."""

    def __init__(self) -> None:
        self._queues: defaultdict[RunKey, list[asyncio.Queue[Sent]]] = defaultdict(list)

    def listen(self, key: RunKey) -> asyncio.Queue[Sent]:
        queue: asyncio.Queue[Sent] = asyncio.Queue()
        self._queues[key].append(queue)
        return queue

    def leave(self, key: RunKey, queue: asyncio.Queue[Sent]) -> None:
        self._queues[key].remove(queue)
        if not self._queues[key]:
            del self._queues[key]

    def publish(self, key: RunKey, sent: Sent) -> None:
        for queue in self._queues.get(key, ()):
            queue.put_nowait(sent)
