"""The units of work of the tool phase: calls are recorded as started (T6), and results stored (T7)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from perdure.context.sections.stubs import cut_result
from perdure.context.sections.tokens import IMAGE_TOKENS, MESSAGE_OVERHEAD_TOKENS
from perdure.core.blocks import Author
from perdure.core.events import Event, MemoryEdited, MessageAdded, ToolStarted
from perdure.core.messages import ToolCall
from perdure.core.runs import Run
from perdure.core.sources import Source
from perdure.core.specs import ToolOutcome
from perdure.core.tools.engine_specs import CONTEXT_TOOL_SPECS, tool_writes_memory
from perdure.domain.blocks.units import change_blocks
from perdure.domain.provenance.context import context_sources
from perdure.domain.provenance.policy import gate_of, load_gate
from perdure.domain.tools.calls import MemoryCall
from perdure.engine.log.run_log import OpenCall, Progress, RunLog, load_run_log, rule_scope_of
from perdure.engine.log.tool_rules import EDITED
from perdure.engine.ports import UnitInputs
from perdure.engine.prompt.system_messages import renew_system_message
from perdure.engine.records.rows import result_draft
from perdure.engine.search.tools import count_use
from perdure.storage.tx import Tx

RESULT_SHARE = 0.1
"""Of the window, what one answer about what is out of view may take; `RESULT_MIN_TOKENS` of a small one."""
RESULT_MIN_TOKENS = 500


def result_tokens(window_tokens: int) -> int:
    """Return how many tokens one answer of a search or reading tool may take."""
    return max(RESULT_MIN_TOKENS, int(window_tokens * RESULT_SHARE))


def store_started(tx: Tx, log: RunLog, calls: Sequence[ToolCall], inputs: UnitInputs) -> Progress:
    """Record foreign calls as started (T6); after a cancel request nothing is recorded."""
    if tx.runs.keep_lease(log.run, until=inputs.until).cancel_requested:
        return Progress(load_run_log(tx, log))
    tx.runs.start_calls(log.run, [call.call_id for call in calls], at=inputs.now)
    events = tx.events.add(log.run.key, [ToolStarted(call.call_id, call.name) for call in calls], at=inputs.now)
    return Progress(load_run_log(tx, log), events)


def store_edit(
    tx: Tx,
    log: RunLog,
    open_call: OpenCall,
    inputs: UnitInputs,
    *,
    edit: Callable[..., ToolOutcome],
    arguments: Mapping[str, Any],
) -> Progress:
    """Run a memory tool's edit and store its result in the same transaction: step T7 of `docs/architecture.md`. Raises:
    LeaseLost; and whatever `edit` raises when it refuses, such as BlockLimitExceeded."""
    run = tx.runs.keep_lease(log.run, until=inputs.until)
    if run.cancel_requested:  # the end of the run gives each open call its result
        return Progress(load_run_log(tx, log))
    agent = tx.conversations.get_agent(run.key.agent_id, run.conversation_seq)
    name, message = open_call.call.name, open_call.message
    sources = context_sources(tx, agent.id, run.conversation_seq, before_seq=message.seq)
    if tool_writes_memory(name):
        gate = gate_of(tx, agent, sources)
        gate.check(name, is_approved=open_call.is_approved)
        sources = gate.sources
    window, _ = inputs.window(agent)
    call = MemoryCall(
        agent=agent,
        run=run,
        message_id=open_call.message.id,
        now=inputs.now,
        ids=inputs.ids,
        counter=inputs.counter,
        result_tokens=result_tokens(window),
        window_tokens=window,
        sources=sources,
    )
    outcome = edit(tx, call, **arguments)
    outcome = replace(outcome, sources=_outside_sources(tx, run, open_call, outcome))
    _mark_seen(tx, run, outcome)
    return _store_result(tx, replace(log, run=run), open_call, outcome, inputs)


def store_outcome(tx: Tx, log: RunLog, open_call: OpenCall, outcome: ToolOutcome, inputs: UnitInputs) -> Progress:
    """Store the result of a finished call and the block changes that its tool requests, in one transaction (T7).
    Raises: LeaseLost; BlockError, VersionConflict and others: a block does not take the change."""
    run = tx.runs.keep_lease(log.run, until=inputs.until)
    if outcome.passages:
        count_use(tx, outcome.passages)
    if outcome.blocks:
        agent_id, name, message = run.key.agent_id, open_call.call.name, open_call.message
        seq = run.conversation_seq
        agent = tx.conversations.get_agent(agent_id, seq)
        gate = load_gate(tx, agent, seq, before_seq=message.seq)
        gate.check(name, is_approved=open_call.is_approved)
        author = Author(
            kind="agent", id=agent_id, agent_id=agent_id, run_id=run.id, message_id=message.id, sources=gate.sources
        )
        edits = change_blocks(tx, agent_id, outcome.blocks, author=author, at=inputs.now, conversation_seq=seq)
        outcome = replace(outcome, edits=edits)
    return _store_result(tx, replace(log, run=run), open_call, outcome, inputs)


def _outside_sources(tx: Tx, run: Run, open_call: OpenCall, outcome: ToolOutcome) -> tuple[Source, ...]:
    """Return the outside sources that a memory tool's result shows: its own, or those of the messages it opens."""
    if open_call.call.name in CONTEXT_TOOL_SPECS:
        seq = open_call.message.seq
        earlier = context_sources(tx, run.key.agent_id, run.conversation_seq, before_seq=seq, everything=True)
        return tuple(one.source for one in earlier)
    return outcome.sources or ()


def _mark_seen(tx: Tx, run: Run, outcome: ToolOutcome) -> None:
    """Record that the conversation's log shows each edited block's new value, and what else of memory it shows.

    A block that another author had changed before this edit is left out: the answer with the edit may hold another
    call, which was made without seeing that change. The next request shows the block as a delta.
    """
    if not outcome.edits and not outcome.versions:
        return
    agent_id, seq = run.key.agent_id, run.conversation_seq
    seen = dict(tx.conversations.get_by_seq(agent_id, seq).seen)
    versions = {
        edit.block.id: None if edit.deleted else edit.block.version
        for edit in outcome.edits
        if edit.deleted or seen.get(edit.block.id, -1) == edit.block.version - 1
    }
    for key, version in (versions | dict(outcome.versions)).items():
        if version is None:
            seen.pop(key, None)
        else:
            seen[key] = version
    tx.conversations.put_seen_versions(agent_id, seq, seen)


def _store_result(tx: Tx, log: RunLog, open_call: OpenCall, outcome: ToolOutcome, inputs: UnitInputs) -> Progress:
    """Store the outcome as a message of the log, with its events."""
    run, call, decision = log.run, open_call.call, open_call.decision
    if outcome.edits:
        renew_system_message(tx, run.key.agent_id, run.conversation_seq, inputs)
    if decision is not None and decision.arguments is not None and not outcome.refused:
        note = f"{EDITED}{decision.arguments}]"
        shown_text = None if outcome.shown_text is None else outcome.shown_text + note
        outcome = replace(outcome, text=outcome.text + note, shown_text=shown_text)
    text = cut_result(outcome.text, outcome.shown_chars, outcome.shown_text)
    rows = tx.messages.append(
        run,
        [result_draft(call, outcome, inputs)],
        [inputs.counter.count(text) + len(outcome.images) * IMAGE_TOKENS + MESSAGE_OVERHEAD_TOKENS],
        at=inputs.now,
        step_id=open_call.message.step_id,
    )
    events: list[Event] = [
        MemoryEdited(edit.block.id, edit.block.label, edit.block.version, edit.diff) for edit in outcome.edits
    ]
    events += [MessageAdded(row.seq, row) for row in rows]
    stored = tx.events.add(run.key, events, at=inputs.now)
    # The agent's rules or tools may have been changed while the call was executed.
    rule_scope = rule_scope_of(tx, run, *tx.agents.loop_settings(run.key.agent_id))
    return Progress(replace(log, messages=(*log.messages, *rows), rule_scope=rule_scope), stored)
