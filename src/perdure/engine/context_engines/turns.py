"""Telling context engines of runs that have ended, and of what their agents write to others, with the replies."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from perdure.core.agents import Agent
from perdure.core.conversations import Conversation
from perdure.core.errors import NotFound, PerdureError
from perdure.core.ids import AgentId
from perdure.core.ports import CallContext
from perdure.core.runs import Run
from perdure.engine.context_engines.ask import engine_conversation, quarantine_run
from perdure.engine.context_engines.calls import EngineFailed
from perdure.engine.ports import Ports
from perdure.engine.run.log import RunLog
from perdure.engine.workers.background import finish_tasks
from perdure.storage.tx import Tx

log = logging.getLogger(__name__)


class EngineTurns:
    """The background work of one process for its context engines."""

    def __init__(self, ports: Ports) -> None:
        self._ports = ports
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def tasks(self) -> list[asyncio.Task[None]]:
        """The tasks that are going on."""
        return list(self._tasks)

    def note_run(self, agent: Agent | None, ended: RunLog) -> None:
        """Tell the agent's engine that a run has ended.

        Args:
            agent: as its requests saw it, if that is known here.
        """
        calls = self._ports.engine_calls
        was_quarantined = calls.is_quarantined(ended.run.key)
        calls.forget_run(ended.run.key)
        is_foreign = calls.engines.has_foreign if agent is None else calls.engines.of(agent).is_foreign
        if was_quarantined or not is_foreign:
            return
        task = asyncio.create_task(self._tell(agent, ended))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        """Let tasks finish for a few seconds, then stop them; then let the engines release what they hold."""
        await finish_tasks(self.tasks)
        await self._ports.engine_calls.close()

    async def _tell(self, agent: Agent | None, ended: RunLog) -> None:
        """Tell the agent's engine of a run. What fails is in the log of the process."""
        run = ended.run

        def load(tx: Tx) -> tuple[Agent, Conversation]:
            line = run.key.agent_id, run.conversation_seq
            return agent or tx.conversations.get_agent(*line), tx.conversations.get_by_seq(*line)

        try:
            known, conversation = await self._ports.store.read(load)
            about = engine_conversation(conversation)
            await self._ports.engine_calls.after_run(known, about, run, ended.messages)
        except NotFound:  # the agent was deleted meanwhile
            pass
        except PerdureError as error:
            log.warning("context engine after %s: %s", run.id, error)
        except Exception:
            log.exception("context engine after %s stopped at a defect", run.id)


@asynccontextmanager
async def subagent_call(ports: Ports, call: CallContext, target: AgentId, message: str) -> AsyncIterator[list[str]]:
    """Tell the engine of the calling agent before and after the block, which adds the reply to the list it gets.

    An engine that fails here is quarantined for the run of the call; the message is sent all the same.
    """
    calls, reply = ports.engine_calls, list[str]()
    if not call.run_id or not calls.engines.has_foreign:
        yield reply
        return

    def load(tx: Tx) -> tuple[Run, Agent, Conversation]:
        run = tx.runs.get(call.run_id)
        line = run.key.agent_id, run.conversation_seq
        return run, tx.conversations.get_agent(*line), tx.conversations.get_by_seq(*line)

    run, agent, conversation = await ports.store.read(load)
    used, about = calls.engines.of(agent), engine_conversation(conversation)
    if not used.is_foreign or used.unmade is not None or calls.is_quarantined(run.key):
        yield reply
        return
    problem: str | None = None
    try:
        await calls.before_subagent(agent, about, target, message)
    except EngineFailed as failed:
        await quarantine_run(run.key, used.name, str(failed), ports)
    try:
        yield reply
    except PerdureError as error:
        problem = str(error)
        raise
    finally:
        if not calls.is_quarantined(run.key):
            try:
                await calls.after_subagent(agent, about, target, reply, problem)
            except EngineFailed as failed:
                await quarantine_run(run.key, used.name, str(failed), ports)
