"""What goes on in the background after a run has ended: capture, summaries, extraction of facts,
context engines."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence

from perdure.core.agents import Agent
from perdure.core.errors import PerdureError, StoreError
from perdure.core.ids import AgentId
from perdure.domain.agents.capture import capture, capture_due
from perdure.engine.compaction.prepare import Preparations
from perdure.engine.context_engines.turns import EngineTurns
from perdure.engine.facts.worker import Extractions
from perdure.engine.ports import Ports
from perdure.engine.run.log import Line, RunLog
from perdure.engine.workers.background import LineWorker
from perdure.engine.workers.pauses import Pauses

log = logging.getLogger(__name__)


def capture_worker(ports: Ports) -> LineWorker:
    """Return the worker that captures what is due in a conversation."""

    async def work(line: Line) -> None:
        try:
            await _capture_due(ports, line)
        except StoreError as error:  # what is in the log still is found to be due after the next run
            log.warning("capture of conversation %s of %s: %s", line[1], line[0], error)

    return LineWorker(work)


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


Listener = Callable[[Line, Agent | None, RunLog], None]
"""Called with each run that has ended here, and its agent as its requests saw it, if that is known. It takes no
time."""


class AfterRuns:
    """The background work of one process. All of it may be lost: it is found to be due after the next run.

    `listeners` are told of each run.
    """

    def __init__(self, ports: Ports, pauses: Pauses) -> None:
        self._ports, self._views = ports, ports.views
        self.listeners: list[Listener] = []
        self.captures = capture_worker(ports)
        self._preparations = Preparations(ports)
        self.extractions = Extractions(ports, pauses)
        self._engines = EngineTurns(ports)

    @property
    def tasks(self) -> list[asyncio.Task[None]]:
        """The tasks that are going on."""
        return [*self.captures.tasks, *self._preparations.tasks, *self.extractions.tasks, *self._engines.tasks]

    def note_run(self, line: Line, ended: RunLog) -> None:
        """Begin what is due now that a run of this conversation has ended."""
        parts = self._views.get(line)
        if parts is None or parts.agent.settings.get("auto_capture"):
            self.captures.start(line)
        self._preparations.note_run(line, None if parts is None else parts.agent, ended)
        if parts is not None and (
            parts.view.prefix.reason == "summary"  # its model may have been down
            or (parts.view.prefix.reason == "window" and self._ports.yields(parts.agent.model))  # or nobody asked it
        ):
            self._preparations.note_change(line)
        self.extractions.note_run(line, None if parts is None else parts.agent.settings, ended.messages)
        agent = None if parts is None else parts.agent
        self._engines.note_run(agent, ended)
        for listener in self.listeners:
            listener(line, agent, ended)

    def note_change(self, line: Line) -> None:
        """Begin what is due now that a message of this conversation has been changed."""
        self._preparations.note_change(line)

    async def find_left(self) -> None:
        """Find what an earlier process left. Raises: StoreError."""
        await self.extractions.find_left()

    async def close(self) -> None:
        """Let tasks finish for a few seconds, then stop them."""
        await self.captures.close()
        await self._preparations.close()
        await self.extractions.close()
        await self._engines.close()
