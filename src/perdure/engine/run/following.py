"""Following a run: what its driver sends, made whole from the store."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from perdure.core.errors import PerdureError
from perdure.core.events import Delta, RunEnded, StepAbandoned, StoredEvent
from perdure.core.ids import StepId
from perdure.engine.run.hub import Sent

__all__ = ["Following"]


class Following:
    """One reader's way through a run: every event with a number above `after`, in order and without gaps; and previews
    where this process drives it.

    Args:
        stored: the stored events with numbers above a given one.
        sent: what is sent next: at least one thing, None where the store should be looked at.
        known: events that need not be read, the first of the run among them.
        over: the run has ended, so that nothing comes where nothing is stored.
    """

    def __init__(
        self,
        *,
        stored: Callable[[int], Awaitable[Sequence[StoredEvent]]],
        sent: Callable[[], Awaitable[Sequence[Sent]]],
        after: int = 0,
        known: Sequence[StoredEvent] = (),
        over: bool = False,
    ) -> None:
        self._stored, self._sent = stored, sent
        self._last, self._known, self._over = after, known, over
        self._error: PerdureError | None = None
        self._begun = self.ended = False
        self._abandoned: set[StepId] = set()

    async def more(self) -> Sequence[StoredEvent | Delta]:
        """What comes next, together what came together; nothing at the end. Raises: StoreError, NotFound."""
        found: list[StoredEvent | Delta] = []
        if not self._begun:
            self._begun = True
            first = self._known or await self._stored(self._last)
            self._add(found, [event for event in first if event.seq > self._last])
            self.ended = self.ended or (self._over and not found)
        while not found and not self.ended:
            if self._error is not None:
                raise self._error
            await self._take(found)
        return found

    async def _take(self, found: list[StoredEvent | Delta]) -> None:
        for sent in await self._sent():
            if isinstance(sent, StoredEvent) and sent.seq <= self._last + 1:
                if sent.seq > self._last:
                    self._add(found, (sent,))
            elif isinstance(sent, Delta):
                if sent.step_id not in self._abandoned:  # the call of a process that lost the run may still go on
                    found.append(sent)
            elif isinstance(sent, PerdureError):
                self._error = sent  # raised when what was sent before it has been taken
                return
            else:  # nothing came, or not the next one: another process drives, or we listened too late
                self._add(found, await self._stored(self._last))
            if self.ended:
                return

    def _add(self, found: list[StoredEvent | Delta], events: Sequence[StoredEvent]) -> None:
        if events:
            found += events
            self._abandoned |= {one.event.step_id for one in events if isinstance(one.event, StepAbandoned)}
            self._last = events[-1].seq
            self.ended = isinstance(events[-1].event, RunEnded)
