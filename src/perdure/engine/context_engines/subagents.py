"""Telling an agent's context engine of what the agent writes to another agent, and of the reply."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from perdure.core.agents import Agent
from perdure.core.conversations import Conversation
from perdure.core.errors import PerdureError
from perdure.core.ids import AgentId
from perdure.core.ports import CallContext
from perdure.core.runs import Run
from perdure.engine.context_engines.ask import engine_conversation, quarantine_run
from perdure.engine.context_engines.calls import EngineFailed
from perdure.engine.ports import Ports
from perdure.storage.tx import Tx


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
