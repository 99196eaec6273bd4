"""New conversations from old ones: forks, and importing history from elsewhere. What the next request has no room for
leaves the view, behind summaries.

These summaries are extracts by our own code, so that importing costs no model calls, and the first message after it is
answered as quickly as any.

A fork begins with what another conversation has in view. The rows are copied, so that each of the two can be compacted,
reset and deleted without the other.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime

from perdure.context.sections.envelopes import input_tokens
from perdure.context.sections.stubs import apply_stubs, row_tokens
from perdure.context.window.plan import Evict, Merge, plan
from perdure.context.window.summary import extract_summary
from perdure.core.agents import Agent
from perdure.core.blocks import Author
from perdure.core.conversations import EPHEMERAL, Conversation, ConversationState
from perdure.core.errors import InvalidInput, IrreducibleFloor
from perdure.core.events import Event, MessageAdded, RunQueued
from perdure.core.ids import AgentId, BlockId, ConversationId, MessageId, RunId
from perdure.core.messages import Draft, Message, ToolCall, Waits, text_of
from perdure.core.nodes import SummaryNode
from perdure.core.runs import Prefix
from perdure.core.sources import MessageSource
from perdure.domain.blocks.units import copy_isolated
from perdure.domain.conversations.importing import ImportCount, add_imported, as_imported
from perdure.domain.provenance.context import context_sources
from perdure.engine.approvals.answers import check_idle, tools_of, waits_by_tool, write_waits
from perdure.engine.compaction.compact_view import compact_view
from perdure.engine.compaction.room import RequestPreview, preview, without_open_calls
from perdure.engine.compaction.summarise import Summary
from perdure.engine.log.next_action import EndRun
from perdure.engine.log.run_log import run_log_of
from perdure.engine.ports import Ports, UnitInputs
from perdure.engine.prompt.prefixes import compile_prefix, read_memory, store_prefix
from perdure.engine.prompt.system_messages import renew_system_message
from perdure.engine.records.rows import NEWEST, end_run
from perdure.storage.tx import Tx


def fork(
    tx: Tx,
    source: Conversation,
    conversation_id: ConversationId,
    inputs: UnitInputs,
    *,
    upto: MessageId | None = None,
    before: MessageId | None = None,
    hidden: bool = False,
    keeps_prefix: bool = False,
) -> Conversation:
    """Add a conversation with a copy of what `source` has in view, and with its settings.

    Calls that are still open are left out, with all that follows them.

    Args:
        upto: the last message to copy; None: all of them. One out of view brings the messages before it, whole.
        before: the first message that is not copied.
        keeps_prefix: its requests begin with the bytes of those of `source`, so that a provider has them in its cache:
            with the same prefix, and rows as they are shown there.
    Raises: NotFound; InvalidInput: `upto` is in another conversation.
    """
    agent_id = source.agent_id
    tx.agents.lock(agent_id)
    source = tx.conversations.get_state(agent_id, source.seq).conversation
    last = NEWEST if upto is None else _place(tx, source, upto)
    if before is not None:
        last = min(last, _place(tx, source, before) - 1)
    current = None if source.prefix_seq is None else tx.prefixes.get(agent_id, source.prefix_seq)
    rows: list[Message] = []
    nodes: list[SummaryNode] = []
    from_seq = source.first_seq
    if current is not None and last >= current.from_message_seq:
        from_seq = current.from_message_seq
        rows += tx.messages.list_by_seqs(agent_id, current.pinned) if current.pinned else ()
        nodes += tx.nodes.list_by_seqs(agent_id, source.seq, current.nodes)
    rows += without_open_calls(tx.messages.view(agent_id, source.seq, from_seq=from_seq, upto_seq=last))
    tokens = [row_tokens(row, source.stubs if keeps_prefix else {}, inputs.counter) for row in rows]
    settings = {name: value for name, value in source.settings.items() if name != EPHEMERAL}
    made = tx.conversations.add(agent_id, conversation_id, at=inputs.now, settings=settings, hidden=hidden)
    author = Author(kind="system", id="fork")
    blocks = copy_isolated(tx, agent_id, source.seq, made.seq, inputs.ids, author=author, at=inputs.now)
    brought = tx.sources.list_by_messages(agent_id, [row.seq for row in rows])
    shown = [apply_stubs(row, source.stubs) for row in rows] if keeps_prefix else rows
    drafts = [_copy(row, inputs, brought.get(row.seq, ())) for row in shown]
    copies = tx.messages.append((agent_id, made.seq), drafts, tokens, at=inputs.now)
    stubs = {copy.seq: source.stubs[row.seq] for row, copy in zip(rows, copies, strict=True) if row.seq in source.stubs}
    if copies:
        _keep_earlier_sources(tx, source, made, copies[0], upto=rows[-1].seq)
    first_seq = copies[0].seq if copies else tx.messages.next_seq(agent_id)
    if keeps_prefix and current is not None:
        _begin_with_prefix(tx, made, current, nodes, first_seq)
        stubs = {}
    elif nodes:
        _begin_with_summary(tx, made, nodes, first_seq, inputs)
    if source.seen:  # the copies show these versions, so later ones are said behind them
        tx.conversations.put_seen_versions(agent_id, made.seq, _seen_by_copy(tx, source, blocks))
    if stubs:
        view_tokens = tx.conversations.get_by_seq(agent_id, made.seq).view_tokens
        tx.conversations.put_view(agent_id, made.seq, view_tokens=view_tokens, stubs=stubs, overcount=0)
    renew_system_message(tx, agent_id, made.seq, inputs)
    return tx.conversations.get(conversation_id)


def _keep_earlier_sources(tx: Tx, source: Conversation, made: Conversation, first: Message, *, upto: int) -> None:
    """Note with the `first` copied row of the new conversation `made` which outside sources the original had in its
    context besides its rows up to `upto`: behind summaries, or recalled."""
    earlier = context_sources(tx, source.agent_id, source.seq, before_seq=upto + 1)
    sources = tuple(one.source for one in earlier)
    tx.sources.add_to_message(source.agent_id, made.seq, first.seq, sources, recalled=True)


def _place(tx: Tx, source: Conversation, message_id: MessageId) -> int:
    """Return the number of a message of the conversation; -1 for its system message, which is before all others.
    Raises: NotFound, InvalidInput."""
    agent_id, seq = tx.messages.place(message_id)
    is_own = agent_id == source.agent_id
    if is_own and seq >= 0:
        found = tx.messages.list_by_seqs(agent_id, [seq])
        is_own = bool(found) and found[0].conversation_seq == source.seq
    if not is_own:
        raise InvalidInput(f"message_id: {message_id} is not in view of conversation {source.id}")
    return seq


def _seen_by_copy(tx: Tx, source: Conversation, blocks: Mapping[str, BlockId]) -> dict[str, int]:
    """Return the block versions that a fork's log shows: the source's, with copies in place of isolated blocks (id ->
    id of the copy). A block edited since the source saw it is left out, so that the fork is told of the edit."""
    seen = {key: version for key, version in source.seen.items() if key not in blocks}
    for block_id, copy in blocks.items():
        if source.seen.get(block_id) == tx.blocks.get(BlockId(block_id)).version:
            seen[copy] = tx.blocks.get(copy).version
    return seen


def _copy(row: Message, inputs: UnitInputs, sources: Sequence[MessageSource]) -> Draft:
    """Return a row as a new one, of no run, with its sources."""
    return Draft(
        id=MessageId(inputs.ids.new("message")),
        role=row.role,
        parts=row.parts,
        kind=row.kind,
        name=row.name,
        sender_id=row.sender_id,
        occurred_at=row.occurred_at,
        sources=tuple(source.source for source in sources),
    )


def _begin_with_summary(
    tx: Tx, made: Conversation, nodes: Sequence[SummaryNode], first_seq: int, inputs: UnitInputs
) -> None:
    """Give the new conversation a prefix with copies of these summaries, before its row `first_seq`."""
    opening = tx.conversations.get_state(made.agent_id, made.seq)
    memory = read_memory(tx, opening)
    copies = [tx.nodes.add(replace(node, conversation_seq=made.seq, children=())) for node in nodes]
    compiled = compile_prefix(
        tx, opening.agent, opening.conversation, memory, inputs, reason="fork", from_seq=first_seq, nodes=copies
    )
    store_prefix(tx, opening.conversation, memory, compiled)


def _begin_with_prefix(
    tx: Tx, made: Conversation, current: Prefix, nodes: Sequence[SummaryNode], first_seq: int
) -> None:
    """Give the new conversation the prefix of its source, before its row `first_seq`. The pinned rows are among its
    own, and the summaries have their numbers, by which the text names them."""
    memory = read_memory(tx, tx.conversations.get_state(made.agent_id, made.seq))
    for node in nodes:
        tx.nodes.add(replace(node, conversation_seq=made.seq, children=()), keeps_number=True)
    prefix = replace(
        current, conversation_seq=made.seq, reason="fork", from_message_seq=first_seq, pinned=(), changes=()
    )
    store_prefix(tx, made, memory, prefix)


async def import_drafts(agent_id: AgentId, conversation_seq: int, drafts: Sequence[Draft], ports: Ports) -> ImportCount:
    """Add the messages that are not there yet, in one transaction; then make room in the view. Raises: NotFound,
    ConversationBusy, ApprovalPending, StoreError: none of them was added."""
    tokens = await asyncio.to_thread(_count_tokens, drafts, ports)
    added = await ports.store.write(_add, agent_id, conversation_seq, drafts, tokens, at=ports.clock.now())
    if added.new:
        await make_room(agent_id, conversation_seq, ports)
    return added


async def import_waiting(
    agent_id: AgentId, conversation_seq: int, drafts: Sequence[Draft], ports: Ports, max_steps: int
) -> None:
    """Add an answer whose calls still wait, and the results of its other calls, as a run that stopped there. Raises:
    NotFound, ConversationBusy, ApprovalPending, StoreError."""
    tokens, inputs = await asyncio.to_thread(_count_tokens, drafts, ports), ports.inputs()

    def add(tx: Tx) -> None:
        """Add the answer, its results and the run that stopped at it."""
        opening = _open(tx, agent_id, conversation_seq)
        run = tx.runs.add(opening, RunId(inputs.ids.new("run")), at=inputs.now, max_steps=max_steps, running=True)
        tools = tools_of(tx, run)
        waits: dict[str, Waits] = {
            **dict.fromkeys(write_waits(tx, run, tools), "approval"),
            **waits_by_tool(tools, opening.agent.settings),
        }
        rows = tx.messages.append(run, [_waiting(draft, waits, inputs.now) for draft in drafts], tokens, at=inputs.now)
        events: list[Event] = [RunQueued(run.id), *(MessageAdded(row.seq, row) for row in rows)]
        end_run(tx, run_log_of(tx, run), EndRun("requires_approval"), events, inputs)

    await ports.store.write(add)


def _waiting(draft: Draft, waits: Mapping[str, Waits], at: datetime) -> Draft:
    """Return an imported message whose calls wait as before, or for whom `waits` (tool -> for whom) says."""
    parts = [
        replace(part, awaits=part.awaits or waits.get(part.name)) if isinstance(part, ToolCall) else part
        for part in draft.parts
    ]
    return as_imported(replace(draft, parts=tuple(parts)), at)


def _add(
    tx: Tx, agent_id: AgentId, conversation_seq: int, drafts: Sequence[Draft], tokens: Sequence[int], *, at: datetime
) -> ImportCount:
    """Add the messages that are not there yet. Raises: NotFound, ConversationBusy, ApprovalPending."""
    _open(tx, agent_id, conversation_seq)
    return add_imported(tx, agent_id, conversation_seq, drafts, tokens, at=at)


def _open(tx: Tx, agent_id: AgentId, conversation_seq: int) -> ConversationState:
    """Lock the agent, and return the conversation's state, checked to take messages. Raises: NotFound,
    ConversationBusy, ApprovalPending."""
    tx.agents.lock(agent_id)
    return check_idle(tx, agent_id, conversation_seq, what="import messages")


def import_in_unit(
    tx: Tx, agent_id: AgentId, conversation_seq: int, drafts: Sequence[Draft], inputs: UnitInputs
) -> bool:
    """Add the messages that are not there yet, in a transaction that does more; return whether `make_room` has to
    follow it. Raises: NotFound, ConversationBusy, ApprovalPending."""
    tokens = [input_tokens(draft.role, text_of(draft.parts), inputs.counter) for draft in drafts]
    opening = _open(tx, agent_id, conversation_seq)
    add_imported(tx, agent_id, conversation_seq, drafts, tokens, at=inputs.now)
    return not _fits_by_far(opening.agent, opening.conversation.view_tokens + sum(tokens), inputs)


def _fits_by_far(agent: Agent, view_tokens: int, inputs: UnitInputs) -> bool:
    """Return whether a view of so many tokens takes less than half of the agent's window."""
    window, reserve = inputs.window(agent)
    return 2 * view_tokens <= window - reserve


def _count_tokens(drafts: Sequence[Draft], ports: Ports) -> list[int]:
    """Return the upper estimate of each message."""
    return [input_tokens(draft.role, text_of(draft.parts), ports.counter) for draft in drafts]


async def make_room(agent_id: AgentId, conversation_seq: int, ports: Ports) -> None:
    """Take the oldest rows out of the view until it fits, or nothing more can leave."""
    while True:
        inputs = ports.inputs()
        state = await ports.store.read(_load_if_full, agent_id, conversation_seq, inputs)
        removal = None if state is None else await asyncio.to_thread(_plan, state, inputs)
        if state is None or removal is None:
            return
        summary: Summary | None = None
        if isinstance(removal, Merge) or removal.atoms:
            text = await asyncio.to_thread(extract_summary, removal, ports.counter)
            summary = Summary(text, "fallback")
        if not await ports.store.write(_store_plan, state, removal, summary, inputs):
            return


def _load_if_full(tx: Tx, agent_id: AgentId, conversation_seq: int, inputs: UnitInputs) -> RequestPreview | None:
    """Load the view of the next request, if it is larger than the window; None: it fits."""
    opening = tx.conversations.get_state(agent_id, conversation_seq)
    if _fits_by_far(opening.agent, opening.conversation.view_tokens, inputs):
        return None
    state = preview(tx, opening.agent, opening.conversation, inputs)
    return None if state.certificate.fits else state


def _plan(state: RequestPreview, inputs: UnitInputs) -> Evict | Merge | None:
    """Plan the next step that makes room; None if the view cannot become smaller."""
    # Rows are not shortened: all but the newest message may leave as a whole.
    situation = state.situation(inputs.counter, can_open=False)
    try:
        removal = plan(situation)
    except IrreducibleFloor:
        return None  # the next run reports it, if it is still so
    return removal if isinstance(removal, (Evict, Merge)) else None


def _store_plan(
    tx: Tx, state: RequestPreview, removal: Evict | Merge, summary: Summary | None, inputs: UnitInputs
) -> bool:
    """Carry out the plan. Returns False if the conversation has changed since; its next run then makes room itself."""
    agent_id, planned = state.agent.id, state.conversation
    tx.agents.lock(agent_id)
    now = tx.conversations.get_by_seq(agent_id, planned.seq)
    if now != planned or tx.runs.find_active(agent_id, planned.seq) is not None:
        return False
    compact_view(tx, state, removal, summary, inputs, trigger="import", reason="import")
    return True
