"""Follow one run to its end; it can be interrupted."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

from perdure.core.events import Delta, RunQueued, StoredEvent
from perdure.core.ids import RunId
from perdure.library.agent import AsyncAgent
from perdure.library.reply import Reply


class Turn:
    """One message or answer and its run.

    Args:
        events: of the run, with previews, as they come.
    """

    def __init__(self, agent: AsyncAgent, events: AsyncIterator[StoredEvent | Delta]) -> None:
        self._agent, self._events = agent, events
        self._run_id: RunId | None = None
        self._interruptions = 0
        self._follow_task: asyncio.Task[Reply | None] | None = None
        self._cancel_task: asyncio.Task[object] | None = None
        self.abandoned = False
        """A second interruption ended the waiting; the run ends by itself."""

    async def follow(self, show: Callable[[StoredEvent | Delta], None]) -> Reply | None:
        """Give each event to `show` and return the reply; None if the turn is abandoned or no run began.

        Raises: PerdureError.
        """
        self._follow_task = asyncio.create_task(self._follow(show))
        try:
            await asyncio.wait([self._follow_task])
        finally:
            self._follow_task.cancel()
        if self._cancel_task is not None:
            await self._cancel_task
        self.abandoned = self._follow_task.cancelled()
        return None if self.abandoned else self._follow_task.result()

    def interrupt(self) -> None:
        """Cancel the run; the second time, stop waiting for it."""
        self._interruptions += 1
        if self._interruptions == 1:
            self._cancel()
        elif self._follow_task is not None:
            self._follow_task.cancel()

    async def _follow(self, show: Callable[[StoredEvent | Delta], None]) -> Reply | None:
        """Show the events, and build the reply of them; None if no run began."""
        stored: list[StoredEvent] = []
        async for event in self._events:
            show(event)
            if isinstance(event, StoredEvent):
                stored.append(event)
                if isinstance(event.event, RunQueued):
                    self._run_id = event.event.run_id
                    self._cancel()
        return Reply.of(stored) if stored else None

    def _cancel(self) -> None:
        """Cancel the run once it is both interrupted and known; these come in any order."""
        if self._interruptions and self._run_id is not None and self._cancel_task is None:
            self._cancel_task = asyncio.create_task(self._agent.cancel(self._run_id))
