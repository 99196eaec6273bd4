"""What must hold of a store after any history."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import reduce
from itertools import groupby
from operator import add

from perdure.context.sections.assemble import assemble, check_legal, digest_of
from perdure.context.sections.envelopes import KEEP_ALIVE
from perdure.core.blocks import WORKING_CHECKPOINT
from perdure.core.errors import IllegalLog
from perdure.core.events import HookAnswered, RunEnded, RunQueued, StepAbandoned, StoredEvent, ViewCompacted
from perdure.core.ids import AgentId
from perdure.core.messages import Message, MessageFilter, ToolCall
from perdure.core.passages import CAPTURED
from perdure.core.runs import NO_USAGE, Run, Usage
from perdure.core.text.words import parse_query, stems
from perdure.engine.log.run_log import open_calls_in
from perdure.engine.run.request import load_view
from perdure.storage.database.full_text import CLAUSE_ROWS
from perdure.storage.tx import Tx

_EVERYTHING = 1_000_000


class Violation(AssertionError):
    """A promise was broken."""


def check_agent(
    tx: Tx, agent_id: AgentId, *, sent: Iterable[str], requests: set[str] | None = None, notes: str = "notes"
) -> None:
    """Nothing, when every promise holds of this agent.

    Args:
        sent: the texts of all acknowledged messages; each was sent once, however often it was retried.
        requests: digests of the requests that models were sent; every recorded step must be rebuilt to one of them.
        notes: label of the block into which the model appends tokens in brackets.
    Raises: Violation.
    """
    messages = tx.messages.list(agent_id, limit=_EVERYTHING, kinds=None, reset=True)
    runs = tx.runs.list(agent_id, limit=_EVERYTHING)
    _check_messages(messages, list(sent), taken_back=sum(map(was_taken_back, runs)))
    check_resets(tx, agent_id)
    for conversation in tx.conversations.list(agent_id, limit=1000):
        _check_line([message for message in messages if message.conversation_seq == conversation.seq])
    _check_runs(tx, agent_id, requests)
    _check_blocks(tx, agent_id, messages, notes)
    _check_working_notes(tx, agent_id, messages)
    _check_captures(tx, agent_id, messages)
    _check_derived(tx, agent_id)
    _check_hooks(tx, agent_id, messages)


def check_moment(tx: Tx, agent_id: AgentId) -> None:
    """What holds after every commit, also when the process dies right after it. Raises: Violation."""
    messages = tx.messages.list(agent_id, limit=_EVERYTHING, kinds=None, reset=True)
    if [message.seq for message in messages] != list(range(len(messages))):
        raise Violation(f"message numbers are not gapless: {[message.seq for message in messages]}")
    check_resets(tx, agent_id)
    _check_derived(tx, agent_id)
    _check_blocks(tx, agent_id, messages, "")
    for run in tx.runs.list(agent_id, limit=_EVERYTHING):
        events = tx.events.list(run.key, limit=_EVERYTHING)
        kinds = [type(event.event) for event in events]
        if [event.seq for event in events] != list(range(1, len(events) + 1)) or kinds[0] is not RunQueued:
            raise Violation(f"events of run {run.key.seq} are not gapless")
        if run.ended != (kinds[-1] is RunEnded):
            raise Violation(f"run {run.key.seq} is {run.status}, and its last event {kinds[-1].__name__}")
        open_calls = open_calls_in(tx.messages.list_by_run(run))
        if run.ended and run.stop_reason != "requires_approval" and open_calls:
            raise Violation(f"run {run.key.seq} has ended ({run.stop_reason}), and calls are open: {open_calls}")


def _check_derived(tx: Tx, agent_id: AgentId) -> None:
    """The indexes, tags, counts, vectors and queue agree with the texts they are made of."""
    owners = {agent_id, *(archive.id for archive in tx.archives.list_by_agent(agent_id))}
    for owner in tx.upkeep.owners(limit=_EVERYTHING):
        if owner.id in owners and (faults := tx.upkeep.check(owner, limit=_EVERYTHING).faults):
            raise Violation(f"what is derived does not agree with the texts: {faults}")


def check_resets(tx: Tx, agent_id: AgentId) -> None:
    """What was said since the newest reset is in view, counted and found, and nothing of before. Raises: Violation."""
    messages = tx.messages.list(agent_id, limit=_EVERYTHING, kinds=None, reset=True)
    lines = {line.seq: line for line in tx.conversations.list(agent_id, limit=1000)}
    for reset in tx.resets.list(agent_id, limit=_EVERYTHING):
        line = tx.conversations.get(reset.conversation_id)
        if reset.upto_seq >= line.first_seq:
            raise Violation(f"conversation {line.seq} was reset up to {reset.upto_seq} and begins at {line.first_seq}")
    since = [message for message in messages if message.seq >= lines[message.conversation_seq].first_seq]
    shown = tx.messages.list(agent_id, limit=_EVERYTHING, kinds=None)
    if list(shown) != since:
        raise Violation(f"in view is {[one.seq for one in shown]}, said since was {[one.seq for one in since]}")
    said = [message for message in since if message.kind == "message"]
    if tx.messages.count(agent_id) != len(said):
        raise Violation(f"{tx.messages.count(agent_id)} messages are counted, and there are {len(said)}")
    found = tx.messages.match(
        agent_id, parse_query("done"), where=MessageFilter(roles=("assistant",)), limit=_EVERYTHING
    )
    due = [message.seq for message in said if message.role == "assistant" and "done" in stems(message.text)]
    if {*found.seqs} != {*due[-CLAUSE_ROWS:]}:
        raise Violation(f"a search finds {sorted(found.seqs)}, and {sorted(due)} are there")


def _check_captures(tx: Tx, agent_id: AgentId, messages: Sequence[Message]) -> None:
    """What was captured was captured once, and nothing before it was left out but what a reset took away first."""
    captured = Counter(
        turn["id"]
        for archive in tx.archives.list_by_agent(agent_id)
        for passage in tx.passages.page(archive.id, limit=_EVERYTHING)
        if passage.source.get("type") == CAPTURED
        for turn in passage.metadata["turns"]
    )
    upto = {line.seq: tx.captures.last_seq(agent_id, line.seq) for line in tx.conversations.list(agent_id, limit=1000)}
    due = Counter(
        message.id
        for message in messages
        if message.kind == "message"
        and message.role in ("user", "assistant")
        and message.text.strip()
        and message.seq <= upto[message.conversation_seq]
    )
    shown = {message.id for message in tx.messages.list(agent_id, limit=_EVERYTHING)}
    if captured - due or {*(due - captured)} & shown:
        raise Violation(f"captured {captured - due} too often, and not {due - captured}")


def was_taken_back(run: Run) -> bool:
    """Whether a run was cancelled while it waited behind another one, so that its message is in no history."""
    return run.status == "cancelled" and run.first_message_seq is None and run.resumes is None


def _check_messages(messages: Sequence[Message], sent: list[str], *, taken_back: int) -> None:
    numbers = [message.seq for message in messages]
    if numbers != list(range(len(numbers))):
        raise Violation(f"message numbers are not gapless: {numbers}")
    said = Counter(message.text for message in messages if (message.role, message.kind) == ("user", "message"))
    if lost := [text for text in sent if not said[text]][taken_back:]:
        raise Violation(f"messages were acknowledged and are not in the log: {lost}, and {taken_back} others")
    if doubled := [text for text in sent if said[text] > 1]:
        raise Violation(f"messages stand more than once in the log: {doubled}")
    if extra := set(said) - {*sent, KEEP_ALIVE}:  # which goes on after a cancelled run
        raise Violation(f"messages that nobody sent: {extra}")


def _check_line(messages: Sequence[Message]) -> None:
    """One conversation: legal, so that each call has one result right behind it, and one run after the other."""
    try:
        check_legal(messages)
    except IllegalLog as error:
        raise Violation(str(error)) from error
    runs = [message.run_seq for message in messages if message.run_seq is not None]
    turns = [run for run, _ in groupby(runs)]
    if len(turns) != len({*turns}):
        raise Violation(f"runs of a conversation are interleaved: {runs}")


def _check_runs(tx: Tx, agent_id: AgentId, requests: set[str] | None) -> None:
    for run in tx.runs.list(agent_id, limit=_EVERYTHING):
        if not run.ended:
            raise Violation(f"run {run.key.seq} is stuck: {run.status}, held by {run.lease_owner}")
        events = tx.events.list(run.key, limit=_EVERYTHING)
        if [event.seq for event in events] != list(range(1, len(events) + 1)):
            raise Violation(f"events of run {run.key.seq} are not gapless")
        kinds = [type(event.event) for event in events]
        ends = [event.event.stop_reason for event in events if isinstance(event.event, RunEnded)]
        once = len(ends) == 1 or ends == ["requires_approval", "cancelled"]
        if kinds[0] is not RunQueued or kinds[-1] is not RunEnded or not once or ends[-1] != run.stop_reason:
            raise Violation(f"events of run {run.key.seq} are not bracketed: {[kind.__name__ for kind in kinds]}")
        _check_usage(tx, run, events)
        void = {event.event.step_id for event in events if isinstance(event.event, StepAbandoned)}
        for step in tx.steps.list_by_run(run.key):
            if (step.status == "abandoned") != (step.id in void):
                raise Violation(f"step {step.index} of run {run.key.seq} is {step.status}, and told to be void: {void}")
            if step.status == "pending":
                raise Violation(f"step {step.index} of run {run.key.seq} is pending in an ended run")
            if requests is not None and step.status == "success":
                request = assemble(step.model, load_view(tx, run, step.recipe), step.recipe)
                if step.recipe.digest not in requests or digest_of(request) != step.recipe.digest:
                    raise Violation(
                        f"the request of step {step.index} of run {run.key.seq} can't be rebuilt from its recipe"
                    )


def _check_usage(tx: Tx, run: Run, events: Sequence[StoredEvent]) -> None:
    """A run has used what its model calls have, and the summaries that were made for it."""
    nodes = {node.seq: node for node in tx.nodes.list(run.key.agent_id, run.conversation_seq, limit=_EVERYTHING)}
    made = [nodes[one.event.node_seq].usage for one in events if isinstance(one.event, ViewCompacted)]
    used = reduce(add, [*(step.usage for step in tx.steps.list_by_run(run.key)), *made], NO_USAGE)
    if run.usage != used:
        raise Violation(f"run {run.key.seq} is said to have used {run.usage}, and used {used}")


def check_summaries(tx: Tx, agent_id: AgentId, *, usage: Usage) -> None:
    """Each answer that a model gave for a summary has cost `usage`, also one that was no good. Raises: Violation."""
    for line in tx.conversations.list(agent_id, limit=1000):
        for node in tx.nodes.list(agent_id, line.seq, limit=_EVERYTHING):
            rejected = [] if node.rejected in (None, "too_small") else (node.rejected or "").split("; ")
            answers = sum(": " not in one for one in rejected) + (node.made_by == "model")
            if node.usage != reduce(add, [usage] * answers, NO_USAGE):
                raise Violation(f"summary {node.seq} ({node.made_by}, {node.rejected}) is said to cost {node.usage}")


def _check_hooks(tx: Tx, agent_id: AgentId, messages: Sequence[Message]) -> None:
    """What a hook added stands in the log once, if it was told of."""
    rows = Counter(json.loads(message.text)["text"] for message in messages if message.kind == "hook")
    if twice := [text for text, count in rows.items() if count > 1]:
        raise Violation(f"what hooks added stands in the log more than once: {twice}")
    for run in tx.runs.list(agent_id, limit=_EVERYTHING):
        for one in tx.events.list(run.key, limit=_EVERYTHING):
            event = one.event
            if isinstance(event, HookAnswered) and event.outcome == "context" and event.text not in rows:
                raise Violation(
                    f"run {run.key.seq} ({run.stop_reason}) tells of {event.text!r}, which is not in the log"
                )


def _check_working_notes(tx: Tx, agent_id: AgentId, messages: Sequence[Message]) -> None:
    """Each conversation has the notes of its newest call that changed them, with one version for each call."""
    for line in tx.conversations.list(agent_id, limit=1000):
        calls: dict[str, ToolCall] = {}
        written: list[str] = []
        for message in (one for one in messages if one.conversation_seq == line.seq):
            calls |= {call.call_id: call for call in message.calls}
            written += [
                json.loads(calls[result.call_id].own_arguments)["key_info"]
                for result in message.results
                if result.name == "update_working_checkpoint" and result.status == "success"
            ]
        block_id = tx.blocks.list_isolated(agent_id, line.seq).get(WORKING_CHECKPOINT)
        versions = [] if block_id is None else [one.value for one in tx.blocks.versions(block_id, limit=_EVERYTHING)]
        if versions[::-1][1:] != written:
            raise Violation(f"working notes of conversation {line.seq} were {versions}, and written {written}")


def _check_blocks(tx: Tx, agent_id: AgentId, messages: Sequence[Message], notes: str) -> None:
    for block in tx.blocks.list_by_agent(agent_id):
        versions = tx.blocks.versions(block.id, limit=_EVERYTHING)
        if [version.version for version in versions] != list(range(block.version, -1, -1)):
            raise Violation(f"versions of block {block.label!r} are not gapless")
        if versions[0].value != block.value:
            raise Violation(f"block {block.label!r} is not what its newest version says")
        if block.label == notes:
            noted = Counter(re.findall(r"\[([^]]+)]", block.value))
            edited = Counter(
                token
                for message in messages
                for result in message.results
                if result.name == "core_memory_append" and result.status == "success"
                for token in re.findall(r"\[([^]]+)]", result.text.rpartition("\n")[2])
            )
            if any(count != 1 for count in noted.values()) or set(edited) - set(noted):
                raise Violation(f"edits are lost or doubled in block {notes!r}: {noted} against {edited}")
