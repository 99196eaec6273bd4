"""Rows of a run's log: what the engine and hooks add, input that waits to become rows, and the calls of an
answer. T9: a run ends. Whatever the reason, its log is legal afterwards: every call has exactly one result."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from itertools import takewhile
from typing import Any

from perdure.context.sections.envelopes import engine_tokens
from perdure.context.sections.tokens import MESSAGE_OVERHEAD_TOKENS
from perdure.core.errors import IdempotencyMismatch
from perdure.core.events import Event, MessageAdded, RunEnded
from perdure.core.ids import MessageId
from perdure.core.messages import (
    Draft,
    Message,
    MessageKind,
    Part,
    Question,
    Reasoning,
    Text,
    ToolCall,
    ToolResult,
    parts_from_json,
    parts_to_json,
    text_of,
)
from perdure.core.models import ModelReply
from perdure.core.ports import TokenCounter
from perdure.core.runs import Run, RunOptions
from perdure.core.sources import Source
from perdure.core.specs import ToolOutcome, bare_name
from perdure.core.tools.arguments import unwrap_arguments
from perdure.engine.log.next_action import EndRun, next_action
from perdure.engine.log.run_log import Progress, RunLog, open_calls_in, run_log_of
from perdure.engine.ports import Ports, UnitInputs
from perdure.engine.records.run_request import RunRequest
from perdure.storage.tx import Tx

NEWEST = 2**62
"""Above every row number."""

ID_CHARS_MAX = 200
"""Longer ids are cut; those of models have up to 64 characters."""
CALLS_SHARE = 0.25
"""The share of the window for the arguments of one answer's calls: they stay whole in the view until their results
come."""
NAME_CHARS_MAX = 200
"""Characters of a tool's name: no tool has a longer one."""
ARGUMENTS_KEPT_CHARS = 200
"""Characters that stay of arguments that are too long."""
GAVE_UP = "I could not do that: my tool calls keep failing."
"""The answer of a model that was asked for words, and called a tool all the same."""
TOKENS_PER_CHAR_MAX = 4
"""Arguments that fit even at this rate are not counted: each character stands for a token."""


def engine_drafts(kind: MessageKind, texts: Sequence[str], inputs: UnitInputs) -> tuple[list[Draft], list[int]]:
    """Return envelopes (JSON) of the engine or of hooks as drafts, with their tokens."""
    drafts = [
        Draft(id=MessageId(inputs.ids.new("message")), role="system", kind=kind, parts=(Text(text),)) for text in texts
    ]
    return drafts, [engine_tokens(text, inputs.counter) for text in texts]


def result_draft(call: ToolCall, outcome: ToolOutcome, inputs: UnitInputs) -> Draft:
    """Return the outcome of a call as a row of the log."""
    parts = (outcome.result(call),)
    return Draft(
        id=MessageId(inputs.ids.new("message")), role="tool", parts=parts, name=call.name, sources=outcome.sources
    )


def add_hook_context(tx: Tx, run: Run, inputs: UnitInputs) -> tuple[Run, Sequence[Message]]:
    """Append what hooks have added since the last request; return the run without it, and the new rows."""
    rows = tx.messages.append(run, *engine_drafts("hook", run.context, inputs), at=inputs.now)
    return tx.runs.set_context(run, ()), rows


def add_waiting_input(tx: Tx, run: Run, *, now: datetime) -> tuple[Run, Sequence[Message]]:
    """Append the input that waits on the run's row; return the run without it, and the new rows."""
    waiting = tx.runs.waiting_input(run.key)
    if waiting is None:
        return replace(run, input_waits=False), ()
    rows = tx.messages.append(run, *decode_drafts(waiting), at=now)
    first_seq = rows[0].seq if run.first_message_seq is None else run.first_message_seq
    tx.runs.begin_input(run.key, first_message_seq=first_seq)
    return replace(run, input_waits=False, first_message_seq=first_seq), rows


def encode_drafts(drafts: Sequence[Draft], tokens: Sequence[int]) -> str:
    """Return drafts and their token estimates as JSON, to wait on a run's row."""

    def shape(draft: Draft, count: int) -> dict[str, Any]:
        """Return a draft of so many tokens as a JSON object."""
        fields = {name: getattr(draft, name) for name in Draft.__slots__ if name != "sources"}
        if draft.sources is not None:  # an older version of Perdure knows no such name
            fields["sources"] = [[source.label, source.name] for source in draft.sources]
        occurred_at = draft.occurred_at.isoformat() if draft.occurred_at else None
        return fields | {"parts": parts_to_json(draft.parts), "occurred_at": occurred_at, "tokens": count}

    return json.dumps([shape(draft, count) for draft, count in zip(drafts, tokens, strict=True)], ensure_ascii=False)


def decode_drafts(text: str) -> tuple[list[Draft], list[int]]:
    """Return the drafts of a run's waiting input, and their token estimates."""
    drafts, tokens = [], []
    for shape in json.loads(text):
        tokens.append(shape.pop("tokens"))
        occurred_at = shape.pop("occurred_at")
        sources = shape.pop("sources", None)
        drafts.append(
            Draft(
                **shape | {"parts": parts_from_json(shape["parts"])},
                occurred_at=datetime.fromisoformat(occurred_at) if occurred_at else None,
                sources=None if sources is None else tuple(Source(label, name) for label, name in sources),
            )
        )
    return drafts, tokens


def tidy_reply(reply: ModelReply, *, in_words: bool) -> tuple[ModelReply, str]:
    """Return (the answer with plain names of tools and objects as arguments, words that are to be shown because they
    were not streamed). `in_words`: the answer may hold no calls: they are dropped, and an answer without words gets
    `GAVE_UP`."""
    if not any(isinstance(part, ToolCall) for part in reply.parts):
        return reply, ""
    parts = tuple(
        replace(part, name=bare_name(part.name), arguments=unwrap_arguments(part.arguments))
        if isinstance(part, ToolCall)
        else part
        for part in reply.parts
    )
    words = tuple(part for part in parts if not isinstance(part, ToolCall))
    if not in_words or words == parts or text_of(words).strip():
        return replace(reply, parts=words if in_words else parts), ""
    said = text_of(parts).strip() or GAVE_UP
    return replace(reply, parts=(*words, Text(said)), stop_reason="end_turn"), said


@dataclass(slots=True)
class CallIds:
    """The ids of one answer's calls, each unique within the run: some models begin at the same number in each answer.

    Args:
        used: the ids of the run's other calls.
        by_index: number of a call in the answer's deltas -> (the model's id, the id in use).
    """

    used: set[str]
    by_index: dict[int, tuple[str, str]] = field(default_factory=dict)

    def id_of_delta(self, index: int, call_id: str | None, *, avoid: Collection[str] = ()) -> str:
        """Return the id for the call with this number in an answer's deltas. `avoid`: further ids that are taken."""
        if index not in self.by_index:
            self.by_index[index] = (call_id or "", self._add(call_id, avoid))
        return self.by_index[index][1]

    def apply(self, parts: Sequence[Part]) -> tuple[Part, ...]:
        """Return the parts of the whole answer without empty ones; its calls have the ids of their deltas."""
        streamed = list(self.by_index.values())
        new_parts: list[Part] = []
        for part in parts:
            if isinstance(part, ToolCall):
                ids_of_call = next((ids for ids in streamed if ids[0] == part.call_id), None)
                if ids_of_call is not None:
                    streamed.remove(ids_of_call)
                new_parts.append(
                    replace(part, call_id=self._add(part.call_id) if ids_of_call is None else ids_of_call[1])
                )
            elif isinstance(part, Text | Reasoning) and not part.text and getattr(part, "signature", None) is None:
                continue  # but reasoning that is only a signature has to go back to its provider
            else:
                new_parts.append(part)
        return tuple(new_parts)

    def _add(self, call_id: str | None, avoid: Collection[str] = ()) -> str:
        """Reserve the model's id for a call, changed if another call has it; return it."""
        base = (call_id or "call")[:ID_CHARS_MAX]
        unique, count = base, 1
        while unique in self.used or unique in avoid:
            count += 1
            unique = f"{base}-{count}"
        self.used.add(unique)
        return unique


def shorten_calls(
    parts: Sequence[Part], *, counter: TokenCounter, most_tokens: int
) -> tuple[tuple[Part, ...], Mapping[str, str]]:
    """Return the parts of an answer with the beginnings of calls that are too long; and call id -> why that call is not
    run, in words for the model. `most_tokens`: of the arguments of all calls together."""
    new_parts: list[Part] = []
    refused: dict[str, str] = {}
    budget = most_tokens
    for part in parts:
        if not isinstance(part, ToolCall):
            new_parts.append(part)
            continue
        if len(part.name) > NAME_CHARS_MAX:
            part = replace(part, name=f"{part.name[:NAME_CHARS_MAX]}…")
        size = len(part.arguments)
        tokens = size if size * TOKENS_PER_CHAR_MAX <= budget else counter.count(part.arguments)
        if tokens <= budget:
            budget -= tokens
        else:
            limit = size * budget // tokens
            refused[part.call_id] = (
                f"arguments too long: {size:,} characters, limit {limit:,}; the tool was not run. Give less at once, or"
                " do it in several calls"
            )
            part = replace(part, arguments=f"{part.arguments[:ARGUMENTS_KEPT_CHARS]}… [cut: {size:,} characters]")
        new_parts.append(part)
    return tuple(new_parts), refused


OTID_KEY = "otid:"
"""The beginning of a key that is made of a client's own ids of messages."""
OTID_COUNTS = timedelta(minutes=1)
"""How long after a run's end such a key still names it."""


def find_known(tx: Tx, request: RunRequest, *, now: datetime) -> Run | None:
    """Return the run of the same request that came before; None: there is none.

    Some clients send one constant `otid` with everything. So another text with it is another message, and so is the
    same text later than a client would try again; not answers to calls, which wait no more.

    Raises: IdempotencyMismatch: the run had the key with another text.
    """
    key = request.idempotency_key
    known = None if key is None else tx.runs.find_by_key(request.agent_id, request.conversation_seq, key)
    if key is None or known is None:
        return None
    run, digest_before = known
    if not key.startswith(OTID_KEY):
        if digest_before != request.digest:
            raise IdempotencyMismatch(key)
        return run
    is_late = request.answers is None and run.ended_at is not None and now > run.ended_at + OTID_COUNTS
    return None if is_late or digest_before != request.digest else run


def is_sent_again(tx: Tx, active: Run, drafts: Sequence[Draft], options: RunOptions) -> bool:
    """Return whether the active run was begun by these same messages, and no client's id tells the two apart."""
    if options != active.options or active.resumes is not None or any(draft.otid for draft in drafts):
        return False
    before: Sequence[Draft | Message]
    if active.input_waits:
        before, _ = decode_drafts(tx.runs.waiting_input(active.key) or "[]")
    else:
        before = list(takewhile(lambda row: row.role != "assistant", tx.messages.list_by_run(active)))
    sent = _contents(drafts)
    return bool(sent) and sent == _contents(before)


def _contents(rows: Sequence[Draft | Message]) -> list[tuple[object, ...]]:
    """Return the texts of callers in these rows, in a form that can be compared."""
    return [(row.role, row.name, row.sender_id, row.parts) for row in rows if row.kind == "message"]


async def finish(log: RunLog, ports: Ports) -> Progress:
    """End the run as its log says, in one transaction; return the new log. Raises: LeaseLost."""
    return await ports.store.write(_finish, log, ports.inputs())


def _finish(tx: Tx, log: RunLog, inputs: UnitInputs) -> Progress:
    """End the run, unless its log, as the transaction reads it, has another action next."""
    log = run_log_of(tx, tx.runs.keep_lease(log.run))
    if not isinstance(action := next_action(log), EndRun):
        return Progress(log)
    events: list[Event] = []
    if action.reason == "end_turn" and (questions := log.questions):
        log = _append_questions(tx, log, questions, inputs)
        events.append(MessageAdded(log.messages[-1].seq, log.messages[-1]))
    return end_run(tx, log, action, events, inputs)


def _append_questions(tx: Tx, log: RunLog, questions: Sequence[Question], inputs: UnitInputs) -> RunLog:
    """Append the questions as the agent's last message, so that every reader sees them as its answer."""
    parts = (Text("\n\n".join(question.as_text for question in questions)),)
    rows = tx.messages.append(
        log.run,
        [Draft(id=MessageId(inputs.ids.new("message")), role="assistant", parts=parts)],
        [inputs.counter.count(parts_to_json(parts)) + MESSAGE_OVERHEAD_TOKENS],
        at=inputs.now,
        step_id=next(message.step_id for message in reversed(log.messages) if message.results),
    )
    return replace(log, messages=(*log.messages, *rows))


def end_run(tx: Tx, log: RunLog, action: EndRun, events: list[Event], inputs: UnitInputs) -> Progress:
    """End a run inside a transaction that holds its lease.

    Calls that wait for a person or the caller stay open, and the conversation says so; what hooks have added waits with
    them.

    Args:
        action: the stop reason, and the failure if there is one.
        events: the transaction's other events, which come first.
    """
    run, now = log.run, inputs.now
    calls = open_calls_in(log.messages)
    waits = action.reason == "requires_approval"
    if waits:
        first = calls[0].message.seq
        tx.conversations.put_pending(run.key.agent_id, run.conversation_seq, run_seq=run.key.seq, from_seq=first)
    steps = log.steps
    if steps and steps[-1].status == "pending":
        steps = (*steps[:-1], tx.steps.end(steps[-1], status="cancelled", at=now, stop_reason=action.reason))
    added: list[Message] = []
    if calls and not waits:
        drafts = [
            Draft(
                id=MessageId(inputs.ids.new("message")),
                role="tool",
                parts=(_result_of_open_call(open_call.call, open_call.call.call_id in log.started, action),),
            )
            for open_call in calls
        ]
        added += tx.messages.append(run, drafts, [20] * len(drafts), at=now, step_id=calls[0].message.step_id)
    if run.input_waits:  # it was acknowledged, so it is in the log whatever became of the run
        run, rows = add_waiting_input(tx, run, now=now)
        added += rows
    if run.context and not waits:
        run, rows = add_hook_context(tx, run, inputs)
        added += rows
    if added or steps is not log.steps:
        log = replace(log, messages=(*log.messages, *added), steps=steps)
    usage = run.usage + log.usage  # what summaries took stands on the run's row already
    run = tx.runs.end(
        run, reason=action.reason, usage=usage, step_count=log.steps_taken, failure=action.failure, at=now
    )
    events += [MessageAdded(message.seq, message) for message in added]
    events.append(RunEnded(run.id, action.reason, usage, log.steps_taken, action.failure, log.context_tokens))
    stored = tx.events.add(run.key, events, at=now)
    if run.background:  # after the last event, which keeps the numbers of those that go from being given again
        since = now - timedelta(seconds=inputs.settings.keep_deltas_s)
        tx.events.trim_deltas(run.key, keep=inputs.settings.keep_deltas, since=since)
    return Progress(replace(log, run=run), stored)


def _result_of_open_call(call: ToolCall, started: bool, action: EndRun) -> ToolResult:
    """Return the result of a call that the run leaves open.

    Args:
        started: a process has begun to run its tool.
        action: how the run ends.
    """
    ended = "the run was cancelled" if action.reason == "cancelled" else f"the run ended ({action.reason})"
    text = f"interrupted: outcome unknown, {ended} while the tool was running" if started else f"not run: {ended}"
    return ToolOutcome(text=text, status="error").result(call)
