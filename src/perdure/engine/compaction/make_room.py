"""T8: a request would not fit, so something leaves its view: what the plan says, in one transaction.

A summary is asked of the agent's model first, outside the transaction. After a kill the same plan is made again from
the log; nothing of a half-made one was stored.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from perdure.context.retrieval.stubs import row_tokens
from perdure.context.window.plan import Evict, Merge, Stub
from perdure.core.events import Event, PrefixRewritten, RowsCut, ViewCompacted
from perdure.core.nodes import SummaryNode
from perdure.core.runs import Prefix
from perdure.core.tx import Tx
from perdure.engine.compaction.leave_view import leave_view
from perdure.engine.compaction.summarise import Summary, summarise
from perdure.engine.hooks.points import after_compaction, before_compaction
from perdure.engine.ports import Ports
from perdure.engine.run.asking import Asking
from perdure.engine.run.interrupts import Interrupted
from perdure.engine.run.log import Progress, load_run_log
from perdure.engine.run.next_action import Ask, next_action
from perdure.engine.run.prefixes import dropped_rows
from perdure.engine.run.request import Full
from perdure.engine.run.views import Views

__all__ = ["make_room"]


async def make_room(full: Full, views: Views, ports: Ports) -> Progress:
    """The progress of carrying out the plan. Raises: LeaseLost, StoreError."""
    if not ports.hooks.wants("before_compaction", "after_compaction"):
        return await _make_room(full, views, ports)
    by = type(full.plan).__name__.lower()
    try:
        budget = full.window_tokens - full.reserve_tokens
        before = await before_compaction(full.log, by=by, budget_tokens=budget, ports=ports)
        if before.log.run.ended:
            return before
        made = await _make_room(full, views, ports)
        after = await after_compaction(made.log, by=by, ports=ports)
    except Interrupted:
        return Progress(await ports.store.read(load_run_log, full.log.run.key))
    return Progress(after.log, (*before.events, *made.events, *after.events))


async def _make_room(full: Full, views: Views, ports: Ports) -> Progress:
    key = (full.agent.id, full.conversation.seq)
    match full.plan:
        case Stub() as stub:
            return await ports.store.write(_store_stub, full, stub, views.asking(key, ports))
        case Evict() | Merge() as smaller:
            summary: Summary | None = None
            if isinstance(smaller, Merge) or smaller.atoms:
                try:
                    summary = await summarise(full, smaller, ports)
                except Interrupted:
                    return Progress(await ports.store.read(load_run_log, full.log.run.key))
            return await ports.store.write(_store_smaller, full, smaller, summary, views.asking(key, ports))


def _store_smaller(tx: Tx, full: Full, smaller: Evict | Merge, summary: Summary | None, asking: Asking) -> Progress:
    """The node that stands for what leaves, and the prefix that begins behind it."""
    held = _held(tx, full, asking)
    if held is None:
        return Progress(load_run_log(tx, full.log.run.key))
    left = leave_view(tx, full.agent, held, full.view, full.nodes, smaller, summary, asking, reason="window")
    events: list[Event] = []
    if left.node is not None and summary is not None:
        tx.runs.spend(full.log.run.key, summary.usage)
        events.append(_compacted(left.node, merged=isinstance(smaller, Merge), before=left.tokens_before))
    events.append(PrefixRewritten(left.prefix.seq, left.prefix.reason))
    return _progress(tx, full, events, asking)


def _store_stub(tx: Tx, full: Full, stub: Stub, asking: Asking) -> Progress:
    """How much is shown of some rows from now on. Where a model has seen more of them, that is a rewrite too."""
    held = _held(tx, full, asking)
    if held is None:
        return Progress(load_run_log(tx, full.log.run.key))
    counter, view = asking.counter, full.view
    changed = {seq: chars for seq, chars in stub.stubs.items() if held.stubs.get(seq) != chars}
    events: list[Event] = [RowsCut(changed)]
    if stub.sent:
        rewritten = _same_prefix(tx, full, asking)
        events.append(PrefixRewritten(rewritten.seq, rewritten.reason))
    rows = (*view.pinned, *view.rows)
    cut = [message for message in rows if message.seq in changed]
    tx.conversations.fit(
        held.agent_id,
        held.seq,
        view_tokens=sum(row_tokens(message, stub.stubs, counter) for message in rows),
        stubs=stub.stubs,
        # What is shown of them now was measured with the rest of them, so it counts as new.
        overcount=dropped_rows(
            held.overcount, cut, held.stubs, counter, estimated=view.prefix.tokens + held.view_tokens
        ),
    )
    return _progress(tx, full, events, asking)


def _same_prefix(tx: Tx, full: Full, asking: Asking) -> Prefix:
    """The prefix once more under a new number, so that requests before and after the cut are told apart."""
    prefix = tx.prefixes.add(replace(full.view.prefix, reason="window", created_at=asking.now))
    tx.conversations.show(full.agent.id, full.conversation.seq, full.conversation.seen, prefix=prefix)
    return prefix


def _held(tx: Tx, full: Full, asking: Asking) -> Any:
    """The conversation, if its state is still the one that was planned for; None if there is nothing to do."""
    log = full.log
    log = log.after(run=tx.runs.hold(log.run.key, log.lease, until=asking.until))
    conversation = tx.conversations.at(full.agent.id, full.conversation.seq)
    planned = (full.view.prefix.seq, full.conversation.stubs, full.agent.settings_revision)
    now = (conversation.prefix_seq, conversation.stubs, tx.agents.get(full.agent.id).settings_revision)
    return conversation if now == planned and isinstance(next_action(log), Ask) else None


def _compacted(node: SummaryNode, *, merged: bool, before: int) -> ViewCompacted:
    return ViewCompacted(
        node.seq,
        node.from_message_seq,
        node.upto_message_seq,
        merged,
        node.made_by,
        before,
        node.tokens,
        node.rejected,
    )


def _progress(tx: Tx, full: Full, events: list[Event], asking: Asking) -> Progress:
    stored = tx.events.add(full.log.run.key, events, at=asking.now)
    return Progress(load_run_log(tx, full.log.run.key), stored)
