"""Automatic capture: after a run has ended, what its conversation collected is stored as passages, in the background.

A crash loses nothing: what was not stored is still in the log, and is found to be due after the next run.
"""

from __future__ import annotations

import asyncio
import logging

from perdure.core.errors import PerdureError
from perdure.core.ids import AgentId
from perdure.engine.ports import Ports
from perdure.memory.capture import capture, due

__all__ = ["Captures"]

log = logging.getLogger(__name__)

CLOSING_S = 5.0
"""How long a closing process goes on with what it has begun."""

Line = tuple[AgentId, int]


class Captures:
    """The captures of one process: at most one at a time for each conversation."""

    def __init__(self, ports: Ports) -> None:
        self._ports = ports
        self._tasks: dict[Line, asyncio.Task[None]] = {}
        self._again: set[Line] = set()

    @property
    def tasks(self) -> list[asyncio.Task[None]]:
        """What is going on."""
        return list(self._tasks.values())

    def after_run(self, line: Line) -> None:
        """A run of this conversation has ended."""
        if line in self._tasks:
            self._again.add(line)
            return
        task = self._tasks[line] = asyncio.create_task(self._work(line))
        task.add_done_callback(lambda _: self._tasks.pop(line, None))

    async def close(self) -> None:
        """Finish what was begun, for a few seconds."""
        if tasks := self.tasks:
            _, unfinished = await asyncio.wait(tasks, timeout=CLOSING_S)
            for task in unfinished:
                task.cancel()
            await asyncio.gather(*unfinished, return_exceptions=True)

    async def _work(self, line: Line) -> None:
        while True:
            self._again.discard(line)
            try:
                await self._capture(line)
            except PerdureError as error:
                log.warning("capture of conversation %s of %s: %s", line[1], line[0], error)
            except Exception:
                log.exception("capture of conversation %s of %s stopped at a defect", line[1], line[0])
            if line not in self._again:
                return

    async def _capture(self, line: Line) -> None:
        store, ids = self._ports.store, self._ports.ids
        upto_seq = await store.read(due, *line)
        if upto_seq is None:
            return
        while await store.write(capture, *line, upto_seq, ids=ids, at=self._ports.clock.now()):
            pass
