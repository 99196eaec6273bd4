"""T3: how the next model call is made is recorded, before the call; or what has to make room for its request first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from perdure.context.request.assemble import View, parse_recalled, tail
from perdure.context.request.authorship import engine_tokens
from perdure.context.request.prefix import rewrite_reason
from perdure.context.sections.envelopes import envelope
from perdure.context.window.budget import Certificate, factor_after_overflow
from perdure.context.window.plan import Evict, Merge, Plan, Situation, Stub, plan
from perdure.context.window.segments import segments
from perdure.core.agents import Agent
from perdure.core.conversations import Conversation, ConversationState
from perdure.core.errors import IrreducibleFloor, TooMany
from perdure.core.events import Event, MessageAdded, PrefixRewritten, StepAbandoned, StepStarted, ViewFull
from perdure.core.ids import MessageId, step_id
from perdure.core.messages import Draft, Message, MessageKind, Text
from perdure.core.runs import Failure, Prefix, Recipe, Run, Step
from perdure.domain.tools.specs import CONTEXT_TOOL_SPECS
from perdure.engine.hooks.rows import add_context_rows
from perdure.engine.ports import NO_RECALL, AutoRecalled, UnitInputs
from perdure.engine.run.accept import add_waiting_input
from perdure.engine.run.deltas import delta_texts
from perdure.engine.run.finish import end_run
from perdure.engine.run.log import RunLog
from perdure.engine.run.next_action import Finish, MakeRequest
from perdure.engine.run.prefixes import Memory, compile_prefix, overcount_behind, read_memory, rows_tokens, store_prefix
from perdure.engine.run.progress import Progress, RequestParts, RoomPlan
from perdure.storage.tx import Tx

_PLAN_NAMES: dict[type[Plan], Literal["evict", "merge", "stub"]] = {Evict: "evict", Merge: "merge", Stub: "stub"}


@dataclass(slots=True, kw_only=True)
class _Making:
    """A request in the making, inside one transaction: what is known and stored of it so far.

    Args:
        log: with all rows that were added.
        events: what the transaction has to tell.
        view_tokens: the upper estimate of all rows behind the prefix.
    """

    tx: Tx
    inputs: UnitInputs
    log: RunLog
    events: list[Event]
    agent: Agent
    conversation: Conversation
    memory: Memory
    view_tokens: int

    def add(self, messages: Sequence[Message]) -> None:
        """Take rows up that were appended to the log."""
        self.log = self.log.after(messages=messages)
        self.events += [MessageAdded(message.seq, message) for message in messages]
        self.view_tokens += sum(message.tokens for message in messages)


@dataclass(frozen=True, slots=True)
class _Beginning:
    """The prefix to send, and the overcount of the estimate behind it. `reason`: why it was written anew; None: it was
    not."""

    prefix: Prefix
    overcount: int
    reason: str | None


@dataclass(frozen=True, slots=True)
class _Size:
    """What a request with the tail `status` takes: `estimated` tokens, of which `overcount` are known to be too many,
    times `factor`; and whether that is within the window."""

    status: str
    estimated: int
    overcount: int
    factor: float
    fits: bool


def make_request(
    tx: Tx,
    log: RunLog,
    action: MakeRequest,
    inputs: UnitInputs,
    events: list[Event],
    *,
    opening: ConversationState | None = None,
) -> Progress:
    """Record how the next model call is made: the log with its pending step and what the request is made of; or what
    makes room first; or the ended run, if nothing can.

    Args:
        events: what else this transaction has to tell, before what is told here.
        opening: what the conversation begins from, where it was read in this transaction.
    """
    last_event_seq = log.last_event_seq
    if log.run.input_waits:
        log, opening = _add_input(tx, log, inputs, events, opening)
    opening = opening or tx.conversations.opening(log.run.key.agent_id, log.run.conversation_seq)
    memory = read_memory(tx, opening)
    making = _Making(
        tx=tx,
        inputs=inputs,
        log=log,
        events=events,
        agent=opening.agent,
        conversation=opening.conversation,
        memory=memory,
        view_tokens=opening.conversation.view_tokens,
    )
    has_news = memory.versions != making.conversation.seen
    if has_news and (too_large := _check_memory(making)) is not None:
        return _end(making, IrreducibleFloor.kind, too_large)
    # What the run's requests show of memory in their tail is the same in each.
    recalled = (
        AutoRecalled(parse_recalled(log.steps[-1].recipe.tail), None) if log.steps else inputs.recalled or NO_RECALL
    )
    if action.abandoned is not None:
        _abandon(making, action.abandoned)
    if action.reminder is not None:
        _remind(making, action.reminder)
    beginning = _select_prefix(making)
    if has_news and making.conversation.prefix_seq is not None:
        beginning = _add_deltas(making, beginning)
    if log.run.context:
        _add_hook_context(making)
    view = _build_view(making, beginning)
    size = _measure(making, beginning, recalled)
    if not size.fits and recalled.text:  # the first to go
        recalled = NO_RECALL
        size = _measure(making, beginning, recalled)
    if not size.fits and (progress := _make_room(making, view, size)) is not None:
        return progress
    if recalled.event is not None:
        events.append(recalled.event)
    step = _add_step(making, view, size)
    events.append(StepStarted(step.id, step.index))
    stored = tx.events.add(log.run.key, events, at=inputs.now, after=last_event_seq)
    log = making.log.after(step=step, last_event_seq=stored[-1].seq)
    return Progress(log, stored, request=RequestParts(making.agent, view))


def _add_input(
    tx: Tx, log: RunLog, inputs: UnitInputs, events: list[Event], opening: ConversationState | None
) -> tuple[RunLog, ConversationState | None]:
    """The log with the input that waited behind answers, and the opening with it."""
    run, added = add_waiting_input(tx, log.run, now=inputs.now)
    events += [MessageAdded(message.seq, message) for message in added]
    return log.after(run=run, messages=added), opening.after(added) if opening is not None else None


def _check_memory(making: _Making) -> TooMany | None:
    """Why the agent's memory is too large to be read: others wait for this transaction."""
    try:
        making.tx.limits.check("memory_limit_chars", making.tx.blocks.size(making.agent.id))
    except TooMany as error:
        return error
    return None


def _abandon(making: _Making, step: Step) -> None:
    """Mark the step of a process that is gone."""
    making.log = making.log.after(step=making.tx.steps.end(step, status="abandoned", at=making.inputs.now))
    making.events.append(StepAbandoned(step.id))


def _remind(making: _Making, reminder: str) -> None:
    """Tell the model what it has not done yet."""
    text = envelope("heartbeat", reason=reminder, time=making.inputs.now.isoformat(timespec="seconds"))
    making.add(_append(making, "heartbeat", [text]))


def _select_prefix(making: _Making) -> _Beginning:
    """The conversation's prefix, written anew if there is a reason."""
    tx, agent, conversation, inputs = making.tx, making.agent, making.conversation, making.inputs
    current: Prefix | None = None
    if conversation.prefix_seq is not None:
        cached = inputs.cached_view
        current = (
            cached.prefix
            if cached is not None and cached.prefix.seq == conversation.prefix_seq
            else tx.prefixes.at(agent.id, conversation.prefix_seq)
        )
    seen_changed = current is not None and current.seen != making.memory.versions
    reason = rewrite_reason(
        current,
        settings_revision=agent.settings_revision,
        seen_changed=seen_changed,
        last_used_at=tx.steps.last_at(agent.id) if seen_changed else None,
        now=inputs.now,
        client_tools=making.log.run.client_tools,
        reset=conversation.first_seq > 0,
    )
    if current is not None and reason is None:
        return _Beginning(current, conversation.overcount, None)
    return _rewrite_prefix(making, current, reason or "first")


def _rewrite_prefix(making: _Making, current: Prefix | None, reason: str) -> _Beginning:
    """A new prefix before the same rows."""
    tx, agent, conversation = making.tx, making.agent, making.conversation
    compiled = compile_prefix(
        tx,
        agent,
        conversation,
        making.memory,
        making.inputs,
        reason=reason,
        from_seq=current.from_message_seq if current else conversation.first_seq,
        pinned=current.pinned if current else (),
        nodes=tx.nodes.by_seqs(agent.id, conversation.seq, current.nodes) if current else (),
        client_tools=making.log.run.client_tools,
        marker=current.marker if current else "",
    )
    prefix = store_prefix(tx, conversation, making.memory, compiled)
    overcount = overcount_behind(tx, agent, conversation, current, prefix, making.inputs.counter)
    return _Beginning(prefix, overcount, prefix.reason)


def _add_deltas(making: _Making, beginning: _Beginning) -> _Beginning:
    """Tell the log of memory edits from outside that it has not shown yet; the prefix, written anew where there is no
    room to tell all of them.

    Also behind a new prefix that shows them already: an older delta or result may be in view after that prefix, and
    what is said last counts.
    """
    tx, agent, conversation, memory = making.tx, making.agent, making.conversation, making.memory
    inputs = making.inputs
    texts = delta_texts(tx, agent, conversation.seen, memory, beginning.prefix, inputs)
    window, reserve = inputs.window(agent)
    tokens = sum(engine_tokens(text, inputs.counter) for text in texts)
    if beginning.prefix.tokens + making.view_tokens + tokens - beginning.overcount > window - reserve:
        if beginning.reason is None:
            beginning = _rewrite_prefix(making, beginning.prefix, "window")
        texts = delta_texts(tx, agent, conversation.seen, memory, beginning.prefix, inputs, folded=True)
    if texts:  # without any, all of it is in the prefix already
        making.add(_append(making, "memory_delta", texts))
    tx.conversations.show(agent.id, conversation.seq, memory.versions)
    return beginning


def _add_hook_context(making: _Making) -> None:
    """Put what hooks have added since the last request into the log."""
    run, inputs = making.log.run, making.inputs
    added = add_context_rows(making.tx, run, ids=inputs.ids, counter=inputs.counter, now=inputs.now)
    making.log = making.log.after(run=replace(run, context=()))
    making.add(added)


def _build_view(making: _Making, beginning: _Beginning) -> View:
    """What the model is shown, up to the newest row of the log. Behind a new prefix the conversation's estimate is
    stored anew."""
    tx, log, prefix, conversation = making.tx, making.log, beginning.prefix, making.conversation
    view = making.inputs.cached_view
    if view is None or view.prefix.seq != prefix.seq:
        pinned = tx.messages.by_seqs(prefix.agent_id, prefix.pinned) if prefix.pinned else ()
        view = View.of(prefix, pinned, conversation.stubs)
    rows = view.following(log.messages)
    if not rows and log.messages:  # none, if all that the run was asked has been removed
        upto_seq = log.messages[-1].seq
        rows = tx.messages.view(making.agent.id, conversation.seq, from_seq=view.next_seq, upto_seq=upto_seq)
    if view.stubs != conversation.stubs:
        view = view.with_stubs(conversation.stubs)
    view = view.with_rows(rows)
    if beginning.reason is not None:
        making.events.append(PrefixRewritten(prefix.seq, beginning.reason))
        if beginning.reason != "first":  # a message that was revised takes more or less than when it was written
            making.view_tokens = rows_tokens(view, conversation.stubs, making.inputs.counter)
        tx.conversations.fit(
            making.agent.id,
            conversation.seq,
            view_tokens=making.view_tokens,
            stubs=conversation.stubs,
            overcount=beginning.overcount,
        )
        making.conversation = replace(
            conversation, view_tokens=making.view_tokens, overcount=beginning.overcount, prefix_seq=prefix.seq
        )
    return view


def _measure(making: _Making, beginning: _Beginning, recalled: AutoRecalled) -> _Size:
    """The size of the request with what was recalled in its tail."""
    inputs, agent = making.inputs, making.agent
    status = tail(inputs.now, agent.timezone, making.memory.counts, recalled.text, marker=beginning.prefix.marker)
    window, reserve = inputs.window(agent)
    estimated = beginning.prefix.tokens + making.view_tokens + inputs.counter.count(status)
    factor = 1.0
    if overflows := making.log.overflows:  # the provider has refused a request of this run
        refused = overflows[-1].recipe
        factor = factor_after_overflow(window - reserve, refused.tokens - refused.overcount)
    fits = (estimated - beginning.overcount) * factor <= window - reserve
    return _Size(status, estimated, beginning.overcount, factor, fits)


def _make_room(making: _Making, view: View, size: _Size) -> Progress | None:
    """The plan that makes room for a request that does not fit; None if it is sent as it is after all. A run whose
    request can't be made to fit is ended."""
    tx, agent, conversation, inputs = making.tx, making.agent, making.conversation, making.inputs
    window, reserve = inputs.window(agent)
    log, run, stubs, counter = making.log, making.log.run, conversation.stubs, inputs.counter
    nodes = tx.nodes.by_seqs(agent.id, conversation.seq, view.prefix.nodes)
    situation = Situation(
        certificate=Certificate(
            window_tokens=window,
            reserve_tokens=reserve,
            segments=segments(view, stubs=stubs, status=size.status, run_seq=run.key.seq, counter=counter),
            overcount=conversation.overcount,
            factor=size.factor,
        ),
        nodes=tuple(nodes),
        pinned=view.pinned,
        rows=view.rows,
        run_seq=run.key.seq,
        turn_from=run.turn_from,
        stubs=stubs,
        seen_upto=max((step.recipe.upto_message_seq for step in log.steps if step.status == "success"), default=-1),
        sent_upto=max((step.recipe.upto_message_seq for step in log.steps), default=-1),
        can_open=any(tool["name"] in CONTEXT_TOOL_SPECS for tool in view.prefix.tools),
        counter=counter,
    )
    try:
        found = plan(situation)
    except IrreducibleFloor as floor:
        return _end(making, floor.kind, floor)
    if found is None:
        # Nothing but a correction says that it is too large; or the rows were estimated by another counter before.
        tx.conversations.fit(
            agent.id,
            conversation.seq,
            view_tokens=rows_tokens(view, stubs, counter),
            stubs=stubs,
            overcount=max(0, conversation.overcount),
        )
        return None
    certificate = situation.certificate
    making.events.append(ViewFull(certificate.tokens, certificate.budget_tokens, _PLAN_NAMES[type(found)]))
    stored = tx.events.add(run.key, making.events, at=inputs.now)
    room = RoomPlan(
        log=log,
        agent=agent,
        conversation=conversation,
        view=view,
        nodes=nodes,
        plan=found,
        window_tokens=window,
        reserve_tokens=reserve,
    )
    return Progress(log, stored, room=room)


def _add_step(making: _Making, view: View, size: _Size) -> Step:
    """The pending step with its recipe."""
    log, agent, conversation, inputs = making.log, making.agent, making.conversation, making.inputs
    rules_now = log.rule_state(next_answer=True)
    recipe = Recipe(
        prefix_seq=view.prefix.seq,
        upto_message_seq=view.next_seq - 1,
        tail=size.status,
        settings_revision=agent.settings_revision,
        estimator=round((size.estimated - size.overcount) * size.factor / max(1, size.estimated), 4),
        stubs=conversation.stubs,
        digest=view.digest(size.status),
        tokens=size.estimated,
        overcount=size.overcount,
        tool_choice=None if rules_now is None else rules_now.choice,
        single_calls=rules_now is not None,
    )
    return making.tx.steps.add(
        log.run,
        step_id(log.run.id, len(log.steps), inputs.ids),
        index=len(log.steps),
        model=agent.model,
        recipe=recipe,
        lease=log.lease,
        at=inputs.now,
        held=True,
    )


def _end(making: _Making, kind: str, error: Exception) -> Progress:
    """The run, ended before its request was made."""
    end = Finish(IrreducibleFloor.stop_reason, Failure(kind=kind, message=str(error)))
    return end_run(making.tx, making.log, end, making.events, making.inputs)


def _append(making: _Making, kind: MessageKind, texts: Sequence[str]) -> Sequence[Message]:
    """Envelopes of the engine's, as rows of the run's log."""
    inputs, run = making.inputs, making.log.run
    return making.tx.messages.append(
        run.key.agent_id,
        [
            Draft(id=MessageId(inputs.ids.new("message")), role="system", kind=kind, parts=(Text(text),))
            for text in texts
        ],
        conversation_seq=run.conversation_seq,
        at=inputs.now,
        tokens=[engine_tokens(text, inputs.counter) for text in texts],
        run=run,
    )


def load_view(tx: Tx, run: Run, recipe: Recipe) -> View:
    """What the model is shown by this recipe, read from the log: also long after the call, and whatever was revised
    since."""
    agent_id = run.key.agent_id

    def rows(from_seq: int, upto_seq: int) -> Sequence[Message]:
        return tx.messages.view(
            agent_id,
            run.conversation_seq,
            from_seq=from_seq,
            upto_seq=upto_seq,
            settings_revision=recipe.settings_revision,
        )

    prefix = tx.prefixes.at(agent_id, recipe.prefix_seq)
    pinned = [message for seq in prefix.pinned for message in rows(seq, seq)]
    following = rows(prefix.from_message_seq, recipe.upto_message_seq)
    return View.of(prefix, pinned, recipe.stubs).with_rows(following)
