"""T3: the next model call is recorded before it is made; or a plan that makes room for its request first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from perdure.context.sections.assemble import NO_NOTES, TailNotes, View, parse_recalled, tail
from perdure.context.sections.envelopes import engine_tokens, envelope
from perdure.context.window.budget import factor_after_overflow
from perdure.core.agents import AUTOCLEAR, GuardSettings
from perdure.core.conversations import ConversationState
from perdure.core.errors import TooMany
from perdure.core.events import Event, MemoryRecalled, MessageAdded, PrefixRewritten, StepAbandoned, StepStarted
from perdure.core.features import Point
from perdure.core.ids import StepId, id_in_run
from perdure.core.messages import Message
from perdure.core.runs import NO_OPTIONS, Prefix, Recipe, Run, RunKey, Step
from perdure.core.sources import Source
from perdure.domain.provenance.context import context_sources, recalled_sources, sources_of_notes
from perdure.engine.approvals.answers import with_last_skills
from perdure.engine.budget import find_exceeded, has_budget
from perdure.engine.compaction.room import RequestBuilder, RequestSize, before_sending, make_room
from perdure.engine.estimates import (
    fixed_at_least,
    is_measured,
    overcount_behind,
    rows_at_least,
    rows_tokens,
    unmeasured_overcount,
)
from perdure.engine.log.next_action import MakeRequest, next_action
from perdure.engine.log.run_log import NO_RECALL, NoPlan, Progress, RecallResult, RequestParts, RunLog
from perdure.engine.log.tool_rules import rule_state
from perdure.engine.ports import Ports, UnitInputs
from perdure.engine.prompt.prefixes import (
    agent_of_run,
    current_prefix,
    delta_texts,
    prefix_of_run,
    read_memory,
    recompile_prefix,
    rewrite_reason,
    store_prefix,
)
from perdure.engine.prompt.recall import count_recalled, plan_recall_of_run, recall
from perdure.engine.prompt.tail import ROWS_PER_STEP, add_pressure, build_notes
from perdure.engine.records.rows import NEWEST, add_hook_context, add_waiting_input, end_run
from perdure.storage.tx import Tx

SHOWN_SOURCES: Point[[Tx, Mapping[str, int]], Sequence[Source]] = Point("shown_sources")
"""Which of what belongs to an agent's memory, by its versions, is from outside."""


def note_shown(builder: RequestBuilder, recalled: MemoryRecalled | None) -> None:
    """Note which outside sources a request shows beside its messages: those of recalled texts, working notes, open
    files and the list of steps. They are in the context of all that follows."""
    tx, agent, seq, opening = builder.tx, builder.agent, builder.conversation.seq, builder.opening
    shown = () if recalled is None else recalled_sources(tx, recalled)
    if opening.has_notes:
        shown += sources_of_notes(tx, agent.id, seq)
    for more in SHOWN_SOURCES(tx, builder.memory.versions) if opening.has else ():
        shown += tuple(more)
    if builder.guards.recent_steps:
        shown += _sources_of_steps(builder)
    if not shown or (row := _row_of(builder)) is None:
        return
    known = {context_source.source for context_source in context_sources(tx, agent.id, seq, before_seq=NEWEST)}
    if new := [source for source in dict.fromkeys(shown) if source not in known]:
        tx.sources.add_to_message(agent.id, seq, row.seq, new, recalled=True)


def _row_of(builder: RequestBuilder) -> Message | None:
    """The row to note sources with: what the run was asked; later the newest, for older ones may leave the view."""
    rows = builder.log.messages
    asked = None if builder.log.steps else next((row for row in rows if row.role == "user"), None)
    if asked is not None or rows:
        return asked or rows[-1]
    newest = builder.tx.messages.list(
        builder.agent.id, conversation_seq=builder.conversation.seq, limit=1, newest_first=True, kinds=None
    )
    return newest[0] if newest else None


def _sources_of_steps(builder: RequestBuilder) -> tuple[Source, ...]:
    """Return the outside sources of the steps that the tail lists, also of those out of view."""
    tx, agent, seq = builder.tx, builder.agent, builder.conversation.seq
    most = ROWS_PER_STEP * builder.guards.recent_steps
    rows = tx.messages.list(agent.id, conversation_seq=seq, limit=most, newest_first=True)
    if not rows:
        return ()
    entered = tx.sources.list_by_conversation(agent.id, seq, from_seq=rows[-1].seq, before_seq=NEWEST)
    return tuple(one.source for one in entered)


async def record_request(log: RunLog, ports: Ports, no_plan: NoPlan | None = None) -> Progress:
    """Record the next model call. Raises: LeaseLost.

    Args:
        no_plan: what the agent's context engine has no plan for.
    """
    inputs = ports.inputs((log.run.key.agent_id, log.run.conversation_seq))
    if no_plan is not None or ports.engine_calls.is_quarantined(log.run.key):
        inputs = replace(inputs, no_plan=no_plan, quarantined=ports.engine_calls.is_quarantined(log.run.key))
    if no_plan is not None:
        inputs = replace(inputs, recalled=no_plan.recalled)
    elif not log.steps and (plan := await ports.store.read(plan_recall_of_run, log, inputs)) is not None:
        inputs = replace(inputs, recalled=await recall(plan, ports))
    progress = await ports.store.write(_record_request, log, inputs)
    ports.views.put(progress)
    return progress


def _record_request(tx: Tx, log: RunLog, inputs: UnitInputs) -> Progress:
    """Record the next model call, unless the run has been asked to stop meanwhile."""
    log = replace(log, run=tx.runs.keep_lease(log.run, until=inputs.until))
    # Between the last transaction and this one the run may have been asked to stop.
    if isinstance(action := next_action(log), MakeRequest):
        return make_request(tx, log, action, inputs, [])
    return Progress(log)


async def load_request(log: RunLog, step: Step, ports: Ports) -> RequestParts:
    """Load the parts of a recorded model call's request from the log."""

    def load(tx: Tx) -> RequestParts:
        """Return the agent as the run sees it, and the view of the step's recipe."""
        agent = tx.conversations.get_agent(log.run.key.agent_id, log.run.conversation_seq)
        agent = agent_of_run(agent, log.run, ports.models)
        return RequestParts(agent, load_view(tx, log.run, step.recipe))

    return await ports.store.read(load)


def make_request(
    tx: Tx,
    log: RunLog,
    action: MakeRequest,
    inputs: UnitInputs,
    events: list[Event],
    *,
    opening: ConversationState | None = None,
) -> Progress:
    """Record the next model call: return the log with its pending step and the parts of the request; or a plan that
    makes room first; or the ended run, if no plan can.

    Args:
        events: the transaction's other events, which come first.
        opening: the state that the conversation begins from, if it was read in this transaction.
    """
    if log.run.input_waits:
        run, added = add_waiting_input(tx, log.run, now=inputs.now)
        events += [MessageAdded(message.seq, message) for message in added]
        log = replace(log, run=run, messages=(*log.messages, *added))
        opening = opening.with_messages(added) if opening is not None else None
    opening = opening or tx.conversations.get_state(log.run.key.agent_id, log.run.conversation_seq)
    conversation, options = opening.conversation, log.run.options
    if has_budget(opening.agent, options) and (ended := find_exceeded(tx, opening.agent, log, inputs)) is not None:
        return end_run(tx, log, ended, events, inputs)
    if options.system is not None:  # the cached view has the conversation's own system text
        inputs = replace(inputs, cached_view=None)
    agent = agent_of_run(opening.agent, log.run, inputs.models)
    builder = RequestBuilder(
        tx=tx,
        inputs=inputs,
        log=log,
        events=events,
        agent=agent,
        guards=GuardSettings.from_settings(agent.settings, options),
        opening=opening,
        conversation=conversation,
        memory=read_memory(tx, opening),
        view_tokens=conversation.view_tokens,
        overcount=conversation.overcount,
        window=inputs.window(agent),
    )
    has_news = builder.memory.versions != conversation.seen
    if has_news:
        try:  # reading a larger memory would hold up everybody else who writes
            tx.limits.check("memory_limit_chars", tx.blocks.size(builder.agent.id, conversation.seq))
        except TooMany as error:
            return builder.end(error)
    recalled_before = _recalled_before(tx, log) if log.steps or log.run.resumes is not None else None
    recalled = recalled_before or inputs.recalled or NO_RECALL
    if action.abandoned is not None:
        abandoned = tx.steps.end(action.abandoned, status="abandoned", at=inputs.now)
        builder.log = replace(builder.log, steps=(*log.steps[:-1], abandoned))
        events.append(StepAbandoned(abandoned.id))
    if action.reminder is not None:
        time = inputs.now.isoformat(timespec="seconds")
        builder.append("heartbeat", [envelope("heartbeat", reason=action.reminder, time=time)])
    prefix = _select_prefix(builder)
    if has_news and conversation.prefix_seq is not None:
        prefix = _add_deltas(builder, prefix)
    if log.run.context:
        run, added = add_hook_context(tx, builder.log.run, inputs)
        builder.log = replace(builder.log, run=run)
        builder.add(added)
    if options != NO_OPTIONS:
        prefix = _own_prefix(builder, prefix)
    view = _build_view(builder, prefix)
    size, recalled = _measure_tail(builder, view, recalled)
    if (progress := (before_sending if size.fits else make_room)(builder, view, size, recalled)) is not None:
        return progress
    if builder.leaves_out_notes and size.without_notes is not None:
        size = size.without_notes
    if recalled.event is not None:
        events.append(recalled.event)
        count_recalled(tx, recalled.event)
    if recalled.event is not None or opening.has_notes or opening.has or builder.guards.recent_steps:
        note_shown(builder, recalled.event)
    step = _add_step(builder, view, size)
    stored = tx.events.add(log.run.key, [*events, StepStarted(step.id, step.index)], at=inputs.now)
    return Progress(replace(builder.log, steps=(*builder.log.steps, step)), stored, request=RequestParts(agent, view))


def _recalled_before(tx: Tx, log: RunLog) -> RecallResult | None:
    """Return what the turn's earlier requests show of memory, the same in each; None: this is its first request."""
    steps: Sequence[Step] = log.steps
    if not steps and log.run.resumes is not None:
        steps = tx.steps.list_by_run(RunKey(log.run.key.agent_id, log.run.resumes))
    return RecallResult(parse_recalled(steps[-1].recipe.tail), None) if steps else None


def _select_prefix(builder: RequestBuilder) -> Prefix:
    """Return the conversation's prefix, rewritten if there is a reason."""
    tx, agent, conversation, inputs = builder.tx, builder.agent, builder.conversation, builder.inputs
    current = current_prefix(tx, conversation, inputs)
    run = builder.log.run
    if run.client_tools is None and current is not None and current.client_tools is not None:
        run = with_last_skills(tx, run, current.client_tools)
        builder.log = replace(builder.log, run=run)
    if agent.settings.get(AUTOCLEAR) and (first := _first_row_when_empty(builder, current)) is not None:
        return _clear_view(builder, current, first)
    reason = rewrite_reason(
        tx, agent, conversation, builder.memory, current, client_tools=run.client_tools, inputs=inputs
    )
    if current is not None and reason is None:
        return current
    return _rewrite_prefix(builder, current, reason or "first")


def _first_row_when_empty(builder: RequestBuilder, current: Prefix | None) -> int | None:
    """Return the first row of a request that begins with an empty view; None: it goes on, as after answered calls."""
    run, before = builder.log.run, builder.conversation.first_seq if current is None else current.from_message_seq
    if builder.log.steps or run.resumes is not None:
        return None
    return run.first_message_seq if run.first_message_seq is not None and before < run.first_message_seq else None


def _clear_view(builder: RequestBuilder, current: Prefix | None, from_seq: int) -> Prefix:
    """Begin a view with a new prefix, which only the run's own rows follow. Others stay stored, and can be found."""
    memory = builder.memory
    builder.view_tokens = sum(row.tokens for row in builder.log.messages if row.seq >= from_seq)
    # Nothing that showed memory before is in view any more.
    builder.conversation = replace(
        builder.conversation, stubs={}, seen=memory.versions, view_tokens=builder.view_tokens
    )
    prefix = _rewrite_prefix(builder, current, "first" if current is None else "autoclear", from_seq=from_seq)
    builder.overcount = unmeasured_overcount(builder.tx, builder.agent.model, prefix.tokens + builder.view_tokens)
    return prefix


def _own_prefix(builder: RequestBuilder, prefix: Prefix) -> Prefix:
    """Return the prefix as a run with options of its own sends it, for which nothing was measured."""
    run = builder.log.run
    if run.options.differs:
        estimated = prefix.tokens + builder.view_tokens
        builder.overcount = unmeasured_overcount(builder.tx, builder.agent.model, estimated)
    return prefix_of_run(prefix, run, builder.inputs.counter)


def _rewrite_prefix(
    builder: RequestBuilder, current: Prefix | None, reason: str, *, from_seq: int | None = None
) -> Prefix:
    """Store a new prefix before the same rows, or with `from_seq` before the rows from there on."""
    tx, agent, conversation = builder.tx, builder.agent, builder.conversation
    client_tools = builder.log.run.client_tools
    compiled = recompile_prefix(
        tx,
        agent,
        conversation,
        builder.memory,
        builder.inputs,
        current,
        reason=reason,
        client_tools=client_tools,
        from_seq=from_seq,
    )
    prefix = store_prefix(tx, conversation, builder.memory, compiled)
    builder.overcount = overcount_behind(tx, agent, conversation, current, prefix, builder.inputs.counter)
    builder.rewrite_reason = reason
    return prefix


def _add_deltas(builder: RequestBuilder, prefix: Prefix) -> Prefix:
    """Append memory edits from outside that the log has not shown yet; return the prefix, rewritten if they don't fit.

    Also behind a new prefix that shows them already: an older delta or result may be in view after that prefix, and
    what is said last counts.
    """
    tx, agent, conversation, memory = builder.tx, builder.agent, builder.conversation, builder.memory
    inputs = builder.inputs
    texts = delta_texts(tx, agent, conversation.seen, memory, prefix, inputs)
    window, reserve = builder.window
    tokens = sum(engine_tokens(text, inputs.counter) for text in texts)
    if prefix.tokens + builder.view_tokens + tokens - builder.overcount > window - reserve:
        if builder.rewrite_reason is None:
            prefix = _rewrite_prefix(builder, prefix, "window")
        texts = delta_texts(tx, agent, conversation.seen, memory, prefix, inputs, folded=True)
    if texts:  # without any, all of it is in the prefix already
        builder.append("memory_delta", texts)
    tx.conversations.put_seen_versions(agent.id, conversation.seq, memory.versions)
    return prefix


def _build_view(builder: RequestBuilder, prefix: Prefix) -> View:
    """Return the view up to the newest row of the log. Behind a new prefix, store the conversation's new estimate."""
    tx, log, conversation = builder.tx, builder.log, builder.conversation
    view = builder.inputs.cached_view
    if view is None or view.prefix.seq != prefix.seq:
        pinned = tx.messages.list_by_seqs(prefix.agent_id, prefix.pinned) if prefix.pinned else ()
        view = View.of(prefix, pinned, conversation.stubs)
    rows = view.following(log.messages)
    if not rows and log.messages:  # none, if all that the run was asked has been removed
        upto_seq = log.messages[-1].seq
        rows = tx.messages.view(builder.agent.id, conversation.seq, from_seq=view.next_seq, upto_seq=upto_seq)
    if view.stubs != conversation.stubs:
        view = View.of(view.prefix, view.pinned, conversation.stubs).with_rows(view.rows)
    view = view.with_rows(rows)
    if builder.rewrite_reason is not None:
        builder.events.append(PrefixRewritten(prefix.seq, builder.rewrite_reason))
        if builder.rewrite_reason != "first":  # a message that was revised takes more or less than when it was written
            builder.view_tokens = rows_tokens(view, conversation.stubs, builder.inputs.counter)
        tx.conversations.put_view(
            builder.agent.id,
            conversation.seq,
            view_tokens=builder.view_tokens,
            stubs=conversation.stubs,
            overcount=builder.overcount,
        )
    return view


def _measure_tail(builder: RequestBuilder, view: View, recalled: RecallResult) -> tuple[RequestSize, RecallResult]:
    """Return the size of the request with as much in its tail as fits, and what was recalled if that fits. What was
    recalled is left out first, then the list of steps and the notices. Notes stay, unless no other room can be made."""
    tx, agent, log, prefix = builder.tx, builder.agent, builder.log, view.prefix
    notes = build_notes(tx, agent, prefix, log.run, log.messages, builder.inputs, has_notes=builder.opening.has_notes)
    size = _measure(builder, view, recalled, notes)
    if not size.fits and recalled.text:
        recalled = NO_RECALL
        size = _measure(builder, view, recalled, notes)
    if not size.fits and notes != (kept := TailNotes(checkpoint=notes.checkpoint)):
        notes = kept
        size = _measure(builder, view, recalled, notes)
    if size.fits and builder.guards.memory_pressure and size.filled >= builder.guards.memory_pressure:
        warned = _measure(builder, view, recalled, add_pressure(tx, agent, prefix, notes, filled=size.filled))
        size = warned if warned.fits else size
    if not size.fits and notes.checkpoint:
        size = replace(size, without_notes=_measure(builder, view, recalled, NO_NOTES))
    return size, recalled


def _measure(builder: RequestBuilder, view: View, recalled: RecallResult, notes: TailNotes) -> RequestSize:
    """Return the size of the request with what was recalled, and with these notes, in its tail."""
    inputs, agent, prefix = builder.inputs, builder.agent, view.prefix
    status = tail(inputs.now, agent.timezone, builder.memory.counts, recalled.text, prefix=prefix, notes=notes)
    window, reserve = builder.window
    most, overcount, factor = window - reserve, builder.overcount, 1.0
    estimated = prefix.tokens + builder.view_tokens + inputs.counter.count(status)
    if builder.log.steps and (overflows := builder.log.overflows):  # the provider has refused a request of this run
        factor = factor_after_overflow(most, overflows[-1].recipe.tokens - overcount)
    elif estimated - overcount > most and _may_try(builder):
        rows = rows_at_least(view, builder.conversation.stubs, inputs.counter)
        overcount = estimated - fixed_at_least(prefix, status, inputs.counter) - rows
    tokens = (estimated - overcount) * factor
    return RequestSize(status, estimated, overcount, factor, tokens <= most, tokens / most)


def _may_try(builder: RequestBuilder) -> bool:
    """Return whether to send a request that only the estimate calls too large, if no provider has counted one yet.

    The estimate is made for large windows, in which the tools are little. A server of one's own refuses what is too
    long at no cost, and says how large it is; one that cuts it without a word must not get it.
    """
    agent = builder.agent
    traits = builder.inputs.models.traits(agent.model)
    return (
        traits.local
        and not traits.cuts
        and not builder.overcount
        and not is_measured(builder.tx, agent, builder.conversation)
    )


def _add_step(builder: RequestBuilder, view: View, size: RequestSize) -> Step:
    """Add the pending step with its recipe."""
    log, agent, inputs = builder.log, builder.agent, builder.inputs
    rules = None if log.rule_scope is None else rule_state(log.rule_scope, log.past_calls)
    has_none = rules is None and log.run.options.tools is not None and not log.run.options.tools
    recipe = Recipe(
        prefix_seq=view.prefix.seq,
        upto_message_seq=view.next_seq - 1,
        tail=size.status,
        settings_revision=agent.settings_revision,
        estimator=round((size.estimated - size.overcount) * size.factor / max(1, size.estimated), 4),
        stubs=builder.conversation.stubs,
        digest=view.digest(size.status),
        tokens=size.estimated,
        overcount=size.overcount,
        window_tokens=builder.window[0],
        tool_choice="none" if log.must_speak or has_none else None if rules is None else rules.choice,
        single_calls=rules is not None,
    )
    return builder.tx.steps.add(
        log.run,
        StepId(id_in_run(log.run.id, "step", len(log.steps), inputs.ids)),
        index=len(log.steps),
        model=agent.model,
        recipe=recipe,
        at=inputs.now,
    )


def load_view(tx: Tx, run: Run, recipe: Recipe) -> View:
    """Load the view of a recipe from the log: it is the same long after the call, whatever was revised since."""
    agent_id = run.key.agent_id

    def rows(from_seq: int, upto_seq: int) -> Sequence[Message]:
        """Return the rows of the view in [from_seq, upto_seq)."""
        return tx.messages.view(
            agent_id,
            run.conversation_seq,
            from_seq=from_seq,
            upto_seq=upto_seq,
            settings_revision=recipe.settings_revision,
        )

    prefix = prefix_of_run(tx.prefixes.get(agent_id, recipe.prefix_seq), run)
    pinned = [message for seq in prefix.pinned for message in rows(seq, seq)]
    following = rows(prefix.from_message_seq, recipe.upto_message_seq)
    return View.of(prefix, pinned, recipe.stubs).with_rows(following)
