"""Following a run: its driver publishes what happens, and each reader gets it whole, from the store where need be."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager

from perdure.core.errors import PerdureError
from perdure.core.events import Delta, RunEnded, StepAbandoned, StoredEvent
from perdure.core.ids import StepId
from perdure.core.runs import RunKey

Publication = StoredEvent | Delta | PerdureError | None
"""An event, a preview, why this process gave the run up; None when it no longer drives it."""


Tell = Callable[[Sequence[StoredEvent | Delta]], None]
"""Publishes what happens in a run, in order; it takes no time."""


class Hub:
    """The readers of runs in this process, each with a queue. Who listens too late reads the stored events."""

    def __init__(self) -> None:
        self._queues: defaultdict[RunKey, list[asyncio.Queue[Publication]]] = defaultdict(list)

    @contextmanager
    def listen(self, key: RunKey) -> Iterator[asyncio.Queue[Publication]]:
        """A queue of what is published about a run from now on, without bounds, for one task."""
        queue: asyncio.Queue[Publication] = asyncio.Queue()
        self._queues[key].append(queue)
        try:
            yield queue
        finally:
            self._queues[key].remove(queue)
            if not self._queues[key]:
                del self._queues[key]

    def publish(self, key: RunKey, publications: Sequence[Publication]) -> None:
        for queue in self._queues.get(key, ()):
            for publication in publications:
                queue.put_nowait(publication)


async def follow(
    receive: Callable[[], Awaitable[Publication]],
    load: Callable[[int], Awaitable[Sequence[StoredEvent]]],
    *,
    after: int = 0,
    known: Sequence[StoredEvent] = (),
    ended: bool = False,
) -> AsyncGenerator[StoredEvent | Delta, None]:
    """Every event of a run with a number above `after`, in order and without gaps, until it has ended; and previews.

    Args:
        receive: the next publication; None where the store should be looked at.
        load: the stored events with numbers above a given one.
        known: events that need not be loaded, the first of the run among them.
        ended: the run has ended, so that nothing comes where nothing is stored.
    Raises: what was published as an error, after all that was published before it; StoreError, NotFound.
    """
    last_seq, abandoned = after, set[StepId]()
    events = known or await load(after)
    while True:
        fresh = [event for event in events if event.seq > last_seq]
        for event in fresh:
            last_seq = event.seq
            if isinstance(event.event, StepAbandoned):
                abandoned.add(event.event.step_id)
            yield event
        # The last one counts: a run that stopped for approval ends once more when it is cancelled.
        if ended or (fresh and isinstance(fresh[-1].event, RunEnded)):
            return
        events = ()
        publication = await receive()
        if isinstance(publication, Delta):
            if publication.step_id not in abandoned:  # the call of a process that lost the run may still go on
                yield publication
        elif isinstance(publication, PerdureError):
            raise publication
        elif publication is not None and publication.seq <= last_seq + 1:
            events = (publication,)
        else:  # nothing came, or not the next one: another process drives, or we listened too late
            events = await load(last_seq)
