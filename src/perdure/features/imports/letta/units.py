"""Units of work of an import of a server: agents with their blocks, conversations, passages, and how far each is."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from typing import Any

from perdure.core.errors import NotFound
from perdure.core.ids import AgentId, ArchiveId, BlockId, ConversationId, Ids, MessageId, PassageId
from perdure.core.passages import Passage
from perdure.domain.agents.units import create_agent
from perdure.domain.archives.passages import own_archive
from perdure.domain.blocks.units import NewBlock, create_block, isolate_blocks, update_block
from perdure.domain.conversations.importing import IMPORTED
from perdure.domain.conversations.transfer import import_passages
from perdure.engine.ports import UnitInputs
from perdure.engine.prompt.system_messages import renew_system_message
from perdure.features.imports.common.tables import ImportedItems
from perdure.features.imports.common.values import AUTHOR
from perdure.features.imports.letta.agents import AgentPlan
from perdure.library.agents.agents import SET_COMPANION
from perdure.storage.tx import Tx


def agent_key(source_id: str) -> str:
    """Return the key by which an agent of the server is known here."""
    return f"letta agent {source_id}"


def find_blocks(tx: Tx, ids: Iterable[str]) -> Sequence[BlockId]:
    """Return which of these blocks are here."""
    found: list[BlockId] = []
    for id_ in map(BlockId, ids):
        with suppress(NotFound):
            found.append(tx.blocks.get(id_).id)
    return found


def make_agent(
    tx: Tx, source_id: str, plan: AgentPlan, blocks: Mapping[BlockId, NewBlock | None], ids: Ids, inputs: UnitInputs
) -> AgentId:
    """Make an agent, whose id is of `ids`, with its blocks (None: it is here), and note it; or return the one that
    another import has made meanwhile. Raises: InvalidInput, AlreadyExists, NotFound."""
    tx.agents.lock_names()  # other imports wait here
    if (there := tx.of(ImportedItems).find_owner(agent_key(source_id))) is not None:
        return there
    for id_, block in blocks.items():
        if block is not None:
            create_block(tx, id_, block, author=AUTHOR, at=inputs.now)
    agent = create_agent(tx, replace(plan.new, block_ids=(*blocks,)), ids=ids, author=AUTHOR, at=inputs.now)
    tx.of(ImportedItems).put(agent.id, {agent_key(source_id): "", **plan.notes})
    if plan.companion is not None:
        SET_COMPANION(tx, agent.id, plan.companion, AUTHOR, inputs)
    renew_system_message(tx, agent.id, 0, inputs)
    return agent.id


def make_conversation(
    tx: Tx,
    agent_id: AgentId,
    key: str,
    summary: str | None,
    settings: Mapping[str, Any],
    archived_at: datetime | None,
    blocks: Mapping[str, str],
    at: datetime,
    inputs: UnitInputs,
) -> ConversationId:
    """Make a conversation, and note it under `key`. `blocks`: label -> value of each block of the agent of
    which it has a copy of its own. Raises: AlreadyExists, NotFound."""
    tx.agents.lock(agent_id)
    id_ = ConversationId(inputs.ids.new("conversation"))
    made = tx.conversations.add(agent_id, id_, at=at, summary=summary, settings=settings)
    if archived_at is not None:
        tx.conversations.put(replace(made, archived_at=archived_at), at=at)
    labels = [block.label for block in tx.blocks.list_by_agent(agent_id) if block.label in blocks]
    isolate_blocks(tx, agent_id, made.seq, labels, inputs.ids, author=AUTHOR, at=inputs.now)
    for label, block_id in tx.blocks.list_isolated(agent_id, made.seq).items():
        if block_id is not None:
            limit = max(tx.blocks.get(block_id).limit_chars, len(blocks[label]))
            changes = {"value": blocks[label], "limit_chars": limit}
            update_block(tx, block_id, changes, author=AUTHOR, at=inputs.now)
    tx.of(ImportedItems).put(agent_id, {key: made.id})
    renew_system_message(tx, agent_id, made.seq, inputs)
    return made.id


def find_conversation(tx: Tx, agent_id: AgentId, conversation_id: str) -> ConversationId | None:
    """Return the id of a conversation of an agent; None: it was deleted."""
    with suppress(NotFound):
        found = tx.conversations.get(ConversationId(conversation_id))
        return found.id if found.agent_id == agent_id else None
    return None


def note_messages(
    tx: Tx,
    agent_id: AgentId,
    conversation_id: ConversationId,
    ids: Sequence[MessageId],
    notes: Mapping[str, str],
    inputs: UnitInputs,
) -> None:
    """Note how far a conversation was imported, and exclude it from extraction. Raises: NotFound."""
    if ids:
        IMPORTED(tx, agent_id, tx.conversations.get(conversation_id), {*ids}, False, inputs.ids, inputs.now)
    tx.of(ImportedItems).put(agent_id, notes)


def put_passages(
    tx: Tx,
    agent_id: AgentId,
    archive_id: ArchiveId | None,
    passages: Sequence[Passage],
    inputs: UnitInputs,
    *,
    dry: bool,
) -> int:
    """Store those passages in an archive, None: the agent's own, that were never imported and are nowhere here; with
    `dry` only count them. `agent_id`: empty: of an archive of no agent. Return how many. Raises: NotFound, TooMany,
    InvalidInput."""
    by_id = {passage.id: passage for passage in passages}
    known, places = tx.of(ImportedItems).find(agent_id, [*by_id]), tx.passages.find_places([*by_id])
    new = [one for id_, one in by_id.items() if id_ not in known and id_ not in places]
    if new and not dry:
        own = archive_id or own_archive(tx, agent_id, ArchiveId(inputs.ids.new("archive")), at=inputs.now).id
        import_passages(tx, own, new)
        if agent_id:
            IMPORTED(tx, agent_id, tx.archives.get(own), {one.id for one in new}, False, inputs.ids, inputs.now)
            tx.of(ImportedItems).put(agent_id, dict.fromkeys((PassageId(one.id) for one in new), ""))
    return len(new)
