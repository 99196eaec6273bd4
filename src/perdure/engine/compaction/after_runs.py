"""What goes on in the background after a run has ended: capture, summaries, context engines,
callbacks, and what features do.

The end of a run or batch is reported to the URL that its request named, at least once and at most `TRIES` times. Its
row says when the next try is due, so a process that dies leaves its reports to the next one. A try counts before it is
made: a report that was sent may be sent again, but none without end.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import Any, Protocol

from perdure.core.agents import Agent
from perdure.core.conversations import ConversationKey
from perdure.core.errors import AddressRefused, NotFound, PerdureError, StoreError, ToolError
from perdure.core.ids import AgentId, BatchId, RunId
from perdure.core.runs import Callback, DueCallback
from perdure.domain.agents.capture import capture, capture_due
from perdure.domain.secrets import open_callback
from perdure.engine.compaction.engine_turns import EngineTurns
from perdure.engine.compaction.prepare import Preparations
from perdure.engine.log.run_log import RunLog
from perdure.engine.ports import Ports
from perdure.engine.workers.background import KeyedWorker
from perdure.engine.workers.worker import Worker
from perdure.storage.tx import Tx

log = logging.getLogger(__name__)


async def capture_rest(ports: Ports, agent_id: AgentId, conversation_seqs: Sequence[int]) -> None:
    """Capture the rest of these conversations, also below the threshold; log what can't be. Raises: StoreError."""
    for seq in conversation_seqs:
        await _capture_due(ports, (agent_id, seq), rest=True)


async def _capture_due(ports: Ports, conversation_key: ConversationKey, *, rest: bool = False) -> None:
    """Store what is due for capture in a conversation; with `rest` also what is below the threshold."""
    try:
        upto_seq = await ports.store.read(capture_due, *conversation_key, force=rest)
        if upto_seq is not None:
            while await ports.store.write(capture, *conversation_key, upto_seq, ids=ports.ids, at=ports.clock.now()):
                pass
    except StoreError:
        raise
    except PerdureError as error:
        log.warning("capture of conversation %s of %s: %s", conversation_key[1], conversation_key[0], error)
    except Exception:
        log.exception("capture of conversation %s of %s stopped at a defect", conversation_key[1], conversation_key[0])


Listener = Callable[[ConversationKey, Agent | None, RunLog], None]
"""Called with each run that has ended here, and its agent as its requests saw it, if that is known. It takes no
time."""


class Background(Protocol):
    """A part of this work."""

    @property
    def tasks(self) -> list[asyncio.Task[None]]:
        """The tasks that are going on."""

    async def close(self) -> None:
        """Let tasks finish for a few seconds, then stop them."""


class AfterRuns:
    """The background work of one process. All of it may be lost: it is found to be due after the next run.

    `listeners` are called with each run that has ended; `parts` are the kinds of work, which `close` closes.
    """

    def __init__(self, ports: Ports) -> None:
        self._ports, self._views = ports, ports.views
        self.listeners: list[Listener] = []
        self.captures = KeyedWorker[ConversationKey]("capture", partial(_capture_due, ports))
        self._preparations = Preparations(ports)
        self._engines = EngineTurns(ports)
        self.parts: list[Background] = [self.captures, self._preparations, self._engines]

    @property
    def tasks(self) -> list[asyncio.Task[None]]:
        """The tasks that are going on."""
        return [task for part in self.parts for task in part.tasks]

    def note_run(self, conversation_key: ConversationKey, ended: RunLog) -> None:
        """Begin what is due now that a run of this conversation has ended."""
        parts = self._views.get(conversation_key)
        if parts is None or parts.agent.settings.get("auto_capture"):
            self.captures.start(conversation_key)
        self._preparations.note_run(conversation_key, None if parts is None else parts.agent, ended)
        if parts is not None and (
            parts.view.prefix.reason == "summary"  # its model may have been down
            or (parts.view.prefix.reason == "window" and self._ports.yields(parts.agent.model))  # or nobody asked it
        ):
            self._preparations.note_change(conversation_key)
        agent = None if parts is None else parts.agent
        self._engines.note_run(agent, ended)
        for listener in self.listeners:
            listener(conversation_key, agent, ended)

    def note_change(self, conversation_key: ConversationKey) -> None:
        """Begin what is due now that a message of this conversation has been changed."""
        self._preparations.note_change(conversation_key)

    async def close(self) -> None:
        """Let tasks finish for a few seconds, then stop them."""
        for part in self.parts:
            await part.close()


WAITS_S = (10.0, 60.0, 300.0, 1_800.0)
"""How long after each failed try the next one is made."""
TRIES = len(WAITS_S) + 1
TRY_S = 60.0
"""How long a try belongs to the process that began it: longer than any takes."""
LOOK_S = 5.0
"""How often a process looks for reports that others have left."""
AT_ONCE = 16

_TRANSIENT = frozenset({408, 425, 429})


class CallbackWorker(Worker):
    """Reports the ends of runs and batches."""

    def __init__(self, ports: Ports) -> None:
        super().__init__("sending reports", self.send_due, LOOK_S)
        self._ports = ports

    async def send_due(self) -> None:
        """Send the reports that are due, some at a time. Raises: StoreError."""
        ports = self._ports
        while dues := await ports.store.read(lambda tx: tx.callbacks.list_due(at=ports.clock.now(), limit=AT_ONCE)):
            await asyncio.gather(*(self._send(due) for due in dues))

    async def _send(self, due: DueCallback) -> None:
        """Send one report, if no other process does. Raises: StoreError."""
        now = self._ports.clock.now()
        claimed = await self._ports.store.write(
            lambda tx: tx.callbacks.put(
                due,
                replace(due.callback, tries=due.callback.tries + 1, sent_at=now),
                due_at=now + timedelta(seconds=TRY_S),
            )
        )
        if claimed is None:
            return
        callback, may_help = await self._try(claimed)
        wait_s = WAITS_S[callback.tries - 1] if may_help and callback.tries < TRIES else None
        due_at = None if wait_s is None else self._ports.clock.now() + timedelta(seconds=wait_s)
        kept = replace(callback, sealed="") if due_at is None else callback  # of no more use
        await self._ports.store.write(lambda tx: tx.callbacks.put(claimed, kept, due_at=due_at))

    async def _try(self, due: DueCallback) -> tuple[Callback, bool]:
        """Send a report if tries are left; return the callback, and whether a try may help. Raises: StoreError."""
        callback = due.callback
        if callback.tries > TRIES:  # each of them ended with its process
            return replace(callback, error="the process that sent it stopped each time"), False
        try:
            report = await self._ports.store.read(_report_of, due)
        except NotFound:  # deleted meanwhile
            return callback, False
        opened = callback
        try:
            opened = open_callback(callback, self._ports.cipher)
            status = await self._ports.send_report(opened, report)
        except PerdureError as error:  # also: the key of its address can't be read
            may_help = isinstance(error, ToolError) and not isinstance(error, AddressRefused)
            return replace(callback, status_code=None, error=str(error).replace(opened.url, callback.url)), may_help
        except Exception as error:
            log.exception("the report of %s stopped at a defect", due.id)
            return replace(callback, status_code=None, error=f"{type(error).__name__}: {error}"), True
        if 200 <= status < 300:
            return replace(callback, status_code=status, error=None), False
        may_help = status in _TRANSIENT or status >= 500
        return replace(callback, status_code=status, error=f"the answer had the status {status}"), may_help


def _report_of(tx: Tx, due: DueCallback) -> Mapping[str, Any]:
    """Load the report about the run or batch that has ended. Raises: NotFound: it was deleted."""
    if due.owner == "batches":
        batch = tx.batches.get(BatchId(due.id))
        ended_at = batch.ended_at and batch.ended_at.isoformat()
        return {"job_id": batch.id, "status": batch.status, "completed_at": ended_at}
    run = tx.runs.get(RunId(due.id))
    return {
        "run_id": run.id,
        "agent_id": run.key.agent_id,
        "status": run.status,
        "stop_reason": run.stop_reason,
        "completed_at": run.ended_at and run.ended_at.isoformat(),
    }
