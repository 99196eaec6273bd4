"""The units of work of the runner."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from perdure.core.agents import Agent
from perdure.core.events import Event, MessageAdded, RunCancelRequested, StoredEvent
from perdure.core.ids import RunId
from perdure.core.runs import Failure, Run, RunKey
from perdure.engine.approvals.answers import give_up_pending
from perdure.engine.ports import UnitInputs
from perdure.engine.run.finish import end_run
from perdure.engine.run.log import Line, Progress, run_log_of
from perdure.engine.run.next_action import Finish
from perdure.engine.run.rows import add_waiting_input
from perdure.storage.tx import Tx

PAGE = 1_000
RECOVERED_RUNS = 10_000  # unended runs in one round of recovery: more than any process leaves, also of unknown models


@dataclass(frozen=True, slots=True)
class Turn:
    """A run, the run of its conversation whose turn it is, the agent, and whether calls wait for an answer."""

    run: Run
    active: Run | None
    agent: Agent
    waits: bool


def turn_of(tx: Tx, key: RunKey, line: Line) -> Turn:
    """Whose turn it is in a conversation. Raises: NotFound."""
    waits = tx.conversations.get_by_seq(*line).pending_run_seq is not None
    return Turn(tx.runs.get_by_key(key), tx.runs.find_active(*line), tx.conversations.get_agent(*line), waits)


def events_after(tx: Tx, key: RunKey, after: int) -> Sequence[StoredEvent]:
    """A page of a run's events. Raises: NotFound."""
    events = tx.events.list(key, after=after, limit=PAGE)
    if not events:
        tx.runs.get_by_key(key)  # a run that was deleted with its agent has no more to tell, and no end to wait for
    return events


def request_cancel(tx: Tx, run_id: RunId, inputs: UnitInputs) -> tuple[Run, Sequence[StoredEvent], Run | None]:
    """The run, its new events, and the run that may begin now because of it."""
    run = tx.runs.get(run_id)
    if not run.ended:
        requested = tx.runs.request_cancel(run.key)
        events = tx.events.add(run.key, [RunCancelRequested(run.id)], at=inputs.now) if requested else ()
        return tx.runs.get_by_key(run.key), events, None
    tx.agents.lock(run.key.agent_id)
    conversation = tx.conversations.get_by_seq(run.key.agent_id, run.conversation_seq)
    if conversation.pending_run_seq == run.key.seq:
        given_up = give_up_pending(tx, conversation, "the request was cancelled", inputs)
        if given_up is not None:
            return *given_up, tx.runs.find_active(run.key.agent_id, run.conversation_seq)
    return run, (), None


def unended(tx: Tx, *, now: datetime) -> list[tuple[Run, Agent]]:
    """The oldest unended run of each conversation, with its agent; those without a valid lease first."""
    free, all_runs = (tx.runs.list_oldest(free_at=at, limit=RECOVERED_RUNS) for at in (now, None))
    runs = {run.key: run for run in (*free, *all_runs)}
    return [(run, tx.conversations.get_agent(run.key.agent_id, run.conversation_seq)) for run in runs.values()]


def fail(tx: Tx, key: RunKey, inputs: UnitInputs, *, dead_owner: str | None, failure: Failure) -> Progress | None:
    """End a run with a failure, if this process holds it or can claim it; else None."""
    run = tx.runs.get_by_key(key)
    if run.ended:
        return None
    if run.status != "running" or run.lease_owner != inputs.owner:
        claimed = tx.runs.claim(key, owner=inputs.owner, at=inputs.now, until=inputs.now, dead_owner=dead_owner)
        if claimed is None:
            return None
        run = claimed
    events: list[Event] = []
    if run.first_message_seq is None:
        run, added = add_waiting_input(tx, run, now=inputs.now)
        events += [MessageAdded(message.seq, message) for message in added]
    return end_run(tx, run_log_of(tx, run), Finish("error", failure), events, inputs)
