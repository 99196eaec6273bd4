"""Who in this process listens to which run."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Sequence

from perdure.core.errors import PerdureError
from perdure.core.events import Delta, StoredEvent
from perdure.core.runs import RunKey

__all__ = ["Hub", "Listener", "Sent", "Tell"]

Sent = StoredEvent | Delta | PerdureError | None
"""What a listener gets: an event, a preview, why this process gave the run up; None when it no longer drives it."""


Tell = Callable[[Sequence[StoredEvent | Delta]], None]
"""To whom a run tells what happens, in order; it takes no time."""


class Hub:
    """Passes on what a run tells; who listens too late reads the stored events."""

    def __init__(self) -> None:
        self._listeners: defaultdict[RunKey, list[Listener]] = defaultdict(list)

    def listen(self, key: RunKey) -> Listener:
        listener = Listener()
        self._listeners[key].append(listener)
        return listener

    def leave(self, key: RunKey, listener: Listener) -> None:
        self._listeners[key].remove(listener)
        if not self._listeners[key]:
            del self._listeners[key]

    def publish(self, key: RunKey, sent: Sequence[Sent]) -> None:
        for listener in self._listeners.get(key, ()):
            listener.put(sent)


class Listener:
    """What one reader was sent and has not taken yet: a queue without bounds for one task.

    Everything that a run tells passes through here, and `asyncio.Queue` takes three times as long.
    """

    def __init__(self) -> None:
        self._sent: list[Sent] = []
        self._more: asyncio.Future[None] | None = None

    def put(self, sent: Sequence[Sent]) -> None:
        self._sent += sent
        if self._more is not None and not self._more.done():
            self._more.set_result(None)

    def take(self) -> Sequence[Sent]:
        """All that there is, which may be nothing."""
        taken, self._sent = self._sent, []
        return taken

    async def get(self) -> Sequence[Sent]:
        """All that there is, as soon as there is something."""
        while not self._sent:
            self._more = asyncio.get_running_loop().create_future()
            await self._more
        return self.take()
