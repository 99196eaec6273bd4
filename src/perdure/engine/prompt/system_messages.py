"""The system messages of conversations: what clients are shown of the prompt, and its recompilation.

A conversation has one from its creation on. Whatever rewrites its prefix renews it (`prefixes.store_prefix`). An edit
of memory renews it too, while the model keeps its prefix and reads the edit in the log. Then only the versions of the
blocks are stored, and the text is rendered when it is read: few edits are ever looked at.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import replace

from perdure.context.sections.envelopes import text_for_clients
from perdure.context.sections.stubs import row_tokens
from perdure.core.blocks import Block
from perdure.core.conversations import ConversationState, SystemMessage, system_message_id
from perdure.core.errors import NotFound
from perdure.core.ids import AgentId, BlockId
from perdure.core.messages import Message
from perdure.core.runs import Prefix
from perdure.engine.estimates import overcount_behind
from perdure.engine.ports import UnitInputs
from perdure.engine.prompt.prefixes import (
    build_system_message,
    compile_prefix,
    current_prefix,
    read_memory,
    recompile_prefix,
    store_prefix,
)
from perdure.engine.records.rows import NEWEST
from perdure.storage.tx import Tx


def renew_system_message(tx: Tx, agent_id: AgentId, conversation_seq: int, inputs: UnitInputs) -> None:
    """Show clients the conversation's prompt with its present blocks. The model's next request stays as it is."""
    blocks = tx.blocks.list_versions(agent_id, conversation_seq)
    if tx.system_messages.renew(agent_id, conversation_seq, blocks, at=inputs.now):
        return
    conversation = tx.conversations.get_by_seq(agent_id, conversation_seq)
    message = SystemMessage(
        id=system_message_id(conversation.id),
        agent_id=agent_id,
        conversation_seq=conversation_seq,
        text="",
        blocks=blocks,
        compiled_at=inputs.now,
        created_at=inputs.now,
    )
    tx.system_messages.put(message)


def render_system_message(tx: Tx, message: SystemMessage, inputs: UnitInputs) -> Message:
    """Return the message as clients are shown it, with the blocks as they were when it was renewed."""
    if message.blocks is None:
        return message.as_message
    opening = tx.conversations.get_state(message.agent_id, message.conversation_seq)
    current = current_prefix(tx, opening.conversation, inputs)
    compiled = compile_prefix(
        tx,
        opening.agent,
        opening.conversation,
        read_memory(tx, opening),
        inputs,
        reason="recompile",
        from_seq=opening.conversation.first_seq,
        client_tools=current.client_tools if current else None,
        compiled_at=message.compiled_at,
        blocks=list(_blocks_at(tx, message.blocks)),
    )
    return replace(message, text=text_for_clients(compiled)).as_message


def _blocks_at(tx: Tx, versions: Mapping[str, int]) -> Iterator[Block]:
    """Yield the blocks at these versions (id -> version), without deleted ones."""
    for block_id, version in versions.items():
        with contextlib.suppress(NotFound):
            block = tx.blocks.get(BlockId(block_id))
            if block.version != version:
                before = tx.blocks.version(block.id, version)
                block = replace(block, label=before.label, value=before.value)
            yield block


def recompile(
    tx: Tx, agent_id: AgentId, conversation_seq: int, inputs: UnitInputs, *, dry_run: bool, keep_time: bool
) -> str:
    """Compile the conversation's prompt with its present memory, for its next request too, and return the text.

    Args:
        dry_run: only return it.
        keep_time: the text goes on to name the time of the last compilation.
    Raises: NotFound.
    """
    tx.agents.lock(agent_id)
    opening = tx.conversations.get_state(agent_id, conversation_seq)
    before = tx.system_messages.find(agent_id, conversation_seq) if keep_time else None
    compiled_at = inputs.now if before is None else before.compiled_at
    current = current_prefix(tx, opening.conversation, inputs)
    compiled = recompile_prefix(
        tx,
        opening.agent,
        opening.conversation,
        read_memory(tx, opening),
        inputs,
        current,
        reason="recompile",
        client_tools=current.client_tools if current else None,
        compiled_at=compiled_at,
    )
    message = build_system_message(opening.conversation, compiled, compiled_at)
    if not dry_run:
        if current is not None:
            _store(tx, opening, current, compiled, inputs)
        tx.system_messages.put(message)
    return message.text


def _store(tx: Tx, opening: ConversationState, current: Prefix, compiled: Prefix, inputs: UnitInputs) -> None:
    """Make `compiled` the prefix of the conversation's next request, before the same rows."""
    agent, conversation = opening.agent, opening.conversation
    prefix = store_prefix(tx, conversation, read_memory(tx, opening), compiled)
    rows = tx.messages.view(agent.id, conversation.seq, from_seq=prefix.from_message_seq, upto_seq=NEWEST)
    pinned = tx.messages.list_by_seqs(agent.id, prefix.pinned) if prefix.pinned else ()
    tx.conversations.put_view(
        agent.id,
        conversation.seq,
        view_tokens=sum(row_tokens(row, conversation.stubs, inputs.counter) for row in (*pinned, *rows)),
        stubs=conversation.stubs,
        overcount=overcount_behind(tx, agent, conversation, current, prefix, inputs.counter),
    )
