"""A run that is followed to its end, and can be interrupted meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

from perdure.core.events import Delta, RunQueued, StoredEvent
from perdure.core.ids import RunId
from perdure.library.agent import AsyncAgent
from perdure.library.reply import Reply

__all__ = ["Turn"]


class Turn:
    """What was said or answered, and its run.

    Args:
        sent: the run's events and previews, as they come.
    """

    def __init__(self, agent: AsyncAgent, sent: AsyncIterator[StoredEvent | Delta]) -> None:
        self._agent, self._sent = agent, sent
        self._run_id: RunId | None = None
        self._interruptions = 0
        self._following: asyncio.Task[Reply | None] | None = None
        self._cancelling: asyncio.Task[object] | None = None
        self.left = False
        """It was not waited for to its end."""

    async def follow(self, saw: Callable[[StoredEvent | Delta], None]) -> Reply | None:
        """The reply, its events given to `saw`; None if it is not waited for any longer, or nothing was run. Raises:
        PerdureError."""
        self._following = asyncio.create_task(self._follow(saw))
        try:
            await asyncio.wait([self._following])
        finally:
            self._following.cancel()
        if self._cancelling is not None:
            await self._cancelling
        self.left = self._following.cancelled()
        return None if self.left else self._following.result()

    def interrupt(self) -> None:
        """Ask the run to stop; the second time, stop waiting for it."""
        self._interruptions += 1
        if self._interruptions == 1:
            self._cancel()
        elif self._following is not None:
            self._following.cancel()

    async def _follow(self, saw: Callable[[StoredEvent | Delta], None]) -> Reply | None:
        events: list[StoredEvent] = []
        async for sent in self._sent:
            saw(sent)
            if isinstance(sent, StoredEvent):
                events.append(sent)
                if isinstance(sent.event, RunQueued):
                    self._run_id = sent.event.run_id
                    self._cancel()
        return Reply.of(events) if events else None

    def _cancel(self) -> None:
        """Cancel the run once it is both wanted and known, which may come in any order."""
        if self._interruptions and self._run_id is not None and self._cancelling is None:
            self._cancelling = asyncio.create_task(self._agent.cancel(self._run_id))
