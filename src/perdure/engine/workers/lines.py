"""Background work for each conversation whose run has ended: one task at a time, again if a run ended meanwhile, or if
it was put back."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection

from perdure.engine.run.log import Line
from perdure.engine.workers.background import PutBack

CLOSING_S = 5.0
"""How long a closing process goes on with what it has begun."""


class LineWorker:
    """The work of one process: at most one task at a time for each conversation. `work` raises
    nothing but `PutBack`."""

    def __init__(self, work: Callable[[Line], Awaitable[None]]) -> None:
        self._do = work
        self._tasks: dict[Line, asyncio.Task[None]] = {}
        self._again: set[Line] = set()

    @property
    def tasks(self) -> list[asyncio.Task[None]]:
        """The tasks that are going on."""
        return list(self._tasks.values())

    @property
    def lines(self) -> Collection[Line]:
        """The conversations that are worked on."""
        return self._tasks.keys()

    def start(self, line: Line) -> None:
        """Work in the background on this conversation; once more, if that is going on already."""
        if line in self._tasks:
            self._again.add(line)
            return
        task = self._tasks[line] = asyncio.create_task(self._work(line))
        task.add_done_callback(lambda _: self._end(line, task))

    async def close(self) -> None:
        """Let tasks finish for a few seconds, then stop them."""
        while self._tasks:  # one that ends may begin another
            await finish_tasks(self.tasks)

    def _end(self, line: Line, task: asyncio.Task[None]) -> None:
        """Forget a task that has ended; what was to be done again since its last look is begun anew."""
        del self._tasks[line]
        if line in self._again and not task.cancelled():
            self.start(line)

    async def _work(self, line: Line) -> None:
        """Work on a conversation, again if another run of it has ended meanwhile."""
        while True:
            self._again.discard(line)
            try:
                await self._do(line)
            except PutBack as back:
                if back.ended:
                    self._again.discard(line)
                    return
                continue
            if line not in self._again:
                return


async def finish_tasks(tasks: Collection[asyncio.Task[None]]) -> None:
    """Let tasks finish for a few seconds, then stop them."""
    if tasks:
        _, unfinished = await asyncio.wait(tasks, timeout=CLOSING_S)
        for task in unfinished:
            task.cancel()
        await asyncio.gather(*unfinished, return_exceptions=True)
