"""Who in this process listens to which run."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Sequence

from perdure.core.errors import PerdureError
from perdure.core.events import Delta, RunEnded, StoredEvent
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

    def listen(self, key: RunKey, *, patient: bool = False) -> Listener:
        listener = Listener(patient=patient)
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

    Args:
        patient: whether the reader has no use for anything before the run's end: it gets no previews, and is woken once
            instead of at every piece of an answer.
    """

    def __init__(self, *, patient: bool = False) -> None:
        self._patient = patient
        self._sent: list[Sent] = []
        self._due = False
        self._more: asyncio.Future[None] | None = None

    def put(self, sent: Sequence[Sent]) -> None:
        if not sent:
            return
        if self._patient and _goes_on(sent[-1]):
            self._sent += [one for one in sent if not isinstance(one, Delta)]
            return
        self._sent += sent
        self._due = True
        if self._more is not None and not self._more.done():
            self._more.set_result(None)

    def take(self) -> Sequence[Sent]:
        """All that there is, which may be nothing."""
        taken, self._sent, self._due = self._sent, [], False
        return taken

    async def get(self) -> Sequence[Sent]:
        """All that there is, as soon as there is something; for who is patient, as soon as the run has ended or nobody
        here drives it any more."""
        while not self._due:
            self._more = asyncio.get_running_loop().create_future()
            await self._more
        return self.take()


def _goes_on(sent: Sent) -> bool:
    """Whether this is not the last of a run, nor all that comes from here."""
    return isinstance(sent, Delta) or (isinstance(sent, StoredEvent) and not isinstance(sent.event, RunEnded))
