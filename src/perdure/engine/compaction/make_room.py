"""T8: a request would not fit, so something leaves its view: what the plan says, in one transaction.

A summary is asked of the agent's model first, outside the transaction. After a kill the same plan is made again from
the log; nothing of a half-made one was stored.
"""

from __future__ import annotations

from dataclasses import replace

from perdure.context.retrieval.stubs import row_tokens
from perdure.context.window.plan import Evict, Merge, Stub
from perdure.core.conversations import Conversation
from perdure.core.events import Event, PrefixRewritten, RowsCut, ViewCompacted
from perdure.core.nodes import SummaryNode
from perdure.core.runs import Prefix
from perdure.engine.compaction.compact_view import compact_view
from perdure.engine.compaction.summarise import Summary, summarise
from perdure.engine.hooks.points import after_compaction, before_compaction
from perdure.engine.ports import Ports, UnitInputs
from perdure.engine.run.interrupts import Interrupted
from perdure.engine.run.log import load_run_log
from perdure.engine.run.next_action import MakeRequest, next_action
from perdure.engine.run.prefixes import dropped_rows
from perdure.engine.run.progress import Progress, RoomPlan
from perdure.storage.tx import Tx


async def make_room(room: RoomPlan, ports: Ports) -> Progress:
    """The progress of carrying out the plan. Raises: LeaseLost, StoreError."""
    if not ports.hooks.wants("before_compaction", "after_compaction"):
        return await _make_room(room, ports)
    by = type(room.plan).__name__.lower()
    try:
        before = await before_compaction(room.log, by=by, budget_tokens=room.budget_tokens, ports=ports)
        if before.log.run.ended:
            return before
        compacted = await _make_room(room, ports)
        after = await after_compaction(compacted.log, by=by, ports=ports)
    except Interrupted:
        return Progress(await ports.store.read(load_run_log, room.log))
    return Progress(after.log, (*before.events, *compacted.events, *after.events))


async def _make_room(room: RoomPlan, ports: Ports) -> Progress:
    match room.plan:
        case Stub() as stub:
            return await ports.store.write(_store_stub, room, stub, ports.inputs())
        case Evict() | Merge() as smaller:
            summary: Summary | None = None
            if isinstance(smaller, Merge) or smaller.atoms:
                try:
                    summary = await summarise(room, smaller, ports)
                except Interrupted:
                    return Progress(await ports.store.read(load_run_log, room.log))
            return await ports.store.write(_store_smaller, room, smaller, summary, ports.inputs())


def _store_smaller(
    tx: Tx, room: RoomPlan, smaller: Evict | Merge, summary: Summary | None, inputs: UnitInputs
) -> Progress:
    """The node that stands for what leaves, and the prefix that begins behind it."""
    conversation = _planned_conversation(tx, room, inputs)
    if conversation is None:
        return Progress(load_run_log(tx, room.log))
    compaction = compact_view(
        tx, room.agent, conversation, room.view, room.nodes, smaller, summary, inputs, reason="window"
    )
    events: list[Event] = []
    if compaction.node is not None and summary is not None:
        tx.runs.spend(room.log.run.key, summary.usage)
        events.append(_compacted(compaction.node, merged=isinstance(smaller, Merge), before=compaction.tokens_before))
    events.append(PrefixRewritten(compaction.prefix.seq, compaction.prefix.reason))
    return _progress(tx, room, events, inputs)


def _store_stub(tx: Tx, room: RoomPlan, stub: Stub, inputs: UnitInputs) -> Progress:
    """How much is shown of some rows from now on. Where a model has seen more of them, that is a rewrite too."""
    conversation = _planned_conversation(tx, room, inputs)
    if conversation is None:
        return Progress(load_run_log(tx, room.log))
    counter, view = inputs.counter, room.view
    changed = {seq: chars for seq, chars in stub.stubs.items() if conversation.stubs.get(seq) != chars}
    events: list[Event] = [RowsCut(changed)]
    if stub.sent:
        rewritten = _same_prefix(tx, room, inputs)
        events.append(PrefixRewritten(rewritten.seq, rewritten.reason))
    rows = (*view.pinned, *view.rows)
    cut = [message for message in rows if message.seq in changed]
    tx.conversations.fit(
        conversation.agent_id,
        conversation.seq,
        view_tokens=sum(row_tokens(message, stub.stubs, counter) for message in rows),
        stubs=stub.stubs,
        # What is shown of them now was measured with the rest of them, so it counts as new.
        overcount=dropped_rows(
            conversation.overcount,
            cut,
            conversation.stubs,
            counter,
            estimated=view.prefix.tokens + conversation.view_tokens,
        ),
    )
    return _progress(tx, room, events, inputs)


def _same_prefix(tx: Tx, room: RoomPlan, inputs: UnitInputs) -> Prefix:
    """The prefix once more under a new number, so that requests before and after the cut are told apart."""
    prefix = tx.prefixes.add(replace(room.view.prefix, reason="window", created_at=inputs.now))
    tx.conversations.show(room.agent.id, room.conversation.seq, room.conversation.seen, prefix=prefix)
    return prefix


def _planned_conversation(tx: Tx, room: RoomPlan, inputs: UnitInputs) -> Conversation | None:
    """The conversation, if its state is still the one that was planned for; None if there is nothing to do."""
    log = replace(room.log, run=tx.runs.hold(room.log.run, until=inputs.until))
    conversation = tx.conversations.at(room.agent.id, room.conversation.seq)
    planned = (room.view.prefix.seq, room.conversation.stubs, room.agent.settings_revision)
    now = (conversation.prefix_seq, conversation.stubs, tx.agents.get(room.agent.id).settings_revision)
    return conversation if now == planned and isinstance(next_action(log), MakeRequest) else None


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


def _progress(tx: Tx, room: RoomPlan, events: list[Event], inputs: UnitInputs) -> Progress:
    stored = tx.events.add(room.log.run.key, events, at=inputs.now)
    return Progress(load_run_log(tx, room.log), stored)
