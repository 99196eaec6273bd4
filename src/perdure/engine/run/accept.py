"""T1: a request is accepted. Once this is committed, the caller may be told so, and it will be answered.

If no other run is before it, its run begins in the same transaction (`engine.run.begin`): one commit less.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from perdure.core.answers import Answer, answer_digest
from perdure.core.conversations import ConversationState
from perdure.core.errors import (
    AnswerInvalid,
    ConversationBusy,
    EmptyMessage,
    IdempotencyMismatch,
    InvalidInput,
    MessageTooLarge,
    ModelNotFound,
)
from perdure.core.events import Event, MessageAdded, RunQueued, StoredEvent
from perdure.core.ids import AgentId, RunId, StepId
from perdure.core.limits import Limits
from perdure.core.messages import Draft, Message, parts_from_json, parts_to_json, text_of
from perdure.core.runs import IfBusy, Run, RunKey
from perdure.engine.approvals.answers import (
    Pending,
    answer_rows,
    check_answers,
    find_pending,
    refuse_while_pending,
    return_limit_chars,
)
from perdure.engine.approvals.decisions import split_repeated_answers
from perdure.engine.ports import UnitInputs
from perdure.engine.run.log import RunLog, rule_scope_of, run_log_of
from perdure.engine.run.progress import Progress
from perdure.storage.tx import Tx

STEPS, MAX_STEPS = 50, 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What a caller wants answered. `tokens` are the estimates of `drafts`, in their order.

    Args:
        idempotency_key: the same key again is the same run, whatever became of the first call's answer.
        answers: to calls of the conversation that wait; `drafts` then come behind their results. None: a message.
        partial: the answers may be to some of those calls only; the run goes on when all are answered.
        client_tools: the tools that the caller runs itself, each with name, description and parameters, and the skills
            it has, each with the type "skill", name, description and location; None: for answers those of the run
            that goes on.
        max_steps: how many model calls it may take; None: 50, or for answers what the run that stopped has left.
    """

    run_id: RunId
    agent_id: AgentId
    conversation_seq: int
    drafts: tuple[Draft, ...]
    tokens: tuple[int, ...]
    idempotency_key: str | None = None
    if_busy: IfBusy = "wait"
    background: bool = False
    max_steps: int | None = None
    answers: tuple[Answer, ...] | None = None
    partial: bool = False
    client_tools: tuple[Mapping[str, Any], ...] | None = None

    @property
    def digest(self) -> str:
        """The digest of messages and answers, without what hooks added: it tells a retry from another request under
        the same key."""
        return self._digest(*(() if self.answers is None else (answer_digest(self.answers),)))

    @property
    def message_digest(self) -> str | None:
        """The digest of the messages alone; None: there are none."""
        return self._digest() if self.drafts else None

    def _digest(self, *more: str) -> str:
        messages = [[draft.role, parts_to_json(draft.parts)] for draft in self.drafts if draft.kind == "message"]
        return hashlib.sha256(json.dumps([*messages, *more]).encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class Accepted:
    """`repeated`: the run was accepted before, under the same key; `begun`: it was claimed as well, and this is how far
    it has come; `waits`: it is the run that stopped, and some of its calls are still to be answered."""

    run: Run
    events: Sequence[StoredEvent]
    repeated: bool = False
    begun: Progress | None = None
    waits: bool = False


@dataclass(frozen=True, slots=True)
class Started:
    """An accepted run that nothing stands before: what its first step is made from, in the same transaction.

    Args:
        events: what is to be told of it, not stored yet.
    """

    log: RunLog
    opening: ConversationState
    events: list[Event]


def check_input(
    drafts: Sequence[Draft], *, limits: Limits, limit_chars: int, max_steps: int | None, answers: bool = False
) -> None:
    """Nothing, when the input can be accepted; it may be empty beside `answers`. Raises: EmptyMessage, TooMany,
    MessageTooLarge, InvalidInput."""
    if not drafts and not answers:
        raise EmptyMessage
    limits.check("messages_per_request", len(drafts))
    if (size := sum(len(text_of(draft.parts)) for draft in drafts)) > limit_chars:
        raise MessageTooLarge(size=size, limit=limit_chars)
    for draft in drafts:
        if not text_of(draft.parts).strip():
            raise EmptyMessage
    if max_steps is not None and not 1 <= max_steps <= MAX_STEPS:
        raise InvalidInput(f"max_steps is {max_steps!r:.80}: it must be from 1 to {MAX_STEPS:,}")


def accept(tx: Tx, request: Request, inputs: UnitInputs) -> Accepted:
    """The queued run, reserved for this process until the lease ends (T1).

    Behind another run of the conversation the input waits on the run's row: a message must not come to stand between
    that run's calls and their results.

    Raises: NotFound, ConversationBusy, ApprovalPending, AnswerInvalid, IdempotencyMismatch; ModelNotFound: this process
        can't reach the agent's model, so the message is refused.
    """
    accepted, _ = accept_and_start(tx, request, inputs, running=False)
    return accepted


def accept_and_start(
    tx: Tx, request: Request, inputs: UnitInputs, *, running: bool = True
) -> tuple[Accepted, Started | None]:
    """As `accept`, but a run that has nothing to wait for is `running`, and its events are still to be stored."""
    tx.agents.lock(request.agent_id)
    if request.idempotency_key is not None:
        known = tx.runs.find_by_key(request.agent_id, request.conversation_seq, request.idempotency_key)
        if known is not None:
            run, digest = known
            if digest != request.digest:
                raise IdempotencyMismatch(request.idempotency_key)
            return Accepted(run, (), repeated=True), None
    opening = tx.conversations.opening(request.agent_id, request.conversation_seq)
    if request.answers is not None:
        return _resume(tx, request, request.answers, opening, inputs, running=running)
    refuse_while_pending(tx, opening.conversation)
    busy = opening.active_run_seq is not None
    if opening.active_run_seq is not None and request.if_busy == "reject":
        raise ConversationBusy(tx.runs.at(RunKey(request.agent_id, opening.active_run_seq)).id)
    run = _add_run(
        tx,
        request,
        opening,
        inputs,
        drafts=() if busy else request.drafts,
        max_steps=STEPS,
        running=running and not busy,
        waiting_input=_encode_drafts(request.drafts, request.tokens) if busy else None,
    )
    if request.client_tools:
        run = _with_client_tools(tx, run, request.client_tools)
    events: list[Event] = [RunQueued(run.id)]
    if busy:
        return Accepted(run, tx.events.add(run.key, events, at=inputs.now, after=0)), None
    added = _append_input(tx, run, request.drafts, request.tokens, now=inputs.now, opening=opening)
    events += [MessageAdded(message.seq, message) for message in added]
    if not running:
        return Accepted(run, tx.events.add(run.key, events, at=inputs.now, after=0)), None
    rule_scope = rule_scope_of(tx, run, opening.agent.settings)
    log = RunLog(run=run, messages=tuple(added), steps=(), started={}, rule_scope=rule_scope, last_event_seq=0)
    return Accepted(run, ()), Started(log, opening.after(added), events)


def _add_run(
    tx: Tx,
    request: Request,
    opening: ConversationState,
    inputs: UnitInputs,
    *,
    drafts: Sequence[Draft],
    max_steps: int,
    running: bool,
    waiting_input: str | None = None,
) -> Run:
    """The run of a request, stored with its idempotency key. `max_steps`: where the request gives none.

    Raises: ModelNotFound.
    """
    model = opening.agent.model
    if inputs.models.find(model) is None:
        raise ModelNotFound(model, known=inputs.models.handles())
    run = tx.runs.add(
        opening,
        request.run_id,
        drafts=drafts,
        at=inputs.now,
        max_steps=max_steps if request.max_steps is None else request.max_steps,
        background=request.background,
        running=running,
        lease_owner=inputs.owner,
        lease_until=inputs.until,
        waiting_input=waiting_input,
    )
    if request.idempotency_key is not None:
        tx.runs.remember_key(run.key, request.conversation_seq, request.idempotency_key, digest=request.digest)
    return run


def _resume(
    tx: Tx,
    request: Request,
    answers: Sequence[Answer],
    opening: ConversationState,
    inputs: UnitInputs,
    *,
    running: bool,
) -> tuple[Accepted, Started | None]:
    """The run that goes on with these answers. It stands before all that wait, and begins at once."""
    agent, conversation, now = opening.agent, opening.conversation, inputs.now
    pending = find_pending(tx, conversation)
    most_chars = return_limit_chars(agent, inputs.models, inputs.settings)
    answers, earlier = split_repeated_answers(
        tx, conversation, pending, answers, message_digest=request.message_digest, most_chars=most_chars
    )
    if earlier is not None and (pending is None or earlier.key != pending.run.key):
        return Accepted(earlier, (), repeated=True), None
    if pending is None:
        raise AnswerInvalid(
            "Cannot process approval response: No tool call is currently awaiting approval in this conversation"
        )
    stopped, step_id = pending.run, pending.message.step_id
    answers = check_answers(tx, agent, pending, answers, partial=request.partial or earlier is not None)
    rows, tokens = answer_rows(pending, answers, ids=inputs.ids, counter=inputs.counter, most_chars=most_chars)
    unanswered = {one.call.call_id for one in pending.waiting} - {one.call_id for one in answers}
    if unanswered:
        if request.drafts or request.client_tools is not None:
            raise AnswerInvalid(
                f"other calls wait still ({', '.join(sorted(unanswered))}): a message or tools go along with the answer"
                " that leaves none"
            )
        if rows:
            _append_input(tx, stopped, rows, tokens, now=now, step_id=step_id)
        return Accepted(stopped, (), waits=True), None
    run = _add_resumed_run(tx, request, opening, pending, rows, inputs, running=running)
    tx.conversations.wait(agent.id, conversation.seq, run_seq=None)
    added: Sequence[Message] = ()
    if rows:
        added = _append_input(tx, run, rows, tokens, now=now, step_id=step_id, opening=opening)
    events: list[Event] = [RunQueued(run.id), *(MessageAdded(message.seq, message) for message in added)]
    if running:
        # Nothing is known of it that the store does not say: some of its log is another run's.
        log = replace(run_log_of(tx, run), last_event_seq=0)
        return Accepted(run, ()), Started(log, opening.after(added), events)
    return Accepted(run, tx.events.add(run.key, events, at=now, after=0)), None


def _add_resumed_run(
    tx: Tx,
    request: Request,
    opening: ConversationState,
    pending: Pending,
    rows: Sequence[Draft],
    inputs: UnitInputs,
    *,
    running: bool,
) -> Run:
    """A run that takes over from the one that stopped: its steps left, its hooks' contexts and its client tools."""
    stopped = pending.run
    run = _add_run(
        tx,
        request,
        opening,
        inputs,
        drafts=rows,
        max_steps=max(0, stopped.max_steps - stopped.step_count),
        running=running,
    )
    run = tx.runs.resume(
        run,
        resumes=stopped.key.seq,
        begins_at=pending.message.seq,
        turn_from=stopped.turn_from if stopped.turn_from is not None else stopped.first_message_seq or 0,
        answer={
            "said": request.message_digest,
            "calls": [one.call_id for one in pending.message.calls if one.awaits],
        },
        waiting_input=_encode_drafts(request.drafts, request.tokens) if request.drafts else None,
    )
    if stopped.context:  # what hooks have added since the model was asked
        run = tx.runs.set_context(run, stopped.context)
        tx.runs.set_context(stopped, ())
    tools = request.client_tools
    if tools is None and stopped.client_tools is not None:
        tools = tuple(tx.runs.client_tools(run.key.agent_id, stopped.client_tools))
    return _with_client_tools(tx, run, tools) if tools else run


def _with_client_tools(tx: Tx, run: Run, tools: Sequence[Mapping[str, Any]]) -> Run:
    text = json.dumps(list(tools), ensure_ascii=False, sort_keys=True)
    tx.limits.check("client_limit_chars", len(text))
    return tx.runs.put_client_tools(run, hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest(), tools)


def add_waiting_input(tx: Tx, run: Run, *, now: datetime) -> tuple[Run, Sequence[Message]]:
    """Put what was said along with answers into the log, behind the results; the run without it, and the messages."""
    waiting = tx.runs.waiting_input(run.key)
    if waiting is None:
        return replace(run, input_waits=False), ()
    added = _append_input(tx, run, *decode_drafts(waiting), now=now)
    tx.runs.begin_input(
        run.key, first_message_seq=added[0].seq if run.first_message_seq is None else run.first_message_seq
    )
    return replace(run, input_waits=False), added


def begin_input(
    tx: Tx, run: Run, drafts: Sequence[Draft], tokens: Sequence[int], *, now: datetime
) -> list[MessageAdded]:
    """Put the input that has waited into the log; the events that tell of it, not yet stored."""
    added = _append_input(tx, run, drafts, tokens, now=now)
    tx.runs.begin_input(run.key, first_message_seq=added[0].seq)
    return [MessageAdded(message.seq, message) for message in added]


def _append_input(
    tx: Tx,
    run: Run,
    drafts: Sequence[Draft],
    tokens: Sequence[int],
    *,
    now: datetime,
    step_id: StepId | None = None,
    opening: ConversationState | None = None,
) -> Sequence[Message]:
    """The messages of a run's input. `step_id`: the step whose calls they answer."""
    return tx.messages.append(
        run.key.agent_id,
        drafts,
        conversation_seq=run.conversation_seq,
        at=now,
        tokens=tokens,
        run=run,
        step_id=step_id,
        opening=opening,
    )


def _encode_drafts(drafts: Sequence[Draft], tokens: Sequence[int]) -> str:
    def shape(draft: Draft, count: int) -> dict[str, Any]:
        return {
            "id": draft.id,
            "role": draft.role,
            "parts": parts_to_json(draft.parts),
            "kind": draft.kind,
            "name": draft.name,
            "otid": draft.otid,
            "sender_id": draft.sender_id,
            "occurred_at": draft.occurred_at.isoformat() if draft.occurred_at else None,
            "tokens": count,
        }

    return json.dumps([shape(draft, count) for draft, count in zip(drafts, tokens, strict=True)], ensure_ascii=False)


def decode_drafts(text: str) -> tuple[list[Draft], list[int]]:
    """The waiting input of a run: its drafts and their token estimates."""
    drafts, tokens = [], []
    for shape in json.loads(text):
        tokens.append(shape.pop("tokens"))
        occurred_at = shape.pop("occurred_at")
        drafts.append(
            Draft(
                **shape | {"parts": parts_from_json(shape["parts"])},
                occurred_at=datetime.fromisoformat(occurred_at) if occurred_at else None,
            )
        )
    return drafts, tokens
