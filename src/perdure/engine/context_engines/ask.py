"""Asking an agent's context engine about a request, between two transactions; and what follows if it fails."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from perdure.context.engines.port import EngineConversation
from perdure.context.window.plan import Plan
from perdure.core.conversations import Conversation
from perdure.core.errors import IrreducibleFloor
from perdure.core.events import EngineQuarantined, RoomKind, StoredEvent, ViewFull
from perdure.core.runs import RunKey
from perdure.engine.context_engines.calls import EngineFailed
from perdure.engine.context_engines.registry import FALLBACK, EngineInUse
from perdure.engine.ports import Ports, UnitInputs
from perdure.engine.run.interrupts import Interrupted
from perdure.engine.run.leases import holding
from perdure.engine.run.log import EngineQuestion, NoPlan, Progress, RoomPlan, load_run_log, view_key
from perdure.storage.tx import Tx

PLANS_MAX = 64
"""The most plans of an engine for one request."""


def engine_conversation(conversation: Conversation) -> EngineConversation:
    """The conversation as engines are told of it."""
    return EngineConversation(
        agent_id=conversation.agent_id, conversation_id=conversation.id, conversation_seq=conversation.seq
    )


async def ask_engine(question: EngineQuestion, ports: Ports) -> Progress:
    """Ask the engine for a plan: the run with the plan, or without one; quarantined, if the engine fails.

    Raises: LeaseLost, StoreError.
    """
    log, calls = question.log, ports.engine_calls
    used = calls.engines.of(question.agent)
    try:
        async with holding(log.run, ports):
            if used.unmade is not None:
                await calls.make(used)
                return Progress(log)  # what it adds to the system prompt belongs into the request first
            found = await _decide(question, used, ports)
    except Interrupted:
        return Progress(await ports.store.read(load_run_log, log))
    except EngineFailed as failed:
        return Progress(log, await quarantine_run(log.run.key, used.name, str(failed), ports))
    if found is None:
        return Progress(log, no_plan=NoPlan(view_key(question.view), question.recalled))
    room = RoomPlan(
        log=log,
        agent=question.agent,
        conversation=question.conversation,
        view=question.view,
        nodes=question.situation.nodes,
        plan=found,
        budget_tokens=question.situation.certificate.budget_tokens,
        reason="engine" if question.situation.certificate.fits else "window",
    )
    return await ports.store.write(_announce, room, question, ports.inputs())


async def _decide(question: EngineQuestion, used: EngineInUse, ports: Ports) -> Plan | None:
    """The engine's plan; None: it has none. Raises: EngineFailed."""
    situation = question.situation
    found = await ports.engine_calls.decide(used, engine_conversation(question.conversation), situation)
    if found is not None:
        if ports.engine_calls.count_plan(question.log.run.key, len(question.log.steps)) > PLANS_MAX:
            raise EngineFailed(f"it planned {PLANS_MAX} times for one request")
        return found
    if not situation.certificate.fits:
        try:
            other = FALLBACK.engine.plan(situation)
        except IrreducibleFloor:
            return None
        if other is not None:
            raise EngineFailed("it has no plan for a request that does not fit, and that can be made to fit")
    return None


def _announce(tx: Tx, room: RoomPlan, question: EngineQuestion, inputs: UnitInputs) -> Progress:
    """Tell of a plan before it is carried out."""
    log = replace(room.log, run=tx.runs.keep_lease(room.log.run, until=inputs.until))
    certificate = question.situation.certificate
    by: RoomKind = "engine" if certificate.fits else room.plan.kind
    event = ViewFull(certificate.tokens, certificate.budget_tokens, by)
    stored = tx.events.add(log.run.key, [event], at=inputs.now)
    return Progress(log, stored, room=replace(room, log=log))


async def quarantine_run(key: RunKey, name: str, reason: str, ports: Ports) -> Sequence[StoredEvent]:
    """Let a run go on without its agent's engine of this name, and tell why; the event. Raises: StoreError."""
    ports.engine_calls.quarantine(key)
    return await ports.store.write(_store_quarantine, key, name, reason, ports.inputs())


def _store_quarantine(tx: Tx, key: RunKey, name: str, reason: str, inputs: UnitInputs) -> Sequence[StoredEvent]:
    return tx.events.add(key, [EngineQuarantined(name, reason, FALLBACK.name)], at=inputs.now)
