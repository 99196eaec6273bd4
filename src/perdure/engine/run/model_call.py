"""The model is asked, its answer streamed (T4) and stored (T5). A reply without a tool call ends the run (T9)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Mapping
from contextlib import AsyncExitStack
from dataclasses import replace

from perdure.context.sections.assemble import assemble, tools_text
from perdure.context.sections.tokens import MESSAGE_OVERHEAD_TOKENS
from perdure.context.window.budget import measure_overcount
from perdure.core import errors
from perdure.core.agents import Agent
from perdure.core.events import Delta, Event, MessageAdded, StepAbandoned
from perdure.core.features import Point, find_features
from perdure.core.ids import MessageId, id_in_run
from perdure.core.messages import Draft, Text, ToolCall, parts_to_json, text_of
from perdure.core.models import (
    Exchange,
    Model,
    ModelDelta,
    ModelOptions,
    ModelProgress,
    ModelReply,
    ModelRequest,
    ToolChoice,
)
from perdure.core.runs import NO_USAGE, Failure, Run, Step, StepStatus, StopReason, Usage
from perdure.core.specs import ToolOutcome
from perdure.core.telemetry import ModelWork
from perdure.engine.approvals.answers import tools_of, with_waits
from perdure.engine.budget import count_use
from perdure.engine.estimates import fixed_at_least, rows_at_least
from perdure.engine.log.interrupts import WaitInterrupted, is_cancelled
from perdure.engine.log.next_action import EndRun, next_action
from perdure.engine.log.run_log import Progress, RequestParts, RunLog, Tell, load_run_log
from perdure.engine.ports import Ports, UnitInputs
from perdure.engine.process import RunReleased
from perdure.engine.records.leases import holding
from perdure.engine.records.rows import CALLS_SHARE, CallIds, end_run, result_draft, shorten_calls, tidy_reply
from perdure.engine.run.deltas import Deltas, Previews
from perdure.engine.run.hook_points import after_model, store_answers
from perdure.engine.workers.background import LOOK_S, CallPostponed
from perdure.storage.tx import Tx

FACTOR_CHANGE = 1.02
"""A measured factor that differs this much from the one in use is remembered for the model's other conversations."""

UNSEEN_SHARE = 0.5
"""A request that takes less than this share of the certain least of its tools, besides all else, was sent without."""

CUTS = 2
"""How often in a row a model of the user's own is asked again after its server died in the middle of an answer."""

logger = logging.getLogger(__name__)

GOES_LAST: Point[[Run, Agent, Ports], Awaitable[bool]] = Point("goes_last")
"""Whether nobody has asked for this run of an agent, so that everybody goes before it."""

_OF_FEATURES = frozenset(name for feature in find_features() for name in feature.own_settings)
"""Only an agent with such a setting works for another one."""

FAILURE_CHARS = 4_000
UNSEEN_TOKENS = 2_000
"""The most that a model writes at once where nobody waits for it, unless its agent says otherwise."""


async def call_model(log: RunLog, request: RequestParts, step: Step, ports: Ports, tell: Tell) -> Progress:
    """Ask the model, publish the pieces of its answer as they come, and store the answer or why there is none."""
    message_id = MessageId(id_in_run(log.run.id, "answer", step.index, ports.ids))
    work = ModelWork(model=step.model)
    call_ids = CallIds({call.call_id for message in log.messages for call in message.calls})
    deltas = Deltas(log, request.agent, step, message_id, ports, call_ids)
    try:
        with ports.telemetry.during(work):
            reply = await _ask(log, request, step, work, deltas, tell)
        if "after_model" in ports.hooks.points:
            answers = await after_model(log, step, reply, ports)
            kept = await store_answers(log, answers, ports)
            log = kept.log
            tell(kept.events)
            if answers.blocked is not None:
                raise answers.blocked
    except WaitInterrupted:
        draft = Draft(id=message_id, role="assistant", parts=tuple(deltas.said_parts()))
        tokens = ports.counter.count(parts_to_json(draft.parts)) + MESSAGE_OVERHEAD_TOKENS
        ends = "run_end" not in ports.hooks.points
        return await ports.store.write(_store_said, log, step, ports.inputs(), draft=draft, tokens=tokens, ends=ends)
    except (RunReleased, errors.LeaseLost, errors.StoreError):
        raise
    except (Exception, asyncio.CancelledError) as error:
        if isinstance(error, asyncio.CancelledError) and is_cancelled():
            raise
        if not isinstance(error, errors.PerdureError | asyncio.CancelledError):
            logger.exception("%s: the call of %s stopped at a defect", log.run.id, step.model)
        if isinstance(error, errors.ModelOverflow):
            _guess_window(request, step, error, ports)
        failure, reason = _failure(error)
        return await ports.store.write(
            _store_failure,
            log,
            step,
            ports.inputs(),
            agent=request.agent,
            failure=failure,
            reason=reason,
            exchange=_exchange(error, work.reply),
            usage=_usage(error, work.reply),
            measured=error.prompt_tokens if isinstance(error, errors.ModelOverflow) else None,
            again=isinstance(error, errors.ModelStreamCut)
            and log.cuts < CUTS
            and ports.models.traits(step.model).local,
            ends="run_end" not in ports.hooks.points,
        )
    _notice_template(log, request, reply, ports)
    inputs = ports.inputs()
    window_tokens, _ = inputs.window(request.agent)
    most_tokens = int(window_tokens * CALLS_SHARE)
    parts, refused = shorten_calls(call_ids.apply(reply.parts), counter=ports.counter, most_tokens=most_tokens)
    return await ports.store.write(
        _store_reply,
        log,
        step,
        inputs,
        draft=Draft(id=message_id, role="assistant", parts=parts),
        agent=request.agent,
        reply=reply,
        refused=refused,
        tokens=ports.counter.count(parts_to_json(parts)) + MESSAGE_OVERHEAD_TOKENS,
        window_tokens=window_tokens,
        ends="run_end" not in ports.hooks.points,
    )


async def _ask(
    log: RunLog, request: RequestParts, step: Step, work: ModelWork, deltas: Deltas, tell: Tell
) -> ModelReply:
    """Ask the model, publish the pieces of its answer as they come, and return the answer, which `work` keeps too.
    Raises: ModelError, WaitInterrupted, LeaseLost, StoreError."""
    ports = deltas.ports
    previews = Previews(log, ports) if log.run.background else None
    options = ModelOptions.from_settings(request.agent.settings)
    choice = "auto" if (must_speak := log.must_speak) else options.tool_choice
    async with holding(log.run, ports):
        model = ports.models.find(step.model)
        if model is None:
            raise errors.ModelNotFound(step.model, known=ports.models.handles())
        work.request = assemble(step.model, request.view, step.recipe, options=options)
        if await _yields(log, request.agent, ports) and await _ask_in_silence(log, request.agent, model, work, ports):
            return _checked_reply(work.reply, work.request, choice)
        async for piece in model.respond(work.request):
            if isinstance(piece, ModelReply):
                work.reply, unsent = tidy_reply(piece, in_words=must_speak)
                if not unsent:
                    continue
                piece = ModelDelta("text", unsent)
            if isinstance(piece, ModelProgress):
                tell([Delta(step.id, deltas.message_id, "progress", piece.text)])
                continue
            if must_speak and piece.kind.startswith("tool"):
                continue
            new = await deltas.of(piece)
            tell(new if previews is None else await previews.add(new))
        if previews is not None:
            tell(await previews.flush())
    return _checked_reply(work.reply, work.request, choice)


async def _yields(log: RunLog, agent: Agent, ports: Ports) -> bool:
    """Return whether this run lets all others go first, because nobody waits for it."""
    if _OF_FEATURES.isdisjoint(agent.settings) or not ports.yields(agent.model):
        return False
    return any([await one for one in GOES_LAST(log.run, agent, ports)])


async def _ask_in_silence(log: RunLog, agent: Agent, model: Model, work: ModelWork, ports: Ports) -> bool:
    """Have a request answered while nobody else is, retrying whenever it is interrupted, and keep the answer in
    `work.reply`; no piece is published. Return False if a person begins to wait for it. Raises: as `_ask`; RunReleased:
    this process is about to end."""
    assert work.request is not None
    options = work.request.options
    if options.max_output_tokens is None:
        work.request = replace(work.request, options=replace(options, max_output_tokens=UNSEEN_TOKENS))
    line = (log.run.key.agent_id, log.run.conversation_seq)
    with ports.background.foreground.aside(line):
        while await _yields(log, agent, ports):
            try:
                async with AsyncExitStack() as slot:
                    try:
                        async with asyncio.timeout(LOOK_S):  # then look again whether a person asks for it
                            await slot.enter_async_context(ports.slot(work.model))
                    except TimeoutError:
                        continue
                    async for piece in model.respond(work.request):
                        if isinstance(piece, ModelReply):
                            work.reply, _ = tidy_reply(piece, in_words=log.must_speak)
                    return True
            except CallPostponed as back:
                if back.ended:
                    raise RunReleased from back
    ports.background.foreground.note_begin()
    return False


def _store_reply(
    tx: Tx,
    log: RunLog,
    step: Step,
    inputs: UnitInputs,
    *,
    draft: Draft,
    agent: Agent,
    reply: ModelReply,
    refused: Mapping[str, str],
    tokens: int,
    window_tokens: int,
    ends: bool,
) -> Progress:
    """Store the model's answer (T5), with results of the calls that are refused.

    Args:
        refused: call id -> why that call is not run.
        tokens: the estimate of the answer.
        ends: whether the run may be ended in this transaction; False: hooks are called before.
    """
    run = tx.runs.keep_lease(log.run)
    overcount = _learn_measured(tx, log, step, reply, window_tokens)
    if run.options.differs:  # other requests of the conversation have another model or system text
        overcount = None
    results: list[Draft] = []
    if any(isinstance(part, ToolCall) for part in draft.parts):
        parts = with_waits(tx, replace(log, run=run), agent.settings, tools_of(tx, run), draft.parts, refused=refused)
        draft = replace(draft, parts=parts)
        results = [
            result_draft(part, ToolOutcome(text=refused[part.call_id], status="error", refused=True), inputs)
            for part in parts
            if isinstance(part, ToolCall) and part.call_id in refused
        ]
    rows = tx.messages.append(
        run,
        [draft, *results],
        [tokens, *(inputs.counter.count(text_of(result.parts)) + MESSAGE_OVERHEAD_TOKENS for result in results)],
        at=inputs.now,
        step_id=step.id,
        overcount=overcount,
    )
    step = tx.steps.end(step, status="success", at=inputs.now, usage=reply.usage, stop_reason=reply.stop_reason)
    count_use(tx, agent, run.options, step.model, reply.usage, inputs)
    if reply.exchange is not None:
        tx.steps.put_exchange(step, reply.exchange)
    log = replace(log, run=run, messages=(*log.messages, *rows), steps=(*log.steps[:-1], step))
    return _store_progress(tx, log, [MessageAdded(row.seq, row) for row in rows], inputs, ends=ends)


def _store_said(
    tx: Tx, log: RunLog, step: Step, inputs: UnitInputs, *, draft: Draft, tokens: int, ends: bool
) -> Progress:
    """Store what the model has said of an answer that was stopped: whoever read it finds it again.

    Args: as `_store_reply`.
    """
    run = tx.runs.keep_lease(log.run)
    if not run.cancel_requested or not text_of(draft.parts).strip():
        return Progress(load_run_log(tx, log))
    rows = tx.messages.append(run, [draft], [tokens], at=inputs.now, step_id=step.id)
    step = tx.steps.end(step, status="cancelled", at=inputs.now, stop_reason="cancelled")
    log = replace(log, run=run, messages=(*log.messages, *rows), steps=(*log.steps[:-1], step))
    return _store_progress(tx, log, [MessageAdded(row.seq, row) for row in rows], inputs, ends=ends)


def _notice_template(log: RunLog, request: RequestParts, reply: ModelReply, ports: Ports) -> None:
    """Learn that a local model is not shown its tools: by the provider's count, the request was sent without them."""
    prefix, usage, model = request.view.prefix, reply.usage, log.steps[-1].model
    # A server may leave out what it has in its cache, so only a conversation's first request tells.
    if not prefix.tools or usage.cached_input_tokens or len(log.steps) > 1 or request.view.rows[1:]:
        return
    traits = ports.models.traits(model)
    if not (traits.local and traits.takes_tools) or traits.calling in ("native", "text"):
        return
    others = rows_at_least(request.view, {}, ports.counter) + ports.counter.at_least(prefix.system)
    tools = ports.counter.at_least(tools_text(prefix.tools))
    if others <= usage.input_tokens < others + tools * UNSEEN_SHARE:
        logger.warning("%s is offered no tools any more: its template does not show them to it", model)
        ports.models.learn(model, takes_tools=False, calling="none")


def _guess_window(request: RequestParts, step: Step, error: errors.ModelOverflow, ports: Ports) -> None:
    """Learn that a local model's window is smaller than a refused request, if the refusal names no size of it."""
    traits, view = ports.models.traits(step.model), request.view
    if not traits.local or error.window_tokens is not None or error.status == 413:  # a proxy's, of bytes
        return
    least = rows_at_least(view, {}, ports.counter) + fixed_at_least(view.prefix, step.recipe.tail, ports.counter)
    if 0 < least < (traits.window_tokens or least + 1):
        ports.models.learn(step.model, window_tokens=least)


def _learn_measured(tx: Tx, log: RunLog, step: Step, reply: ModelReply, window_tokens: int) -> int | None:
    """Learn the model's factor from the provider's token count; return the new overcount, None: it stays."""
    if reply.requests > 1:  # the count is of all of them
        return None
    recipe, measured = step.recipe, reply.usage.input_tokens
    before = [
        other.usage.input_tokens
        for other in log.steps
        if other.status == "success" and other.recipe.prefix_seq == recipe.prefix_seq and other.index < step.index
    ]
    overcount = measure_overcount(recipe.tokens, measured, window_tokens=window_tokens, before=before)
    if overcount is not None and not log.overflows:
        ratio, known = measured / recipe.tokens, max(1.0, recipe.estimator)
        if ratio > known * FACTOR_CHANGE or ratio < known / FACTOR_CHANGE < known:
            # Up at once, as too low a factor costs a refused request; down by halves.
            tx.steps.put_factor(step.model, ratio if ratio > known else max(1.0, (known + ratio) / 2))
    return overcount


def _learn_overflow(tx: Tx, run: Run, step: Step, measured: int) -> None:
    """Learn from the provider's token count of a request that it has refused as too large."""
    estimated = step.recipe.tokens
    if measured > estimated * tx.steps.get_factor(step.model):
        tx.steps.put_factor(step.model, measured / estimated)
    if not run.options.differs:
        conversation = tx.conversations.get_state(run.key.agent_id, run.conversation_seq).conversation
        tx.conversations.put_view(
            run.key.agent_id,
            run.conversation_seq,
            view_tokens=conversation.view_tokens,
            stubs=conversation.stubs,
            overcount=estimated - measured,
        )


def _store_failure(
    tx: Tx,
    log: RunLog,
    step: Step,
    inputs: UnitInputs,
    *,
    agent: Agent,
    failure: Failure,
    reason: StopReason,
    exchange: Exchange | None,
    usage: Usage,
    measured: int | None,
    again: bool,
    ends: bool,
) -> Progress:
    """Store why a model call failed, and what it took.

    Args:
        measured: the tokens of a request that was too large, by the provider's count.
        again: the run goes on as after a crash: readers hear that what they saw of the answer is void, and the model is
            asked again.
    """
    run = tx.runs.keep_lease(log.run)
    if measured is not None:
        _learn_overflow(tx, run, step, measured)
    status: StepStatus = "abandoned" if again else "failed"
    step = tx.steps.end(step, status=status, at=inputs.now, usage=usage, stop_reason=reason, failure=failure)
    count_use(tx, agent, run.options, step.model, usage, inputs)
    if exchange is not None:
        tx.steps.put_exchange(step, exchange)
    events: list[Event] = [StepAbandoned(step.id)] if again else []
    return _store_progress(tx, replace(log, run=run, steps=(*log.steps[:-1], step)), events, inputs, ends=ends)


def _store_progress(tx: Tx, log: RunLog, events: list[Event], inputs: UnitInputs, *, ends: bool) -> Progress:
    """Store the events of a step; if it `ends` the run and nothing is left to do, end the run in this transaction."""
    if ends and isinstance(action := next_action(log), EndRun):
        return end_run(tx, log, action, events, inputs)
    return Progress(log, tx.events.add(log.run.key, events, at=inputs.now))


def _exchange(error: BaseException, reply: ModelReply | None) -> Exchange | None:
    """Return what went over the wire before a step failed, from the error or from the answer that was refused."""
    exchange = getattr(error, "exchange", None)
    return exchange if isinstance(exchange, Exchange) else reply.exchange if reply is not None else None


def _usage(error: BaseException, reply: ModelReply | None) -> Usage:
    """Return the tokens of an answer that is not used, which the provider bills all the same."""
    return reply.usage if reply is not None else error.usage if isinstance(error, errors.ModelError) else NO_USAGE


def _checked_reply(reply: ModelReply | None, request: ModelRequest, tool_choice: ToolChoice) -> ModelReply:
    """Return the reply, if it is what the tool choice asks for: a provider may be unable to force a tool, or ignore it.
    Raises: ModelReplyEmpty, ModelReplyInvalid."""
    if reply is None:
        raise errors.ModelReplyEmpty(f"{request.model} ended its answer without a reply")
    is_empty = not any(
        isinstance(part, ToolCall) or (isinstance(part, Text) and part.text.strip()) for part in reply.parts
    )
    if is_empty and reply.stop_reason == "end_turn":
        if request.may_stay_empty:
            return replace(reply, parts=tuple(part for part in reply.parts if not isinstance(part, Text)))
        raise errors.ModelReplyEmpty(f"{request.model} answered nothing: neither text nor a tool call")
    names = [part.name for part in reply.parts if isinstance(part, ToolCall)]
    if tool_choice == "none" and names:
        raise errors.ModelReplyInvalid(
            f"{request.model} called {names[0]!r} although it may call no tool", stop_reason="invalid_tool_call"
        )
    if tool_choice in ("auto", "none"):
        return reply
    if not names:
        raise errors.ModelReplyInvalid(f"{request.model} called no tool although it had to", stop_reason="no_tool_call")
    if isinstance(tool_choice, tuple) and (others := sorted({*names} - {*tool_choice})):
        raise errors.ModelReplyInvalid(
            f"{request.model} called {', '.join(others)} although it had to call {' or '.join(tool_choice)}",
            stop_reason="invalid_tool_call",
        )
    return reply


def _failure(error: BaseException) -> tuple[Failure, StopReason]:
    """Return the failure of a step, and its stop reason."""
    match error:
        case errors.ModelError():
            return Failure(kind=error.kind, message=_cut(str(error))), error.stop_reason
        case errors.HookBlocked():
            return Failure(kind=error.code, message=_cut(str(error))), "error"
        case errors.PerdureError():
            return Failure(kind="internal_error", message=_cut(str(error))), "error"
        case _:
            return Failure(kind="internal_error", message=_cut(f"{type(error).__name__}: {error}")), "error"


def _cut(text: str) -> str:
    """Return the text of an error as it is stored: it may hold all that a provider sent."""
    return text if len(text) <= FAILURE_CHARS else f"{text[:FAILURE_CHARS]}… [cut: {len(text):,} characters]"
