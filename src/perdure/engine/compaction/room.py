"""What building a request needs in its transaction, and whether its view has to change before it is sent: asked of the
agent's context engine. Its preview is the next request before a new message: T3 without writing anything."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Unpack

from perdure.context.sections.assemble import MemoryCounts, View, tail
from perdure.context.sections.envelopes import engine_tokens
from perdure.context.window.budget import Certificate, segments
from perdure.context.window.leaves import expected_calls, swap_reason
from perdure.context.window.plan import FIXED, Plan, Situation, plan_unsent, swap
from perdure.core.agents import Agent, GuardSettings
from perdure.core.conversations import CompactionSettings, Conversation, ConversationState, SummarySettings
from perdure.core.errors import IrreducibleFloor
from perdure.core.events import EngineQuarantined, Event, MessageAdded, RoomKind, ViewFull
from perdure.core.messages import Message, MessageKind
from perdure.core.nodes import SummaryNode
from perdure.core.ports import TokenCounter
from perdure.core.runs import Failure, Prefix
from perdure.core.tools.engine_specs import CONTEXT_TOOL_SPECS
from perdure.domain.agents.options import CONTEXT_ENGINE
from perdure.engine.compaction.summarise import RunState, SummaryTask, load_prepared, situation_of
from perdure.engine.context_engines import FALLBACK, EngineInUse
from perdure.engine.estimates import fixed_at_least, overcount_behind, rows_tokens
from perdure.engine.log.next_action import EndRun
from perdure.engine.log.run_log import EngineQuestion, Progress, RecallResult, RoomPlan, RunLog, ViewState, view_key
from perdure.engine.ports import UnitInputs, as_requested, with_next_model
from perdure.engine.prompt.prefixes import MemoryState, delta_texts, read_memory, recompile_prefix, rewrite_reason
from perdure.engine.prompt.tail import build_notes
from perdure.engine.records.rows import NEWEST, end_run, engine_drafts
from perdure.storage.tx import Tx


def before_sending(builder: RequestBuilder, view: View, size: RequestSize, recalled: RecallResult) -> Progress | None:
    """Return what has to come before a request that fits: a plan for its view, or a question to the agent's context
    engine; None: the request is sent as it is. `recalled`: what was recalled for the run's newest message, to keep
    while the engine is asked."""
    if builder.agent.settings.get(CONTEXT_ENGINE) is None and not builder.inputs.quarantined:
        return _use_prepared(builder, view, size)
    in_use = builder.engine
    if not in_use.engine.owns_compaction and (progress := _use_prepared(builder, view, size)) is not None:
        return progress
    if in_use.is_foreign:
        if not in_use.looks_at_all or _has_no_plan(builder, view):
            return None
        return _ask(builder, view, _load_situation(builder, view, size, ()), recalled)
    if not in_use.engine.overrides("assemble"):
        return None
    situation = _load_situation(builder, view, size, ())
    plan = in_use.engine.assemble(situation)
    return None if plan is None else _carry_out(builder, view, situation, plan, by="engine", reason="engine")


def make_room(builder: RequestBuilder, view: View, size: RequestSize, recalled: RecallResult) -> Progress | None:
    """Return the plan for a request that does not fit, the question to the agent's context engine, or the end of a run
    whose request can't be made to fit; None: the request is sent as it is."""
    in_use, agent, conversation = builder.engine, builder.agent, builder.conversation
    situation = _load_situation(builder, view, size, load_prepared(builder.tx, view.prefix))
    if in_use.problem is not None and not builder.log.steps and not builder.leaves_out_notes:
        builder.events.append(EngineQuarantined(in_use.name, in_use.problem, in_use.name))
    if in_use.is_foreign:
        if not in_use.engine.owns_compaction and (prepared := swap(situation)) is not None:
            return _carry_out(builder, view, situation, prepared, by="evict")
        if not _has_no_plan(builder, view):
            return _ask(builder, view, situation, recalled)
        in_use = FALLBACK  # neither of them has a plan
    try:
        plan = in_use.engine.plan(situation)
    except IrreducibleFloor as floor:
        if size.without_notes is None:
            return builder.end(floor)
        builder.leaves_out_notes = True
        return None if size.without_notes.fits else make_room(builder, view, size.without_notes, recalled)
    if plan is None:
        # Nothing but a correction says that it is too large; or the rows were estimated by another counter before.
        builder.tx.conversations.put_view(
            agent.id,
            conversation.seq,
            view_tokens=rows_tokens(view, conversation.stubs, builder.inputs.counter),
            stubs=conversation.stubs,
            overcount=max(0, size.overcount),
        )
        return None
    return _carry_out(builder, view, situation, plan, by=plan.kind)


def _has_no_plan(builder: RequestBuilder, view: View) -> bool:
    """Whether the agent's engine has seen this view and has no plan for it."""
    no_plan = builder.inputs.no_plan
    return no_plan is not None and no_plan.view == view_key(view)


def _ask(builder: RequestBuilder, view: View, situation: Situation, recalled: RecallResult) -> Progress:
    """Return the progress of a run whose agent's context engine has to be asked first."""
    log = builder.log
    stored = builder.tx.events.add(log.run.key, builder.events, at=builder.inputs.now) if builder.events else ()
    question = EngineQuestion(
        log=log,
        agent=builder.agent,
        conversation=builder.conversation,
        view=view,
        situation=situation,
        recalled=recalled,
    )
    return Progress(log, stored, question=question)


def _use_prepared(builder: RequestBuilder, view: View, size: RequestSize) -> Progress | None:
    """Return the plan that puts prepared summaries into a view that fits, where the request is cheaper with them: its
    prefix is not sent yet, the provider's cache has expired, or the run's calls save more than the new prefix costs.
    None: it is not cheaper, or nothing is prepared."""
    agent, log = builder.agent, builder.log
    window, reserve = builder.window
    filled = SummarySettings.of(agent).context_threshold * (window - reserve)
    if not builder.inputs.swaps_early:
        return None
    unsent = _is_unsent(builder, view)
    if not unsent and (log.steps or (size.estimated - size.overcount) * size.factor < filled):
        return None
    if not (prepared := load_prepared(builder.tx, view.prefix)):
        return None
    if unsent:
        situation = _load_situation(builder, view, size, prepared)
        if (plan_for_free := plan_unsent(situation)) is None:
            return None
        return _carry_out(builder, view, situation, plan_for_free, by=plan_for_free.kind, reason=view.prefix.reason)
    calls = builder.tx.steps.list_calls(agent.id, builder.conversation.seq)
    find_reason = partial(
        swap_reason,
        idle=builder.inputs.now - calls[0].created_at if calls else None,
        calls=expected_calls([call.run_seq for call in calls]),
    )
    # Sizing a large view takes long, so what can't pay even by its stored sizes ends here.
    upto_seq = max((node.upto_message_seq for node in prepared if node.level == 0), default=-1)
    most = sum(row.tokens for row in view.rows if row.seq <= upto_seq)
    if find_reason(removed=most, kept=builder.view_tokens - most) is None:
        return None
    situation = _load_situation(builder, view, size, prepared)
    if (plan := swap(situation)) is None:
        return None
    removed = sum(map(situation.tokens_of, plan.messages)) - plan.summary_tokens
    behind = sum(part.tokens for part in situation.certificate.segments if part.name not in FIXED)
    reason = find_reason(removed=removed, kept=behind - removed)
    return None if reason is None else _carry_out(builder, view, situation, plan, by="swap", reason=reason)


def _is_unsent(builder: RequestBuilder, view: View) -> bool:
    """Whether no request began with this prefix yet, so that changing it once more costs nothing."""
    if builder.rewrite_reason is not None:
        return True
    log, prefix = builder.log, view.prefix
    if log.steps:
        return prefix.seq != log.steps[-1].recipe.prefix_seq
    return log.run.started_at is not None and prefix.created_at > log.run.started_at


def _load_situation(
    builder: RequestBuilder, view: View, size: RequestSize, prepared: Sequence[SummaryNode]
) -> Situation:
    """Return what a plan for this request is made of."""
    tx, agent, conversation, inputs = builder.tx, builder.agent, builder.conversation, builder.inputs
    window, reserve = builder.window
    log, run, stubs, counter = builder.log, builder.log.run, conversation.stubs, inputs.counter
    traits = inputs.models.traits(agent.model)
    certificate = Certificate(
        window_tokens=window,
        reserve_tokens=reserve,
        segments=segments(view, stubs=stubs, status=size.status, run_seq=run.key.seq, counter=counter),
        overcount=size.overcount,
        factor=size.factor,
        fixed_at_least=fixed_at_least(view.prefix, size.status, counter) if traits.local and not traits.cuts else None,
        was_refused=bool(log.overflows),
    )
    nodes = tuple(tx.nodes.list_by_seqs(agent.id, conversation.seq, view.prefix.nodes))
    return situation_of(
        ViewState(agent=agent, conversation=conversation, view=view, nodes=nodes),
        certificate,
        counter,
        prepared=prepared,
        run_seq=run.key.seq,
        turn_from=run.turn_from,
        seen_upto=max((step.recipe.upto_message_seq for step in log.steps if step.status == "success"), default=-1),
        sent_upto=max((step.recipe.upto_message_seq for step in log.steps), default=-1),
        can_open=any(tool["name"] in CONTEXT_TOOL_SPECS for tool in view.prefix.tools),
    )


def _carry_out(
    builder: RequestBuilder, view: View, situation: Situation, plan: Plan, *, by: RoomKind, reason: str = "window"
) -> Progress:
    """Return the progress of a run whose next action is to carry out a plan, and store the event that tells of it.

    Args:
        by: what makes room, for the event.
        reason: why the prefix will be written again.
    """
    log, certificate = builder.log, situation.certificate
    builder.events.append(ViewFull(certificate.tokens, certificate.budget_tokens, by))
    stored = builder.tx.events.add(log.run.key, builder.events, at=builder.inputs.now)
    room = RoomPlan(
        log=log,
        agent=builder.agent,
        conversation=builder.conversation,
        view=view,
        nodes=situation.nodes,
        plan=plan,
        budget_tokens=certificate.budget_tokens,
        reason=reason,
    )
    return Progress(log, stored, room=room)


@dataclass(slots=True, kw_only=True)
class RequestBuilder:
    """The state of building a request inside one transaction.

    Args:
        log: with all rows that were added.
        guards: the agent's settings of notices about its own work.
        opening: the agent's and the conversation's state when the transaction began.
        events: of this transaction, not stored yet.
        view_tokens: the upper estimate of all rows behind the prefix.
        overcount: by how many tokens the estimate of prefix and rows is too high.
        window: as `UnitInputs.window` tells it.
        rewrite_reason: why the prefix was written in this transaction; None: it was not.
        leaves_out_notes: no other room can be made than that of the agent's working notes.
    """

    tx: Tx
    inputs: UnitInputs
    log: RunLog
    events: list[Event]
    agent: Agent
    guards: GuardSettings
    opening: ConversationState
    conversation: Conversation
    memory: MemoryState
    view_tokens: int
    overcount: int
    window: tuple[int, int]
    rewrite_reason: str | None = None
    leaves_out_notes: bool = False

    @property
    def engine(self) -> EngineInUse:
        """The context engine that plans; another one takes over from one that failed in this run."""
        return FALLBACK if self.inputs.quarantined else self.inputs.engines.of(self.agent)

    def append(self, kind: MessageKind, texts: Sequence[str]) -> None:
        """Append the engine's own envelopes to the run's log."""
        drafts, tokens = engine_drafts(kind, texts, self.inputs)
        self.add(self.tx.messages.append(self.log.run, drafts, tokens, at=self.inputs.now))

    def end(self, error: Exception) -> Progress:
        """End the run with this error, because its request can't be made small enough."""
        end = EndRun(IrreducibleFloor.stop_reason, Failure(kind=IrreducibleFloor.kind, message=str(error)))
        return end_run(self.tx, self.log, end, self.events, self.inputs)

    def add(self, messages: Sequence[Message]) -> None:
        """Add rows that were appended to the run's log to the builder's log, events and estimate."""
        self.log = replace(self.log, messages=(*self.log.messages, *messages))
        self.events += [MessageAdded(message.seq, message) for message in messages]
        self.view_tokens += sum(message.tokens for message in messages)


@dataclass(frozen=True, slots=True)
class RequestSize:
    """The size of a request: (`estimated` - `overcount`) * `factor` tokens."""

    status: str  # the request's volatile tail
    estimated: int
    overcount: int  # by how many tokens the estimate is known to be too high
    factor: float
    fits: bool  # into the window without its reserve
    filled: float  # the share of that which the request takes
    without_notes: RequestSize | None = None  # the size without working notes, where it does not fit with them


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestPreview(ViewState):
    """The next request of a conversation, as far as it is known before a new message: its view ends before a call that
    is still open.

    Args:
        status: the volatile tail as of now.
        deltas: texts of memory edits that the request will add behind the view; the certificate counts them.
        reason: why it will begin with a new prefix (the view's, not stored yet); None: it begins with the old one.
        measured_tokens: measured for the last request, if the estimate is corrected by exactly them.
    """

    status: str
    counts: MemoryCounts
    deltas: tuple[str, ...]
    certificate: Certificate
    reason: str | None
    measured_tokens: int | None

    def situation(
        self, counter: TokenCounter, prepared: Sequence[SummaryNode] = (), **run: Unpack[RunState]
    ) -> Situation:
        """Return what a plan for the view is made of. `prepared`: summaries that are not in view."""
        return situation_of(self, self.certificate, counter, prepared=prepared, **run)

    def task(self, settings: CompactionSettings, nodes: Sequence[SummaryNode]) -> SummaryTask:
        """Return who writes a summary of messages in the view, and with what; `nodes` are the summaries before them."""
        return SummaryTask(
            agent=self.agent,
            settings=settings,
            nodes=nodes,
            budget_tokens=self.certificate.budget_tokens,
            view=self.view,
            overcount=self.certificate.overcount,
        )


def preview(tx: Tx, agent: Agent, conversation: Conversation, inputs: UnitInputs) -> RequestPreview:
    """Build a conversation's next request, as T3 will without a new message, and certify its size; store nothing."""
    counter, stubs, stored_agent = inputs.counter, conversation.stubs, agent
    agent = as_requested(with_next_model(agent, inputs.models), inputs.models)
    opening = tx.conversations.get_state(agent.id, conversation.seq)
    memory = read_memory(tx, opening)
    current = None if conversation.prefix_seq is None else tx.prefixes.get(agent.id, conversation.prefix_seq)
    client_tools = current.client_tools if current else None
    reason = rewrite_reason(tx, agent, conversation, memory, current, client_tools=client_tools, inputs=inputs)
    if reason is None and agent.model != stored_agent.model:
        reason = "settings"
    nodes = tuple(tx.nodes.list_by_seqs(agent.id, conversation.seq, current.nodes)) if current else ()
    overcount = conversation.overcount
    prefix = current
    if prefix is None or reason is not None:
        prefix = recompile_prefix(
            tx, agent, conversation, memory, inputs, current, reason=reason or "first", client_tools=client_tools
        )
        overcount = overcount_behind(tx, agent, conversation, current, prefix, counter)
    pinned = tx.messages.list_by_seqs(agent.id, prefix.pinned) if prefix.pinned else ()
    rows = tx.messages.view(agent.id, conversation.seq, from_seq=prefix.from_message_seq, upto_seq=NEWEST)
    view = View.of(prefix, pinned, stubs).with_rows(without_open_calls(rows))
    deltas = delta_texts(tx, agent, conversation.seen, memory, prefix, inputs) if current is not None else ()
    notes = build_notes(tx, agent, prefix, None, (), inputs, has_notes=opening.has_notes)
    status = tail(inputs.now, agent.timezone, memory.counts, prefix=prefix, notes=notes)
    active = tx.runs.find_active(agent.id, conversation.seq)
    parts = segments(view, stubs=stubs, status=status, run_seq=active.key.seq if active else None, counter=counter)
    window, reserve = inputs.window(agent)
    delta_tokens = sum(engine_tokens(text, counter) for text in deltas)
    return RequestPreview(
        agent=agent,
        conversation=conversation,
        view=view,
        nodes=nodes,
        status=status,
        counts=memory.counts,
        deltas=deltas,
        certificate=Certificate(
            window_tokens=window,
            reserve_tokens=reserve,
            segments=tuple(
                replace(part, tokens=part.tokens + delta_tokens) if part.name == "messages" else part for part in parts
            ),
            overcount=overcount,
        ),
        reason=reason,
        measured_tokens=_measured_tokens(tx, conversation, current) if reason is None else None,
    )


def without_open_calls(rows: Sequence[Message]) -> Sequence[Message]:
    """Return the rows up to the last one at which no call is open."""
    open_calls: set[str] = set()
    upto = 0
    for number, message in enumerate(rows, 1):
        open_calls -= {result.call_id for result in message.results}
        open_calls |= {call.call_id for call in message.calls}
        if not open_calls:
            upto = number
    return rows[:upto]


def _measured_tokens(tx: Tx, conversation: Conversation, prefix: Prefix | None) -> int | None:
    """Return the tokens measured for the last request, if the conversation's estimate is corrected by exactly them."""
    last = next(iter(tx.steps.list(conversation.agent_id, conversation_seq=conversation.seq, limit=1)), None)
    if last is None or prefix is None or last.status != "success" or last.recipe.prefix_seq != prefix.seq:
        return None
    measured = last.usage.input_tokens
    return measured if measured and last.recipe.tokens - measured == conversation.overcount else None
