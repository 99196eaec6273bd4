"""The model is asked, its answer streamed (T4) and stored (T5). A reply without a tool call ends the run (T9)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from perdure.context.request.assemble import assemble
from perdure.context.request.prefix import tools_text
from perdure.context.window.budget import measure_overcount
from perdure.context.window.tokens import MESSAGE_OVERHEAD_TOKENS
from perdure.core.agents import Agent
from perdure.core.errors import (
    HookBlocked,
    LeaseLost,
    ModelError,
    ModelNotFound,
    ModelOverflow,
    ModelReplyEmpty,
    ModelReplyInvalid,
    PerdureError,
    StoreError,
)
from perdure.core.events import Delta, DeltaStreamed, Event, MessageAdded, StoredEvent
from perdure.core.ids import MessageId, id_in_run
from perdure.core.messages import Draft, Text, ToolCall, Waits, parts_to_json, text_of
from perdure.core.models import Exchange, ModelDelta, ModelOptions, ModelProgress, ModelReply, ToolChoice
from perdure.core.runs import NO_USAGE, Failure, Run, Step, StopReason, Usage
from perdure.core.telemetry.port import ModelWork
from perdure.core.text.json_strings import StringMember
from perdure.core.tools.loops import FREE, THINKING, AgentLoop
from perdure.core.tools.spec import ToolOutcome
from perdure.engine.approvals.answers import recent_approval_ids, tools_of, waits_by_tool, with_waits, write_waits
from perdure.engine.budget import count_use
from perdure.engine.hooks.points import after_model, store_answers
from perdure.engine.ports import Ports, UnitInputs
from perdure.engine.run.finish import end_run
from perdure.engine.run.interrupts import Interrupted, is_cancelled, to_the_end
from perdure.engine.run.leases import holding
from perdure.engine.run.log import Progress, RequestParts, RunLog, Tell, load_run_log
from perdure.engine.run.next_action import Finish, next_action
from perdure.engine.run.prefixes import rows_at_least
from perdure.engine.run.rows import CALLS_SHARE, CallIds, result_draft, shorten_calls
from perdure.storage.tx import Tx

FACTOR_CHANGE = 1.02
"""A measured factor that differs this much from the one in use is remembered for the model's other conversations."""

UNSEEN_SHARE = 0.5
"""A request that takes less than this share of the certain least of its tools, besides all else, was sent without."""

logger = logging.getLogger(__name__)

FAILURE_CHARS = 4_000

ARGUMENTS = "tool_arguments"
"""The kind of a delta."""


async def call_model(log: RunLog, request: RequestParts, step: Step, ports: Ports, tell: Tell) -> Progress:
    """Ask the model, publish the pieces of its answer as they come, and store the answer or why there is none."""
    message_id = MessageId(id_in_run(log.run.id, "answer", step.index, ports.ids))
    work = ModelWork(model=step.model)
    call_ids = CallIds({call.call_id for message in log.messages for call in message.calls})
    deltas = _Deltas(log, request.agent, step, message_id, ports, call_ids)
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
    except Interrupted:
        return Progress(await ports.store.read(load_run_log, log))
    except (LeaseLost, StoreError):
        raise
    except (Exception, asyncio.CancelledError) as error:
        if isinstance(error, asyncio.CancelledError) and is_cancelled():
            raise
        if not isinstance(error, PerdureError | asyncio.CancelledError):
            logger.exception("%s: the call of %s stopped at a defect", log.run.id, step.model)
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
            measured=error.prompt_tokens if isinstance(error, ModelOverflow) else None,
            ends="run_end" not in ports.hooks.points,
        )
    _notice_template(log, request, reply, ports)
    inputs = ports.inputs()
    most_tokens = int(inputs.window(request.agent)[0] * CALLS_SHARE)
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
        ends="run_end" not in ports.hooks.points,
    )


async def _ask(
    log: RunLog, request: RequestParts, step: Step, work: ModelWork, deltas: _Deltas, tell: Tell
) -> ModelReply:
    """The model's answer; its pieces are told as they come. Raises: ModelError, Interrupted, LeaseLost, StoreError."""
    ports = deltas.ports
    previews = _Previews(log, ports) if log.run.background else None
    async with holding(log.run, ports):
        model = ports.models.find(step.model)
        if model is None:
            raise ModelNotFound(step.model, known=ports.models.handles())
        options = ModelOptions.from_settings(request.agent.settings)
        work.request = assemble(step.model, request.view, step.recipe, options=options)
        async for piece in model.respond(work.request):
            if isinstance(piece, ModelReply):
                work.reply = piece
                continue
            if isinstance(piece, ModelProgress):
                tell([Delta(step.id, deltas.message_id, "progress", piece.text)])
                continue
            new = await deltas.of(piece)
            tell(new if previews is None else await previews.add(new))
        if previews is not None:
            tell(await previews.flush())
    return _checked_reply(work.reply, step, options.tool_choice)


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
    ends: bool,
) -> Progress:
    """Store the model's answer (T5), with results of the calls that are refused: call id -> why."""
    run = tx.runs.keep_lease(log.run)
    log = replace(log, run=run)
    overcount = _learn_measured(tx, log, step, reply, inputs.window(agent)[0])
    if run.options.differs:  # other requests of the conversation have another model or system text
        overcount = None
    results: list[Draft] = []
    if any(isinstance(part, ToolCall) for part in draft.parts):
        parts = with_waits(tx, log, agent.settings, tools_of(tx, run), draft.parts, refused=refused)
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
    log = replace(log, messages=(*log.messages, *rows), steps=(*log.steps[:-1], step))
    return _store_progress(tx, log, [MessageAdded(row.seq, row) for row in rows], inputs, ends=ends)


def _notice_template(log: RunLog, request: RequestParts, reply: ModelReply, ports: Ports) -> None:
    """Learn that a local model is not shown its tools: by the provider's count, the request was sent without them."""
    prefix, usage, model = request.view.prefix, reply.usage, log.steps[-1].model
    traits = ports.models.traits(model)
    is_known = not (traits.local and traits.takes_tools) or traits.calling in ("native", "text")
    # A server may leave out what it has in its cache, so only a conversation's first request tells.
    if is_known or not prefix.tools or usage.cached_input_tokens or len(log.steps) > 1 or request.view.rows[1:]:
        return
    others = rows_at_least(request.view, {}, ports.counter) + ports.counter.at_least(prefix.system)
    tools = ports.counter.at_least(tools_text(prefix.tools))
    if others <= usage.input_tokens < others + tools * UNSEEN_SHARE:
        logger.warning("%s is offered no tools any more: its template does not show them to it", model)
        ports.models.learn(model, takes_tools=False, calling="none")


def _learn_measured(tx: Tx, log: RunLog, step: Step, reply: ModelReply, window_tokens: int) -> int | None:
    """Learn from the provider's token count: the conversation's new overcount (None: unchanged), and the model's
    factor."""
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
    ends: bool,
) -> Progress:
    """Store why a model call failed, and what it took.

    Args:
        measured: the tokens of a request that was too large, by the provider's count.
    """
    run = tx.runs.keep_lease(log.run)
    if measured is not None:
        _learn_overflow(tx, run, step, measured)
    step = tx.steps.end(step, status="failed", at=inputs.now, usage=usage, stop_reason=reason, failure=failure)
    count_use(tx, agent, run.options, step.model, usage, inputs)
    if exchange is not None:
        tx.steps.put_exchange(step, exchange)
    return _store_progress(tx, replace(log, run=run, steps=(*log.steps[:-1], step)), [], inputs, ends=ends)


def _store_progress(tx: Tx, log: RunLog, events: list[Event], inputs: UnitInputs, *, ends: bool) -> Progress:
    """Store the events of a step; if it `ends` the run and nothing is left to do, end the run in this transaction."""
    if ends and isinstance(action := next_action(log), Finish):
        return end_run(tx, log, action, events, inputs)
    return Progress(log, tx.events.add(log.run.key, events, at=inputs.now))


def _exchange(error: BaseException, reply: ModelReply | None) -> Exchange | None:
    """What went over the wire before a step failed, from the error or from the answer that was refused."""
    exchange = getattr(error, "exchange", None)
    return exchange if isinstance(exchange, Exchange) else reply.exchange if reply is not None else None


def _usage(error: BaseException, reply: ModelReply | None) -> Usage:
    """The tokens of an answer that is not used, which the provider bills all the same."""
    return reply.usage if reply is not None else error.usage if isinstance(error, ModelError) else NO_USAGE


def _checked_reply(reply: ModelReply | None, step: Step, tool_choice: ToolChoice) -> ModelReply:
    """The reply, if it is what the tool choice asks for: a provider may be unable to force a tool, or ignore it.

    Raises: ModelReplyEmpty, ModelReplyInvalid.
    """
    if reply is None:
        raise ModelReplyEmpty(f"{step.model} ended its answer without a reply")
    is_empty = not any(
        isinstance(part, ToolCall) or (isinstance(part, Text) and part.text.strip()) for part in reply.parts
    )
    if is_empty and reply.stop_reason == "end_turn":
        raise ModelReplyEmpty(f"{step.model} answered nothing: neither text nor a tool call")
    names = [part.name for part in reply.parts if isinstance(part, ToolCall)]
    if tool_choice == "none" and names:
        raise ModelReplyInvalid(
            f"{step.model} called {names[0]!r} although it may call no tool", stop_reason="invalid_tool_call"
        )
    if tool_choice in ("auto", "none"):
        return reply
    if not names:
        raise ModelReplyInvalid(f"{step.model} called no tool although it had to", stop_reason="no_tool_call")
    if isinstance(tool_choice, tuple) and (others := sorted({*names} - {*tool_choice})):
        raise ModelReplyInvalid(
            f"{step.model} called {', '.join(others)} although it had to call {' or '.join(tool_choice)}",
            stop_reason="invalid_tool_call",
        )
    return reply


def _failure(error: BaseException) -> tuple[Failure, StopReason]:
    """The failure of a step, and its stop reason."""
    match error:
        case ModelError():
            return Failure(kind=error.kind, message=_cut(str(error))), error.stop_reason
        case HookBlocked():
            return Failure(kind=error.code, message=_cut(str(error))), "error"
        case PerdureError():
            return Failure(kind="internal_error", message=_cut(str(error))), "error"
        case _:
            return Failure(kind="internal_error", message=_cut(f"{type(error).__name__}: {error}")), "error"


def _cut(text: str) -> str:
    """The text of an error as it is stored; it may hold all that a provider sent."""
    return text if len(text) <= FAILURE_CHARS else f"{text[:FAILURE_CHARS]}… [cut: {len(text):,} characters]"


@dataclass(slots=True)
class _Deltas:
    """The deltas of one answer: its calls under the ids that they are stored under, and with what they wait for, as far
    as that is known before they are whole. Thoughts in a call are reasoning.

    Args:
        waits: tool -> what its calls wait for.
        loop_arguments: tool -> the arguments that the loop adds.
        recent_ids: ids of recent calls that waited for somebody; None: not loaded yet.
        thoughts: number of a call -> the reader of its thoughts.
        thinker: the number of the call that the newest reasoning stands in, -1: in none; None: there is no reasoning.
        held: number of a call -> its arguments so far, which wait for the end of its thoughts.
    """

    log: RunLog
    agent: Agent
    step: Step
    message_id: MessageId
    ports: Ports
    call_ids: CallIds
    waits: Mapping[str, Waits] = field(default_factory=dict)
    loop_arguments: Mapping[str, Sequence[str]] = field(default_factory=dict)
    has_read_tools: bool = False
    recent_ids: Collection[str] | None = None
    thoughts: dict[int, StringMember] = field(default_factory=dict)
    thinker: int | None = None
    held: dict[int, Delta] = field(default_factory=dict)

    async def of(self, piece: ModelDelta) -> Sequence[Delta]:
        """The deltas that readers receive for a piece of the model's answer. Arguments come after the thoughts in them,
        or when something else begins."""
        before = [self.held.pop(index) for index in [*self.held] if (piece.kind, piece.index) != (ARGUMENTS, index)]
        if piece.kind == "text":
            return (*before, Delta(self.step.id, self.message_id, piece.kind, piece.text))
        if piece.kind == "reasoning":
            return (*before, self._reasoning(piece.text, -1))
        awaits: Waits | None = None
        avoid: Collection[str] = ()
        loop_arguments: Sequence[str] = ()
        if piece.kind == "tool_name":
            if not self.has_read_tools:
                self.waits, self.loop_arguments = await self.ports.store.read(self._read_tools)
                self.has_read_tools = True
            loop_arguments = self.loop_arguments.get(piece.text, self._loop.arguments)
            if THINKING in loop_arguments:
                self.thoughts[piece.index] = StringMember(THINKING)
            if (awaits := self.waits.get(piece.text)) is not None:
                if self.recent_ids is None:
                    self.recent_ids = await self.ports.store.read(recent_approval_ids, self.log)
                avoid = self.recent_ids
        call_id = self.call_ids.id_of_delta(piece.index, piece.call_id, avoid=avoid)
        delta = Delta(
            self.step.id, self.message_id, piece.kind, piece.text, piece.index, call_id, awaits, loop_arguments
        )
        return (*before, *(self._with_thoughts(delta) if piece.kind == ARGUMENTS else (delta,)))

    def _with_thoughts(self, delta: Delta) -> Sequence[Delta]:
        """The deltas for arguments and the thoughts in them."""
        reader = self.thoughts.get(delta.index)
        if reader is None or reader.has_ended:
            return (delta,)
        thought = reader.read(delta.text)
        reasoning = (self._reasoning(thought, delta.index),) if thought else ()
        if (held := self.held.pop(delta.index, None)) is not None:
            delta = replace(delta, text=held.text + delta.text)
        if reader.has_ended:
            return (*reasoning, delta)
        self.held[delta.index] = delta
        return reasoning

    def _reasoning(self, text: str, thinker: int) -> Delta:
        """The delta of reasoning, on a new line if what came before stands elsewhere."""
        is_elsewhere = self.thinker not in (None, thinker)
        self.thinker = thinker
        return Delta(self.step.id, self.message_id, "reasoning", f"\n{text}" if is_elsewhere else text)

    @property
    def _loop(self) -> AgentLoop:
        """The loop of the agent."""
        return FREE if self.log.rule_scope is None else self.log.rule_scope.loop

    def _read_tools(self, tx: Tx) -> tuple[Mapping[str, Waits], Mapping[str, Sequence[str]]]:
        """(What the calls of each tool wait for, the arguments that the loop adds to each)."""
        tools = tools_of(tx, self.log.run)
        added = {name: self._loop.added(tool.spec.parameters) for name, tool in tools.items()}
        untrusted: dict[str, Waits] = dict.fromkeys(write_waits(tx, self.log.run, tools), "approval")
        return {**untrusted, **waits_by_tool(tools, self.agent.settings)}, added


class _Previews:
    """The deltas of a background run, stored before they are sent (T4), so that a reader who reconnects misses nothing.
    Deltas of one kind that come close together are joined.
    """

    def __init__(self, log: RunLog, ports: Ports) -> None:
        self._log, self._ports = log, ports
        self._waiting: dict[tuple[str, int], Delta] = {}
        self._since: datetime | None = None

    async def add(self, deltas: Sequence[Delta]) -> Sequence[StoredEvent]:
        """Take deltas; the stored events that are to be sent now."""
        now = self._ports.clock.now()
        self._since = self._since or now
        for delta in deltas:
            key = (delta.kind, delta.index)
            before = self._waiting.get(key)
            self._waiting[key] = delta if before is None else replace(before, text=before.text + delta.text)
        settings = self._ports.settings
        due = (now - self._since).total_seconds() >= settings.delta_flush_s
        if due or sum(len(waiting.text) for waiting in self._waiting.values()) >= settings.delta_flush_chars:
            return await self.flush()
        return ()

    async def flush(self) -> Sequence[StoredEvent]:
        """Store all that waits; the events to send."""
        waiting, self._waiting, self._since = list(self._waiting.values()), {}, None
        if not waiting:
            return ()
        now = self._ports.clock.now()
        until = now + timedelta(seconds=self._ports.settings.lease_s)
        run = self._log.run

        def store(tx: Tx) -> Sequence[StoredEvent]:
            tx.runs.keep_lease(run, until=until)
            return tx.events.add(run.key, [DeltaStreamed(delta) for delta in waiting], at=now)

        return await to_the_end(self._ports.store.write(store))
