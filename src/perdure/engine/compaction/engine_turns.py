"""Asking context engines about requests, between two transactions; telling them of ended runs and of what their agents
write to others, with the replies."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace

from perdure.context.engines.port import EngineConversation
from perdure.context.window.plan import Plan
from perdure.core.agents import Agent
from perdure.core.conversations import Conversation
from perdure.core.errors import IrreducibleFloor, NotFound, PerdureError
from perdure.core.events import EngineQuarantined, RoomKind, StoredEvent, ViewFull
from perdure.core.ids import AgentId
from perdure.core.ports import CallContext
from perdure.core.runs import Run, RunKey
from perdure.engine.context_engines import FALLBACK, EngineFailed, EngineInUse
from perdure.engine.log.interrupts import WaitInterrupted
from perdure.engine.log.run_log import EngineQuestion, NoPlan, Progress, RoomPlan, RunLog, load_run_log, view_key
from perdure.engine.ports import Ports, UnitInputs
from perdure.engine.records.leases import holding
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
        """Tell the agent's engine that a run has ended. `agent`: as its requests saw it, if that is known here."""
        calls = self._ports.engine_calls
        was_quarantined = calls.is_quarantined(ended.run.key)
        calls.forget_run(ended.run.key)
        is_foreign = calls.engines.has_foreign if agent is None else calls.engines.of(agent).is_foreign
        if was_quarantined or not is_foreign:
            return
        task = asyncio.create_task(self._notify_engine(agent, ended))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        """Let tasks finish for a few seconds, then stop them; then let the engines release what they hold."""
        await finish_tasks(self.tasks)
        await self._ports.engine_calls.close()

    async def _notify_engine(self, agent: Agent | None, ended: RunLog) -> None:
        """Pass a finished run to the agent's context engine; errors are logged."""
        run = ended.run

        def load(tx: Tx) -> tuple[Agent, Conversation]:
            """Return the agent as the conversation sees it, and the conversation."""
            conversation_key = run.key.agent_id, run.conversation_seq
            return agent or tx.conversations.get_agent(*conversation_key), tx.conversations.get_by_seq(
                *conversation_key
            )

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
    """Notify the calling agent's context engine before and after the block, which adds the reply to the list it gets.
    An engine that fails is quarantined for the run of the call; the message is sent all the same."""
    calls, reply = ports.engine_calls, list[str]()
    if not call.run_id or not calls.engines.has_foreign:
        yield reply
        return

    def load(tx: Tx) -> tuple[Run, Agent, Conversation]:
        """Return the run of the call, its agent and its conversation."""
        run = tx.runs.get(call.run_id)
        conversation_key = run.key.agent_id, run.conversation_seq
        return run, tx.conversations.get_agent(*conversation_key), tx.conversations.get_by_seq(*conversation_key)

    run, agent, conversation = await ports.store.read(load)
    used, about = calls.engines.of(agent), engine_conversation(conversation)
    if not used.is_foreign or used.unmade is not None or calls.is_quarantined(run.key):
        yield reply
        return
    problem: str | None = None
    try:
        if used.engine.overrides("before_subagent"):
            await calls.call(used.engine, used.engine.before_subagent, about, target, message)
    except EngineFailed as failed:
        await quarantine_run(run.key, used.name, str(failed), ports)
    try:
        yield reply
    except PerdureError as error:
        problem = str(error)
        raise
    finally:
        if used.engine.overrides("after_subagent") and not calls.is_quarantined(run.key):
            try:
                await calls.call(used.engine, used.engine.after_subagent, about, target, tuple(reply), problem)
            except EngineFailed as failed:
                await quarantine_run(run.key, used.name, str(failed), ports)


PLANS_MAX = 64
"""The most plans of an engine for one request."""


def engine_conversation(conversation: Conversation) -> EngineConversation:
    """Return the conversation in the form that context engines get."""
    return EngineConversation(
        agent_id=conversation.agent_id, conversation_id=conversation.id, conversation_seq=conversation.seq
    )


async def ask_engine(question: EngineQuestion, ports: Ports) -> Progress:
    """Ask the agent's context engine for a plan, and return the run's progress with the plan, or that there is none. If
    the engine fails, the run goes on without it. Raises: LeaseLost, StoreError."""
    log, calls = question.log, ports.engine_calls
    used = calls.engines.of(question.agent)
    try:
        async with holding(log.run, ports):
            if used.unmade is not None:
                await calls.make(used)
                return Progress(log)  # what it adds to the system prompt belongs into the request first
            plan = await _decide(question, used, ports)
    except WaitInterrupted:
        return Progress(await ports.store.read(load_run_log, log))
    except EngineFailed as failed:
        return Progress(log, await quarantine_run(log.run.key, used.name, str(failed), ports))
    if plan is None:
        return Progress(log, no_plan=NoPlan(view_key(question.view), question.recalled))
    room = RoomPlan(
        log=log,
        agent=question.agent,
        conversation=question.conversation,
        view=question.view,
        nodes=question.situation.nodes,
        plan=plan,
        budget_tokens=question.situation.certificate.budget_tokens,
        reason="engine" if question.situation.certificate.fits else "window",
    )
    return await ports.store.write(_announce, room, question, ports.inputs())


async def _decide(question: EngineQuestion, used: EngineInUse, ports: Ports) -> Plan | None:
    """Return the engine's plan, of at most `PLANS_MAX` for one request; None: it has none. Raises: EngineFailed."""
    situation = question.situation
    plan = await ports.engine_calls.decide(used, engine_conversation(question.conversation), situation)
    if plan is not None:
        if ports.engine_calls.count_plan(question.log.run.key, len(question.log.steps)) > PLANS_MAX:
            raise EngineFailed(f"it planned {PLANS_MAX} times for one request")
        return plan
    if not situation.certificate.fits:
        try:
            fallback_plan = FALLBACK.engine.plan(situation)
        except IrreducibleFloor:
            return None
        if fallback_plan is not None:
            raise EngineFailed("it has no plan for a request that does not fit, and that can be made to fit")
    return None


def _announce(tx: Tx, room: RoomPlan, question: EngineQuestion, inputs: UnitInputs) -> Progress:
    """Store the event that tells of a plan, before the plan is carried out."""
    log = replace(room.log, run=tx.runs.keep_lease(room.log.run, until=inputs.until))
    certificate = question.situation.certificate
    by: RoomKind = "engine" if certificate.fits else room.plan.kind
    event = ViewFull(certificate.tokens, certificate.budget_tokens, by)
    stored = tx.events.add(log.run.key, [event], at=inputs.now)
    return Progress(log, stored, room=replace(room, log=log))


async def quarantine_run(key: RunKey, name: str, reason: str, ports: Ports) -> Sequence[StoredEvent]:
    """End a run's use of its agent's engine; store and return the event that says why. Raises: StoreError."""
    ports.engine_calls.quarantine(key)
    event, at = EngineQuarantined(name, reason, FALLBACK.name), ports.clock.now()
    return await ports.store.write(lambda tx: tx.events.add(key, [event], at=at))
