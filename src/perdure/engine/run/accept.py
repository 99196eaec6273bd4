"""A request is accepted (T1), its run is claimed (T2), and its first model call is recorded (T3).

Once T1 is committed, the caller may hear of it, and the request will be answered. If nothing stands before the run, all
three are one transaction, else one each.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace

from perdure.context.sections.envelopes import KEEP_ALIVE
from perdure.core.agents import Agent
from perdure.core.conversations import ConversationState
from perdure.core.errors import AnswerInvalid, ConversationBusy, LimitReached, ModelNotFound, StoreError
from perdure.core.events import Event, MessageAdded, ModelChanged, RunQueued, RunStarted, StoredEvent
from perdure.core.features import Point
from perdure.core.hooks import BEFORE_REQUESTS
from perdure.core.messages import Draft, Message, Text
from perdure.core.runs import FAILED_REASONS, Run, RunKey, RunOptions
from perdure.core.tasks import to_the_end
from perdure.core.telemetry import LeaseTaken, RunRequested
from perdure.core.tools.answers import Answer
from perdure.domain.agents.options import LIMITS, limits_in
from perdure.engine.approvals.answers import (
    WaitingCalls,
    answer_rows,
    approval_pending,
    check_answers,
    find_pending,
    return_limit_chars,
    show_returns,
    with_client_tools,
)
from perdure.engine.approvals.decisions import split_repeated_answers
from perdure.engine.budget import BUDGETS, check_agent, remaining_limits, until_midnight_s, used_by, within
from perdure.engine.log.next_action import Action, MakeRequest, next_action
from perdure.engine.log.run_log import NO_RECALL, Progress, RunLog, rule_scope_of, run_log_of
from perdure.engine.ports import Ports, UnitInputs, with_next_model
from perdure.engine.prompt.recall import RecallFirst, plan_recall, recall
from perdure.engine.reading import NOTHING
from perdure.engine.records.rows import add_waiting_input, encode_drafts, find_known, is_sent_again
from perdure.engine.records.run_request import NewMessage, RunRequest, with_run
from perdure.engine.run.request import make_request
from perdure.storage.tx import Tx

logger = logging.getLogger(__name__)

STEPS = 50

ASKED_BY_RUN: Point[[Tx, RunRequest], None] = Point("asked_by_run")
"""Another run asks for this one: check that it may. Raises: ToolError."""


@dataclass(frozen=True, slots=True)
class Accepted:
    """A run that a request was accepted as, and its events so far.

    Args:
        repeated: it was accepted before, under the same key.
        begun: how far it has come, if it was claimed as well.
        waits: it is the run that stopped, and some of its calls are still to be answered.
    """

    run: Run
    events: Sequence[StoredEvent]
    repeated: bool = False
    begun: Progress | None = None
    waits: bool = False


class RequestDefect(Exception):
    """The first request of an acceptable message can't be made; the cause says why. Nothing was stored."""


async def accept_now(request: RunRequest, ports: Ports) -> Accepted:
    """Accept a request, and begin its run in the same transaction if nothing stands before it. Raises: as `accept`."""
    ports.telemetry.count(RunRequested(request.run_id))
    if request.answers:
        shown = await show_returns(request.agent_id, request.conversation_seq, request.answers, ports)
        request = replace(request, shown=shown)
    inputs = ports.inputs((request.agent_id, request.conversation_seq))
    # Hooks before a model are called between T2 and T3.
    begins = not request.options.note and not ports.hooks.points & BEFORE_REQUESTS
    while True:
        try:
            accepted = await ports.store.write(accept, request, inputs, begin=begins)
        except RecallFirst as first:
            inputs = replace(inputs, recalled=await recall(first.plan, ports))
        except RequestDefect as defect:  # the message is stored all the same: who claims its run meets the defect
            logger.warning("%s: its first request can't be made: %r", request.run_id, defect.__cause__)
            begins = False
        else:
            break
    if accepted.begun is not None:
        ports.views.put(accepted.begun)
    return accepted


async def claim_run(key: RunKey, ports: Ports, *, dead_owner: str | None = None) -> Progress | None:
    """Claim a run (T2); return its progress, None if it can't be claimed now. `dead_owner`: a gone process."""
    # To the end: a closing process releases what it holds, and a claim must not come behind that.
    progress = await to_the_end(ports.store.write(_claim, key, ports.inputs(), dead_owner=dead_owner))
    if progress is not None and progress.quarantined:
        ports.engine_calls.quarantine(key)
    if progress is not None and progress.log.run.lease_number > 1:
        ports.telemetry.count(LeaseTaken(progress.log.run))
    return progress


def _claim(tx: Tx, key: RunKey, inputs: UnitInputs, *, dead_owner: str | None = None) -> Progress | None:
    """Claim a run and begin its log with the waiting input (T2). `dead_owner`: a gone process, whose lease is over."""
    tx.agents.lock(key.agent_id)  # before the run, as everywhere
    run = tx.runs.claim(key, owner=inputs.owner, at=inputs.now, until=inputs.until, dead_owner=dead_owner)
    if run is None:
        return None
    events: list[Event] = [RunStarted(run.id, run.lease_number)]
    if not run.step_count:
        events += follow_default(tx, tx.conversations.get_agent(key.agent_id, run.conversation_seq), run, inputs)[1]
    if run.first_message_seq is None:
        run, added = add_waiting_input(tx, run, now=inputs.now)
        events += [MessageAdded(message.seq, message) for message in added]
    # What another process learned of the agent's context engine holds for the whole run.
    earlier = tx.events.kinds(key.agent_id, [key.seq] if run.lease_number > 1 else [])
    quarantined = "engine.quarantined" in earlier.get(key.seq, ())
    return Progress(run_log_of(tx, run), tx.events.add(key, events, at=inputs.now), quarantined=quarantined)


def follow_default(tx: Tx, agent: Agent, run: Run, inputs: UnitInputs) -> tuple[Agent, Sequence[Event]]:
    """Give an agent that follows the default model a new run's model; return the agent and the events of that."""
    model = with_next_model(agent, inputs.models).model
    if model == agent.model or run.options.model is not None:
        return agent, ()
    stored = tx.agents.put(replace(tx.agents.get(agent.id), model=model))
    return replace(agent, model=model, settings_revision=stored.settings_revision), [ModelChanged(agent.model, model)]


def accept(tx: Tx, request: RunRequest, inputs: UnitInputs, *, begin: bool = False) -> Accepted:
    """Add the run of a request, queued and reserved for this process until the lease ends (T1); with `begin` also claim
    it and record its first request, if nothing stands before it (T2, T3).

    Behind another run of the conversation, and in a batch, the input waits on the run's row: a message must not come to
    stand between that run's calls and their results.

    Raises: NotFound, ConversationBusy, ApprovalPending, AnswerInvalid, IdempotencyMismatch, CircularWait, LimitReached;
        ModelNotFound: this process can't reach the agent's model, so it is refused; RequestDefect, ModelInputChanged,
        RecallFirst.
    """
    if request.reading is not NOTHING:
        request.reading.check(tx)
    tx.agents.lock(request.agent_id)
    if request.idempotency_key is not None and (known := find_known(tx, request, now=inputs.now)) is not None:
        return Accepted(known, (), repeated=True)
    opening = tx.conversations.get_state(request.agent_id, request.conversation_seq)
    if is_limited := bool(opening.agent.settings.get(LIMITS)):
        request = replace(request, options=within(request.options, limits_in(opening.agent.settings)))
    if request.answers is not None:
        return _resume(tx, request, request.answers, opening, inputs, begin=begin)
    if opening.conversation.pending_run_seq is not None:
        raise approval_pending(tx, opening.conversation)
    if is_limited:
        check_agent(tx, opening, request.chars, inputs.now)
    if request.options.origin is not None or request.options.caller is not None:
        ASKED_BY_RUN(tx, request)
    # A batch is one transaction: indexing all of its messages in it would hold up other writers.
    waits = opening.active_run_seq is not None or request.batch_id is not None
    if opening.active_run_seq is not None and request.if_busy == "reject":
        active = tx.runs.get_by_key(RunKey(request.agent_id, opening.active_run_seq))
        has_key = request.idempotency_key is not None or request.client_tools  # they tell it from one with these words
        if not has_key and is_sent_again(tx, active, request.drafts, request.options):
            return Accepted(active, (), repeated=True)
        raise ConversationBusy(active.id)
    if begin and not waits and (plan := plan_recall(tx, opening, request.drafts, inputs, model=request.options.model)):
        raise RecallFirst(plan)
    run = _add_run(
        tx,
        request,
        opening,
        inputs,
        drafts=() if waits else request.drafts,
        max_steps=STEPS,
        running=begin and not waits,
        waiting_input=encode_drafts(request.drafts, request.tokens) if waits else None,
    )
    if request.client_tools is not None:
        run = with_client_tools(tx, run, request.client_tools)
    added: Sequence[Message] = ()
    if not waits:
        added = tx.messages.append(run, request.drafts, request.tokens, at=inputs.now, opening=opening)
    events: list[Event] = [RunQueued(run.id), *(MessageAdded(message.seq, message) for message in added)]
    if waits or not begin:
        return Accepted(run, tx.events.add(run.key, events, at=inputs.now))
    rule_scope = rule_scope_of(tx, run, opening.agent.agent_type, opening.agent.settings)
    log = RunLog(run=run, messages=tuple(added), steps=(), started={}, rule_scope=rule_scope)
    accepted = _begin(tx, log, MakeRequest(), opening.with_messages(added), events, inputs)
    failure = accepted.run.failure
    if failure is not None and failure.kind in BUDGETS:  # without a step: the day of its key is used up
        raise LimitReached(failure.message, retry_after_s=until_midnight_s(inputs.now))
    return accepted


def _begin(
    tx: Tx, log: RunLog, action: Action, opening: ConversationState, events: list[Event], inputs: UnitInputs
) -> Accepted:
    """Begin a run that was added as `running` in this transaction, and record its first request if `action` says so.
    `events`: the transaction's earlier events; those of the beginning are added. Raises: RequestDefect."""
    events.append(RunStarted(log.run.id, log.run.lease_number))
    if opening.agent.follows_default:
        agent, changes = follow_default(tx, opening.agent, log.run, inputs)
        opening = replace(opening, agent=agent)
        events += changes
    if isinstance(action, MakeRequest):
        try:
            progress = make_request(tx, log, action, inputs, events, opening=opening)
        except StoreError:
            raise
        except Exception as error:
            raise RequestDefect from error
    else:
        progress = Progress(log, tx.events.add(log.run.key, events, at=inputs.now))
    return Accepted(progress.log.run, progress.events, begun=progress)


def _add_run(
    tx: Tx,
    request: RunRequest,
    opening: ConversationState,
    inputs: UnitInputs,
    *,
    drafts: Sequence[Draft],
    max_steps: int,
    running: bool,
    waiting_input: str | None = None,
) -> Run:
    """Add a request's run with its idempotency key and callback; `max_steps`: default. Raises: ModelNotFound."""
    model = request.options.model or with_next_model(opening.agent, inputs.models).model
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
        options=request.options,
        batch_id=request.batch_id,
    )
    if request.idempotency_key is not None:
        tx.runs.remember_key(run.key, request.conversation_seq, request.idempotency_key, digest=request.digest)
    if request.callback is not None:
        run = tx.callbacks.request(run, request.callback, at=inputs.now)
    return run


def _resume(
    tx: Tx,
    request: RunRequest,
    answers: Sequence[Answer],
    opening: ConversationState,
    inputs: UnitInputs,
    *,
    begin: bool,
) -> Accepted:
    """Accept answers to waiting calls: add the run that goes on with them, or keep them until all are answered."""
    agent, conversation, now = opening.agent, opening.conversation, inputs.now
    pending = find_pending(tx, conversation)
    most_chars = return_limit_chars(agent, inputs)
    answers, earlier = split_repeated_answers(
        tx, conversation, pending, answers, message_digest=request.message_digest, most_chars=most_chars
    )
    if earlier is not None and pending is None and earlier.stop_reason in ("cancelled", *FAILED_REASONS):
        return _continue_ended(tx, request, inputs, begin=begin)
    if earlier is not None and (pending is None or earlier.key != pending.run.key):
        return Accepted(earlier, (), repeated=True)
    if pending is None:
        raise AnswerInvalid(
            "Cannot process approval response: No tool call is currently awaiting approval in this conversation"
        )
    stopped, step_id = pending.run, pending.message.step_id
    answers = check_answers(tx, agent, pending, answers, partial=request.partial or earlier is not None)
    rows, tokens = answer_rows(
        pending, answers, inputs, most_chars=most_chars, otid=request.answer_otid, shown=request.shown
    )
    unanswered = {one.call.call_id for one in pending.waiting} - {answer.call_id for answer in answers}
    if unanswered:
        if request.drafts or request.client_tools:
            raise AnswerInvalid(
                f"other calls wait still ({', '.join(sorted(unanswered))}): a message or tools go along with the answer"
                " that leaves none"
            )
        if rows:
            tx.messages.append(stopped, rows, tokens, at=now, step_id=step_id)
        return Accepted(stopped, (), waits=True)
    if begin and (plan := plan_recall(tx, opening, request.drafts, inputs, model=request.options.model)):
        raise RecallFirst(plan)
    run = _add_resumed_run(tx, request, opening, pending, rows, inputs, running=begin)
    tx.conversations.put_pending(agent.id, conversation.seq, run_seq=None)
    added: Sequence[Message] = ()
    if rows:
        added = tx.messages.append(run, rows, tokens, at=now, step_id=step_id, opening=opening)
    events: list[Event] = [RunQueued(run.id), *(MessageAdded(message.seq, message) for message in added)]
    if not begin:
        return Accepted(run, tx.events.add(run.key, events, at=now))
    log = run_log_of(tx, run)  # some of its rows are those of the run that stopped
    return _begin(tx, log, next_action(log), opening.with_messages(added), events, inputs)


def _continue_ended(tx: Tx, request: RunRequest, inputs: UnitInputs, *, begin: bool) -> Accepted:
    """Accept answers that a cancelled or failed run had used: a new turn, with a message that says so."""
    turn = replace(request, answers=None, messages=(NewMessage((Text(KEEP_ALIVE),)),), idempotency_key=None)
    turn = with_run(turn, inputs, request.run_id)
    accepted = accept(tx, turn, replace(inputs, recalled=NO_RECALL), begin=begin)
    if request.idempotency_key is not None:  # its digest is that of the answers
        tx.runs.remember_key(accepted.run.key, request.conversation_seq, request.idempotency_key, digest=request.digest)
    return accepted


def _options_after(stopped: RunOptions, options: RunOptions) -> RunOptions:
    """Return the options of a run that continues a stopped one, with its limits on tools, chosen model and helper."""
    names: tuple[str, ...] = () if stopped.tools is None else ("tools", "model", "model_reason")
    if stopped.model_reason:
        names = ("tools", "model", "model_reason")
    if stopped.helper:
        names = ("model", "system", "caller", "hops", "origin", "helper", "model_reason", "tools")
    return replace(options, **{name: getattr(stopped, name) for name in names})


def _add_resumed_run(
    tx: Tx,
    request: RunRequest,
    opening: ConversationState,
    pending: WaitingCalls,
    rows: Sequence[Draft],
    inputs: UnitInputs,
    *,
    running: bool,
) -> Run:
    """Add the run that takes over from the one that stopped: its steps and budget left, its hooks' contexts and its
    client tools. `rows`: the answers, as they are stored."""
    stopped = pending.run
    request = replace(request, options=_options_after(stopped.options, request.options))
    if stopped.options.max_tokens is not None or stopped.options.max_cost_usd is not None:
        left = remaining_limits(stopped.options, used_by(tx, stopped, tx.steps.list_by_run(stopped.key), inputs))
        request = replace(request, options=within(request.options, left))
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
        answer={"said": request.message_digest, "calls": [one.call_id for one in pending.message.calls if one.awaits]},
        waiting_input=encode_drafts(request.drafts, request.tokens) if request.drafts else None,
    )
    if stopped.context:  # what hooks have added since the model was asked
        run = tx.runs.set_context(run, stopped.context)
        tx.runs.set_context(stopped, ())
    tools = request.client_tools
    if tools is None and stopped.client_tools is not None:
        tools = tuple(tx.runs.client_tools(run.key.agent_id, stopped.client_tools))
    return run if tools is None else with_client_tools(tx, run, tools)
