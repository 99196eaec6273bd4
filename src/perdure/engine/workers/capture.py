"""Automatic capture: after a run has ended, what its conversation collected is stored as passages, in the background.

A crash loses nothing: what was not stored is still in the log, and is found to be due after the next run.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

from perdure.core.errors import PerdureError, StoreError
from perdure.core.ids import AgentId
from perdure.domain.agents.capture import capture, capture_due
from perdure.engine.ports import Ports

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
        """The captures that are going on."""
        return list(self._tasks.values())

    def after_run(self, line: Line) -> None:
        """Capture in the background what is due in this conversation, since a run of it has ended."""
        if line in self._tasks:
            self._again.add(line)
            return
        task = self._tasks[line] = asyncio.create_task(self._work(line))
        task.add_done_callback(lambda _: self._tasks.pop(line, None))

    async def close(self) -> None:
        """Let captures finish for a few seconds, then stop them."""
        if tasks := self.tasks:
            _, unfinished = await asyncio.wait(tasks, timeout=CLOSING_S)
            for task in unfinished:
                task.cancel()
            await asyncio.gather(*unfinished, return_exceptions=True)

    async def _work(self, line: Line) -> None:
        """Capture a conversation, again if another run of it has ended meanwhile."""
        while True:
            self._again.discard(line)
            try:
                await _capture_due(self._ports, line)
            except StoreError as error:  # what is in the log still is found to be due after the next run
                log.warning("capture of conversation %s of %s: %s", line[1], line[0], error)
            if line not in self._again:
                return


async def capture_rest(ports: Ports, agent_id: AgentId, conversation_seqs: Sequence[int]) -> None:
    """Capture what these conversations collected, also below the threshold. What can't be captured, such as for lack of
    an archive, is logged. Raises: StoreError."""
    for seq in conversation_seqs:
        await _capture_due(ports, (agent_id, seq), rest=True)


async def _capture_due(ports: Ports, line: Line, *, rest: bool = False) -> None:
    """Store what is due for capture in a conversation. Raises: StoreError."""
    try:
        upto_seq = await ports.store.read(capture_due, *line, force=rest)
        if upto_seq is not None:
            while await ports.store.write(capture, *line, upto_seq, ids=ports.ids, at=ports.clock.now()):
                pass
    except StoreError:
        raise
    except PerdureError as error:
        log.warning("capture of conversation %s of %s: %s", line[1], line[0], error)
    except Exception:
        log.exception("capture of conversation %s of %s stopped at a defect", line[1], line[0])
