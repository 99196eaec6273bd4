"""T2 and T3: a run is claimed, and how its next model call is made is recorded, before the call."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from perdure.context.request.assemble import View, tail
from perdure.context.request.authorship import engine_tokens
from perdure.context.request.prefix import rewrite_reason
from perdure.context.sections.envelopes import envelope
from perdure.context.window.budget import Certificate, factor_after_overflow
from perdure.context.window.plan import Evict, Merge, Plan, Situation, Stub, plan
from perdure.context.window.segments import segments
from perdure.core.agents import Agent
from perdure.core.conversations import Conversation, Opening
from perdure.core.errors import IrreducibleFloor, TooMany
from perdure.core.events import Event, MessageAdded, PrefixRewritten, RunStarted, StepAbandoned, StepStarted, ViewFull
from perdure.core.ids import MessageId, step_id
from perdure.core.messages import Draft, Message, MessageKind, Text
from perdure.core.nodes import SummaryNode
from perdure.core.runs import Failure, Prefix, Recipe, Run, RunKey, StopReason
from perdure.core.tx import Tx
from perdure.domain.tools.specs import CONTEXT_TOOL_SPECS
from perdure.engine.hooks.rows import add_context_rows
from perdure.engine.run.accept import Accepted, Request, accept, add_waiting_input, begin_input, decode_drafts
from perdure.engine.run.asking import Asking, AutoRecalled
from perdure.engine.run.deltas import delta_texts
from perdure.engine.run.finish import end_run
from perdure.engine.run.log import Progress, RunLog, run_log_of
from perdure.engine.run.next_action import Ask, Finish, next_action
from perdure.engine.run.prefixes import Memory, compile_prefix, overcount_behind, read_memory, rows_tokens, store_prefix
from perdure.engine.search.recall import NeedsRecall, recalled_for

__all__ = ["Asked", "CannotBegin", "Full", "ask", "begin", "claim", "load_view"]


class CannotBegin(Exception):
    """A run could be accepted, but how its model is asked could not be recorded. The cause says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked(Progress):
    """T3's outcome: besides the log, the agent and view that the request is made of."""

    agent: Agent
    view: View


@dataclass(frozen=True, slots=True, kw_only=True)
class Full(Progress):
    """T3's outcome when the request would not fit: `plan` is what makes room, and then it is asked again."""

    agent: Agent
    conversation: Conversation
    view: View
    nodes: Sequence[SummaryNode]
    plan: Plan
    window_tokens: int
    reserve_tokens: int


def begin(tx: Tx, request: Request, asking: Asking, *, check_model: Callable[[str], None], owner: str) -> Accepted:
    """T1, and where nobody stands before the run T2 and T3 with it, for one commit instead of two.

    Raises: what `accept` raises; CannotBegin: the request may be accepted, but not by this; NeedsRecall: first look for
        what memory has on it.
    """

    def start(log: RunLog, events: list[Event], opening: Opening) -> Progress:
        events.append(RunStarted(log.run.id, log.run.lease_number))
        action = Ask() if log.run.resumes is None else next_action(log)
        if not isinstance(action, Ask):
            return Progress(log, tx.events.add(log.run.key, events, at=asking.now, after=log.told))
        try:
            progress = _ask(tx, log, action, asking, events, opening=opening)
        except NeedsRecall:
            raise
        except Exception as error:
            raise CannotBegin from error
        if progress.log.run.ended:  # its request can't be made: that shows when it is claimed
            raise CannotBegin
        return progress

    return accept(
        tx,
        request,
        check_model=check_model,
        owner=owner,
        now=asking.now,
        until=asking.until,
        begin=start,
        asking=asking,
    )


def claim(tx: Tx, key: RunKey, asking: Asking, *, owner: str, dead_owner: str | None = None) -> Progress | None:
    """Take the run, and if a model call comes first, record that too (T2 and T3 in one). None: it can't be claimed
    now. Raises: NeedsRecall."""
    run = tx.runs.claim(key, owner=owner, at=asking.now, until=asking.until, dead_owner=dead_owner)
    if run is None:
        return None
    events: list[Event] = [RunStarted(run.id, run.lease_number)]
    if run.first_message_seq is None and (waiting := tx.runs.waiting_input(key)) is not None:
        events += begin_input(tx, run, *decode_drafts(waiting), now=asking.now)
        run = tx.runs.at(key)
    log = run_log_of(tx, run)
    if isinstance(action := next_action(log), Ask) and not asking.hooked:
        return _ask(tx, log, action, asking, events)
    return Progress(log, tx.events.add(key, events, at=asking.now))


def ask(tx: Tx, key: RunKey, asking: Asking, *, log: RunLog) -> Progress:
    """Record how the next model call is made (T3). Raises: LeaseLost, NeedsRecall."""
    log = log.after(run=tx.runs.hold(key, log.lease, until=asking.until))
    # Between the last transaction and this one the run may have been asked to stop.
    if isinstance(action := next_action(log), Ask):
        return _ask(tx, log, action, asking, [])
    return Progress(log)


def _ask(
    tx: Tx,
    log: RunLog,
    action: Ask,
    asking: Asking,
    events: list[Event],
    *,
    opening: Opening | None = None,
) -> Progress:
    run, told, now, counter = log.run, log.told, asking.now, asking.counter
    if run.input_waits:
        run, said = add_waiting_input(tx, run, now=now)
        log = log.after(run=run, messages=said, told=told)
        events += [MessageAdded(message.seq, message) for message in said]
        opening = opening.after(said) if opening is not None else None
    opening = opening or tx.conversations.opening(run.key.agent_id, run.conversation_seq, known=asking.agent)
    agent, conversation = opening.agent, opening.conversation
    memory = read_memory(tx, opening)
    if memory.versions != conversation.seen:
        try:
            tx.limits.check("memory_limit_chars", tx.blocks.size(agent.id))
        except TooMany as error:  # nothing is read of it, or counted: others wait for this transaction
            return _ended(tx, log, IrreducibleFloor.stop_reason, IrreducibleFloor.kind, error, asking, events)
    recalled = recalled_for(tx, log, agent, conversation, memory, asking)
    if action.abandoned is not None:
        log = log.after(step=tx.steps.end(action.abandoned, status="abandoned", at=now))
        events.append(StepAbandoned(action.abandoned.id))
    reminded: Sequence[Message] = ()
    if action.reminder is not None:
        text = envelope("heartbeat", reason=action.reminder, time=now.isoformat(timespec="seconds"))
        reminded = _add_rows(tx, run, "heartbeat", [text], asking)
        log = log.after(messages=reminded)
        events += [MessageAdded(message.seq, message) for message in reminded]
    prefix, overcount, reason = _prefix(tx, run, agent, conversation, memory, asking)
    view_tokens = conversation.view_tokens + sum(message.tokens for message in reminded)
    # Also behind a new prefix that shows it already: an older delta or result may be in view after that prefix, and
    # what is said last counts.
    if memory.versions != conversation.seen and conversation.prefix_seq is not None:
        texts = delta_texts(tx, agent, conversation.seen, memory, prefix, asking)
        window, reserve = asking.window(agent)
        told_tokens = sum(engine_tokens(text, counter) for text in texts)
        if prefix.tokens + view_tokens + told_tokens - overcount > window - reserve:
            # There is no room to say it all: the memory section is written anew, and shows it.
            if reason is None:
                current, reason = prefix, "window"
                prefix = _rewritten(tx, run, agent, conversation, memory, asking, current, reason)
                overcount = overcount_behind(tx, agent, conversation, current, prefix, counter)
            texts = delta_texts(tx, agent, conversation.seen, memory, prefix, asking, folded=True)
        deltas = _add_deltas(tx, run, conversation, memory, texts, asking)
        log = log.after(messages=deltas)
        events += [MessageAdded(message.seq, message) for message in deltas]
        view_tokens += sum(message.tokens for message in deltas)
    if run.context:
        added = add_context_rows(tx, run, ids=asking.ids, counter=counter, now=now)
        log = log.after(run=replace(run, context=()), messages=added)
        events += [MessageAdded(message.seq, message) for message in added]
        view_tokens += sum(message.tokens for message in added)
    if reason is not None:
        events.append(PrefixRewritten(prefix.seq, reason))
    view = _view(tx, log, prefix, asking.have, conversation.stubs)
    if reason is not None:
        if reason != "first":  # a message that was revised takes more or less than when it was written
            view_tokens = rows_tokens(view, conversation.stubs, counter)
        tx.conversations.fit(
            agent.id, conversation.seq, view_tokens=view_tokens, stubs=conversation.stubs, overcount=overcount
        )
        conversation = replace(conversation, view_tokens=view_tokens, overcount=overcount, prefix_seq=prefix.seq)
    status = tail(now, agent.timezone, memory.counts, recalled.text, marker=prefix.marker)
    estimated = prefix.tokens + view_tokens + counter.count(status)
    factor = _factor(log, agent, asking)
    window, reserve = asking.window(agent)
    if recalled.text and (estimated - overcount) * factor > window - reserve:
        recalled = AutoRecalled("", None)  # the first to go
        status = tail(now, agent.timezone, memory.counts, marker=prefix.marker)
        estimated = prefix.tokens + view_tokens + counter.count(status)
    if (estimated - overcount) * factor > window - reserve:
        full = _full(tx, log, agent, conversation, view, status, asking, events)
        if full is not None:
            return full
    if recalled.event is not None:
        events.append(recalled.event)
    standing = log.standing(next_answer=True)
    recipe = Recipe(
        prefix_seq=prefix.seq,
        upto_message_seq=view.next_seq - 1,
        tail=status,
        settings_revision=agent.settings_revision,
        estimator=round((estimated - overcount) * factor / max(1, estimated), 4),
        stubs=conversation.stubs,
        digest=view.digest(status),
        tokens=estimated,
        overcount=overcount,
        tool_choice=None if standing is None else standing.choice,
        single_calls=standing is not None,
    )
    step = tx.steps.add(
        run,
        step_id(run.id, len(log.steps), asking.ids),
        index=len(log.steps),
        model=agent.model,
        recipe=recipe,
        lease=log.lease,
        at=now,
        held=True,
    )
    events.append(StepStarted(step.id, step.index))
    stored = tx.events.add(run.key, events, at=now, after=told)
    return Asked(log.after(step=step, told=stored[-1].seq), stored, agent=agent, view=view)


def _full(
    tx: Tx,
    log: RunLog,
    agent: Agent,
    conversation: Conversation,
    view: View,
    status: str,
    asking: Asking,
    events: list[Event],
) -> Progress | None:
    """What makes room for a request that does not fit; None if it is sent as it is after all. A run whose request can't
    be made to fit is ended."""
    window, reserve = asking.window(agent)
    run, stubs, counter = log.run, conversation.stubs, asking.counter
    nodes = tx.nodes.by_seqs(agent.id, conversation.seq, view.prefix.nodes)
    situation = Situation(
        certificate=Certificate(
            window_tokens=window,
            reserve_tokens=reserve,
            segments=segments(view, stubs=stubs, status=status, run_seq=run.key.seq, counter=counter),
            overcount=conversation.overcount,
            factor=_factor(log, agent, asking),
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
        return _ended(tx, log, floor.stop_reason, floor.kind, floor, asking, events)
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
    events.append(ViewFull(situation.certificate.tokens, situation.certificate.budget_tokens, _BY[type(found)]))
    stored = tx.events.add(run.key, events, at=asking.now)
    return Full(
        log,
        stored,
        agent=agent,
        conversation=conversation,
        view=view,
        nodes=nodes,
        plan=found,
        window_tokens=window,
        reserve_tokens=reserve,
    )


_BY: dict[type[Plan], Literal["evict", "merge", "stub"]] = {Evict: "evict", Merge: "merge", Stub: "stub"}


def _factor(log: RunLog, agent: Agent, asking: Asking) -> float:
    """What the estimate is multiplied with: 1, but after the provider has refused a request of this run."""
    if not (overflows := log.overflows):
        return 1.0
    window, reserve = asking.window(agent)
    refused = overflows[-1].recipe
    return factor_after_overflow(window - reserve, refused.tokens - refused.overcount)


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
    return View.of(prefix, pinned, recipe.stubs).extended(following)


def _view(tx: Tx, log: RunLog, prefix: Prefix, have: View | None, stubs: Mapping[int, int]) -> View:
    """What the model is shown, up to the newest row of the log."""
    if have is None or have.prefix.seq != prefix.seq:
        have = View.of(prefix, tx.messages.by_seqs(prefix.agent_id, prefix.pinned) if prefix.pinned else (), stubs)
    rows = have.following(log.messages)
    if not rows and log.messages:  # none, if all that the run was asked has been removed
        rows = tx.messages.view(
            log.run.key.agent_id, log.run.conversation_seq, from_seq=have.next_seq, upto_seq=log.messages[-1].seq
        )
    return have.with_stubs(stubs).extended(rows)


def _ended(
    tx: Tx, log: RunLog, reason: StopReason, kind: str, error: Exception, asking: Asking, events: list[Event]
) -> Progress:
    """The run, ended before its request was made."""
    end = Finish(reason, Failure(kind=kind, message=str(error)))
    return end_run(
        tx, log, end, events, ids=asking.ids, counter=asking.counter, settings=asking.settings, now=asking.now
    )


def _prefix(
    tx: Tx, run: Run, agent: Agent, conversation: Conversation, memory: Memory, asking: Asking
) -> tuple[Prefix, int, str | None]:
    """The prefix to send, the overcount of the estimate behind it, and why it was written anew; None: it was not."""
    current: Prefix | None = None
    if conversation.prefix_seq is not None:
        have = asking.have
        current = (
            have.prefix
            if have is not None and have.prefix.seq == conversation.prefix_seq
            else tx.prefixes.at(agent.id, conversation.prefix_seq)
        )
    seen_changed = current is not None and current.seen != memory.versions
    reason = rewrite_reason(
        current,
        settings_revision=agent.settings_revision,
        seen_changed=seen_changed,
        last_used_at=tx.steps.last_at(agent.id) if seen_changed else None,
        now=asking.now,
        client_tools=run.client_tools,
        reset=conversation.first_seq > 0,
    )
    if current is not None and reason is None:
        return current, conversation.overcount, None
    prefix = _rewritten(tx, run, agent, conversation, memory, asking, current, reason or "first")
    overcount = overcount_behind(tx, agent, conversation, current, prefix, asking.counter)
    return prefix, overcount, prefix.reason


def _rewritten(
    tx: Tx,
    run: Run,
    agent: Agent,
    conversation: Conversation,
    memory: Memory,
    asking: Asking,
    current: Prefix | None,
    reason: str,
) -> Prefix:
    """A new prefix before the same rows."""
    prefix = compile_prefix(
        tx,
        agent,
        conversation,
        memory,
        asking,
        reason=reason,
        from_seq=current.from_message_seq if current else conversation.first_seq,
        pinned=current.pinned if current else (),
        nodes=tx.nodes.by_seqs(agent.id, conversation.seq, current.nodes) if current else (),
        client_tools=run.client_tools,
        marker=current.marker if current else "",
    )
    return store_prefix(tx, conversation, memory, prefix)


def _add_deltas(
    tx: Tx, run: Run, conversation: Conversation, memory: Memory, texts: Sequence[str], asking: Asking
) -> Sequence[Message]:
    """Tell the log of memory edits from outside that it has not shown yet."""
    # Without any, all of it is in the prefix already.
    messages = _add_rows(tx, run, "memory_delta", texts, asking) if texts else ()
    tx.conversations.show(run.key.agent_id, conversation.seq, memory.versions)
    return messages


def _add_rows(tx: Tx, run: Run, kind: MessageKind, texts: Sequence[str], asking: Asking) -> Sequence[Message]:
    """Envelopes of the engine's, as rows of the run's log."""
    return tx.messages.append(
        run.key.agent_id,
        [
            Draft(id=MessageId(asking.ids.new("message")), role="system", kind=kind, parts=(Text(text),))
            for text in texts
        ],
        conversation_seq=run.conversation_seq,
        at=asking.now,
        tokens=[engine_tokens(text, asking.counter) for text in texts],
        run=run,
    )
