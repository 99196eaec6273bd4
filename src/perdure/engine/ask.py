"""T2 and T3: a run is claimed, and how its next model call is made is recorded, before the call."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from perdure.context.assemble import View, cut_point, tail
from perdure.context.memory_delta import memory_deltas, versions_of
from perdure.context.prefix import Counts, compile_system, compile_tools, rewrite_reason
from perdure.core.agents import Agent
from perdure.core.blocks import Block
from perdure.core.conversations import Conversation
from perdure.core.errors import NotFound
from perdure.core.events import Event, MessageAdded, PrefixRewritten, RunStarted, StepAbandoned, StepStarted
from perdure.core.ids import BlockId, MessageId, StepId
from perdure.core.messages import Draft, Message, Text
from perdure.core.models import Models
from perdure.core.passages import Archive
from perdure.core.ports import Ids, TokenCounter
from perdure.core.runs import Prefix, Recipe, Run, RunKey
from perdure.core.tx import Tx
from perdure.engine.accept import Accepted, Request, accept, begin_input, decode_drafts
from perdure.engine.next_action import Ask, next_action
from perdure.engine.ports import EngineSettings, window_tokens
from perdure.engine.run_log import Progress, RunLog, run_log_of

__all__ = ["Asked", "Asking", "CannotBegin", "ask", "begin", "claim", "load_view"]

KEPT_VIEW = 0.7
"""Of the budget, after a rewrite that the window forced: so that the next one is not due at once."""


class CannotBegin(Exception):
    """A run could be accepted, but how its model is asked could not be recorded. The cause says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asking:
    """What T3 needs from outside the store. `have` is the view this process has already, if any."""

    ids: Ids
    have: View | None
    counter: TokenCounter
    models: Models
    settings: EngineSettings
    now: datetime
    until: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked(Progress):
    """T3's outcome: besides the log, the agent and view that the request is made of."""

    agent: Agent
    view: View


def begin(tx: Tx, request: Request, asking: Asking, *, check_model: Callable[[str], None], owner: str) -> Accepted:
    """T1, and where nobody stands before the run T2 and T3 with it, for one commit instead of two.

    Raises: what `accept` raises; CannotBegin: the request may be accepted, but not by this.
    """

    def start(log: RunLog, events: list[Event]) -> Progress:
        agent = tx.agents.get(request.agent_id)
        check_model(agent.model)
        events.append(RunStarted(log.run.id, log.run.lease_number))
        try:
            return _ask(tx, log, Ask(), asking, events, agent=agent)
        except Exception as error:
            raise CannotBegin from error

    return accept(tx, request, check_model=check_model, owner=owner, now=asking.now, until=asking.until, begin=start)


def claim(tx: Tx, key: RunKey, asking: Asking, *, owner: str, dead_owner: str | None = None) -> Progress | None:
    """Take the run, and if a model call comes first, record that too (T2 and T3 in one). None: it can't be claimed
    now."""
    run = tx.runs.claim(key, owner=owner, at=asking.now, until=asking.until, dead_owner=dead_owner)
    if run is None:
        return None
    events: list[Event] = [RunStarted(run.id, run.lease_number)]
    if run.first_message_seq is None and (waiting := tx.runs.waiting_input(key)) is not None:
        events += begin_input(tx, run, *decode_drafts(waiting), now=asking.now)
        run = tx.runs.at(key)
    log = run_log_of(tx, run)
    if isinstance(action := next_action(log), Ask):
        return _ask(tx, log, action, asking, events)
    return Progress(log, tx.events.add(key, events, at=asking.now))


def ask(tx: Tx, key: RunKey, asking: Asking, *, log: RunLog) -> Progress:
    """Record how the next model call is made (T3). Raises: LeaseLost."""
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
    agent: Agent | None = None,
) -> Asked:
    run, now = log.run, asking.now
    agent = agent or tx.agents.get(run.key.agent_id)
    conversation = tx.conversations.at(agent.id, run.conversation_seq)
    memory = tx.blocks.current(agent.id)
    archives = tx.archives.of_agent(agent.id)
    counts = Counts(messages=agent.message_count, passages=sum(archive.passage_count for archive in archives))
    if action.abandoned is not None:
        log = log.after(step=tx.steps.end(action.abandoned, status="abandoned", at=now))
        events.append(StepAbandoned(action.abandoned.id))
    prefix, rewritten = _prefix(tx, agent, conversation, memory, archives, counts, asking)
    if rewritten:
        events.append(PrefixRewritten(prefix.seq, prefix.reason))
    # Also behind a new prefix that shows it already: an older delta or result may be in view after that prefix, and
    # what is said last counts.
    if memory != conversation.seen and conversation.prefix_seq is not None:
        deltas = _add_deltas(tx, run, conversation, asking)
        log = log.after(messages=deltas)
        events += [MessageAdded(message.seq, message) for message in deltas]
    recipe = Recipe(
        prefix_seq=prefix.seq,
        upto_message_seq=log.messages[-1].seq,
        tail=tail(now, agent.timezone, counts),
        settings_revision=agent.settings_revision,
    )
    step = tx.steps.add(
        run,
        StepId(asking.ids.new("step")),
        index=len(log.steps),
        model=agent.model,
        recipe=recipe,
        lease=log.lease,
        at=now,
    )
    events.append(StepStarted(step.id, step.index))
    stored = tx.events.add(run.key, events, at=now)
    log = log.after(step=step)
    return Asked(log, stored, agent=agent, view=_view(tx, log, prefix, asking.have))


def load_view(tx: Tx, run: Run, recipe: Recipe) -> View:
    """What the model is shown by this recipe, read from the log: also long after the call, and whatever was revised
    since."""
    prefix = tx.prefixes.at(run.key.agent_id, recipe.prefix_seq)
    rows = tx.messages.view(
        run.key.agent_id,
        run.conversation_seq,
        from_seq=prefix.from_message_seq,
        upto_seq=recipe.upto_message_seq,
        settings_revision=recipe.settings_revision,
    )
    return View(prefix).extended(rows)


def _view(tx: Tx, log: RunLog, prefix: Prefix, have: View | None) -> View:
    """What the model is shown, up to the newest row of the log."""
    if have is None or have.prefix.seq != prefix.seq:
        have = View(prefix)
    rows = have.following(log.messages) or tx.messages.view(
        log.run.key.agent_id, log.run.conversation_seq, from_seq=have.next_seq, upto_seq=log.messages[-1].seq
    )
    return have.extended(rows)


def _prefix(
    tx: Tx,
    agent: Agent,
    conversation: Conversation,
    memory: Mapping[BlockId, int],
    archives: Sequence[Archive],
    counts: Counts,
    asking: Asking,
) -> tuple[Prefix, bool]:
    """The prefix to send, and whether it was written anew."""
    current: Prefix | None = None
    if conversation.prefix_seq is not None:
        have = asking.have
        current = (
            have.prefix
            if have is not None and have.prefix.seq == conversation.prefix_seq
            else tx.prefixes.at(agent.id, conversation.prefix_seq)
        )
    budget = _budget(agent, asking)
    seen_changed = current is not None and current.seen != memory
    reason = rewrite_reason(
        current,
        settings_revision=agent.settings_revision,
        view_tokens=conversation.view_tokens + (current.tokens if current else 0),
        budget_tokens=budget,
        seen_changed=seen_changed,
        last_used_at=tx.steps.last_at(agent.id) if seen_changed else None,
        now=asking.now,
    )
    if current is not None and reason is None:
        return current, False
    tags = dict.fromkeys(tag for archive in archives for tag, _ in tx.archives.tags(archive.id))
    blocks = tx.blocks.of_agent(agent.id)
    system = compile_system(agent.system, blocks, replace(counts, tags=tuple(tags)[:20]))
    tools = compile_tools(tx.tools.of_agent(agent.id))
    tokens = asking.counter.count(system) + asking.counter.count(str(tools))
    from_seq = current.from_message_seq if current else 0
    if conversation.view_tokens + tokens > budget:
        # Whatever the reason, the view has to fit behind the new prefix.
        runs = tx.messages.run_tokens(agent.id, conversation.seq, from_seq=from_seq)
        cut = cut_point(runs, budget_tokens=max(0, int(budget * KEPT_VIEW) - tokens))
        if cut is None and reason == "window" and current is not None:
            return current, False  # the newest run alone fills the window; rewriting would remove nothing
        from_seq = from_seq if cut is None else cut
    prefix = tx.prefixes.add(
        Prefix(
            agent_id=agent.id,
            seq=0,
            conversation_seq=conversation.seq,
            reason=reason or "first",
            system=system,
            tools=tools,
            seen=memory,
            from_message_seq=from_seq,
            settings_revision=agent.settings_revision,
            tokens=tokens,
            created_at=asking.now,
        )
    )
    tx.conversations.show(agent.id, conversation.seq, memory, prefix=prefix)
    return prefix, True


def _add_deltas(tx: Tx, run: Run, conversation: Conversation, asking: Asking) -> Sequence[Message]:
    """Tell the log of memory edits from outside that it has not shown yet."""
    seen, blocks = conversation.seen, tx.blocks.of_agent(run.key.agent_id)
    texts = memory_deltas(seen, blocks, labels=_seen_labels(tx, seen, blocks))
    drafts = [
        Draft(id=MessageId(asking.ids.new("message")), role="system", kind="memory_delta", parts=(Text(text),))
        for text in texts
    ]
    messages = tx.messages.append(
        run.key.agent_id,
        drafts,
        conversation_seq=run.conversation_seq,
        at=asking.now,
        tokens=[asking.counter.count(text) for text in texts],
        run=run,
    )
    tx.conversations.show(run.key.agent_id, conversation.seq, versions_of(blocks))
    return messages


def _seen_labels(tx: Tx, seen: Mapping[BlockId, int], blocks: Sequence[Block]) -> dict[BlockId, str]:
    """The labels that blocks had when this log last saw them; a block that was deleted has none any more."""
    now = versions_of(blocks)
    labels: dict[BlockId, str] = {}
    for block_id, version in seen.items():
        if now.get(block_id) != version:
            with contextlib.suppress(NotFound):
                labels[block_id] = tx.blocks.version(block_id, version).label
    return labels


def _budget(agent: Agent, asking: Asking) -> int:
    tokens = window_tokens(agent, asking.models, asking.settings)
    return max(1, tokens - min(asking.settings.reserve_tokens, tokens // 4))
