"""Forks: a new conversation that begins with what another one has in view.

The rows are copied, so that each of the two can be compacted, reset and deleted without the other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from perdure.context.retrieval.stubs import row_tokens
from perdure.core.blocks import Author
from perdure.core.conversations import EPHEMERAL, Conversation
from perdure.core.errors import InvalidInput
from perdure.core.ids import BlockId, ConversationId, MessageId
from perdure.core.messages import Draft, Message
from perdure.core.nodes import SummaryNode
from perdure.core.provenance.sources import MessageSource
from perdure.domain.blocks.units import copy_isolated
from perdure.domain.provenance.context import context_sources
from perdure.engine.ports import UnitInputs
from perdure.engine.run.prefixes import (
    compile_prefix,
    read_memory,
    store_prefix,
)
from perdure.engine.run.preview import without_open_calls
from perdure.engine.run.rows import NEWEST
from perdure.engine.run.system_messages import renew_system_message
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
) -> Conversation:
    """Add a conversation with a copy of what `source` has in view, and with its settings.

    Calls that are still open are left out, with all that follows them.

    Args:
        upto: the last message to copy; None: all of them. One out of view brings the messages before it, whole.
        before: the first message that is not copied.
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
    settings = {name: value for name, value in source.settings.items() if name != EPHEMERAL}
    made = tx.conversations.add(agent_id, conversation_id, at=inputs.now, settings=settings, hidden=hidden)
    author = Author(kind="system", id="fork")
    blocks = copy_isolated(tx, agent_id, source.seq, made.seq, inputs.ids, author=author, at=inputs.now)
    brought = tx.sources.list_by_messages(agent_id, [row.seq for row in rows])
    drafts = [_copy(row, inputs, brought.get(row.seq, ())) for row in rows]
    tokens = [row_tokens(row, {}, inputs.counter) for row in rows]
    copies = tx.messages.append((agent_id, made.seq), drafts, tokens, at=inputs.now)
    stubs = {copy.seq: source.stubs[row.seq] for row, copy in zip(rows, copies, strict=True) if row.seq in source.stubs}
    if copies:
        _keep_earlier_sources(tx, source, made, copies[0], upto=rows[-1].seq)
    if nodes:
        first_seq = copies[0].seq if copies else tx.messages.next_seq(agent_id)
        _begin_with_summary(tx, made, nodes, first_seq, inputs)
    if source.seen:  # the copies show these versions, so later ones are said behind them
        tx.conversations.put_seen_versions(agent_id, made.seq, _seen_by_copy(tx, source, blocks))
    if stubs:
        view_tokens = tx.conversations.get_by_seq(agent_id, made.seq).view_tokens
        tx.conversations.put_view(agent_id, made.seq, view_tokens=view_tokens, stubs=stubs, overcount=0)
    renew_system_message(tx, agent_id, made.seq, inputs)
    return tx.conversations.get(conversation_id)


def _keep_earlier_sources(tx: Tx, source: Conversation, made: Conversation, first: Message, *, upto: int) -> None:
    """Note what the source has in its context beside its rows, behind summaries or recalled, with the first copy."""
    earlier = context_sources(tx, source.agent_id, source.seq, before_seq=upto + 1)
    sources = tuple(one.source for one in earlier)
    tx.sources.add_to_message(source.agent_id, made.seq, first.seq, sources, recalled=True)


def _place(tx: Tx, source: Conversation, message_id: MessageId) -> int:
    """The number of a message of the conversation; its system message is before all others. Raises: NotFound,
    InvalidInput."""
    agent_id, seq = tx.messages.place(message_id)
    is_own = agent_id == source.agent_id
    if is_own and seq >= 0:
        found = tx.messages.list_by_seqs(agent_id, [seq])
        is_own = bool(found) and found[0].conversation_seq == source.seq
    if not is_own:
        raise InvalidInput(f"message_id: {message_id} is not in view of conversation {source.id}")
    return seq


def _seen_by_copy(tx: Tx, source: Conversation, blocks: Mapping[str, BlockId]) -> dict[str, int]:
    """What the source has seen, with the copies of its own blocks, but for those with an edit it has not seen."""
    seen = {key: version for key, version in source.seen.items() if key not in blocks}
    for block_id, copy in blocks.items():
        if source.seen.get(block_id) == tx.blocks.get(BlockId(block_id)).version:
            seen[copy] = tx.blocks.get(copy).version
    return seen


def _copy(row: Message, inputs: UnitInputs, brought: Sequence[MessageSource]) -> Draft:
    """The row as a new one, of no run."""
    return Draft(
        id=MessageId(inputs.ids.new("message")),
        role=row.role,
        parts=row.parts,
        kind=row.kind,
        name=row.name,
        sender_id=row.sender_id,
        occurred_at=row.occurred_at,
        sources=tuple(one.source for one in brought),
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
