"""Units of work of imports: what is here already, branches that their source has left, and memories."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Literal

from perdure.core.blocks import Author
from perdure.core.conversations import Conversation
from perdure.core.errors import ConversationBusy, NotFound
from perdure.core.ids import AgentId, ArchiveId, ConversationId, MessageId, PassageId, derived_id, is_id
from perdure.core.messages import Message, Text
from perdure.core.passages import Passage
from perdure.core.sources import Source
from perdure.domain.archives.passages import own_archive, update_passage
from perdure.domain.conversations.importing import ImportedMessage, Importer
from perdure.domain.conversations.transfer import import_passages
from perdure.domain.conversations.units import SUMMARY_CHARS
from perdure.domain.corrections import MEMORY_CORRECTED
from perdure.domain.texts import TEXTS_DELETED, keepers
from perdure.engine.compaction.revise import revise_nodes
from perdure.engine.conversations.edit import recount_view
from perdure.engine.ports import UnitInputs
from perdure.engine.prompt.system_messages import renew_system_message
from perdure.features.imports.sources.items import ImportSource, SourceConversation, hash_of
from perdure.features.imports.tables import ImportedItems
from perdure.storage.tx import Tx

AUTHOR = Author(kind="system", id="import")
WITHDRAWN = "withdrawn"
DIGEST = "digest"
"""Where the source of a passage has the digest of the text that was imported."""
PAGE = 500


@dataclass(frozen=True, slots=True)
class Standing:
    """How a conversation of a source stands here: `done`, all of it is; `deleted`, a person has deleted it. `existing`:
    the ids of those of its messages that are here."""

    state: Literal["new", "open", "done", "deleted"]
    existing: frozenset[MessageId] = frozenset()


def conversation_id_of(agent_id: AgentId, source: ImportSource, key: str) -> ConversationId:
    """Return the id that a conversation of a source has here."""
    return ConversationId(derived_id("conversation", agent_id, "import", source, key))


def passage_id_of(agent_id: AgentId, source: ImportSource, key: str) -> PassageId:
    """Return the id that a memory of a source has here."""
    return PassageId(derived_id("passage", agent_id, "import", source, key))


def message_ids(
    agent_id: AgentId, conversation_id: ConversationId, messages: Sequence[ImportedMessage]
) -> list[MessageId]:
    """Return the ids that messages have in a conversation."""
    importer = Importer(agent_id, conversation_id)
    return [importer.draft(one).id for one in messages]


def first_conversation(tx: Tx, agent_id: AgentId) -> ConversationId:
    """Return the id of the agent's first conversation. Raises: NotFound."""
    return tx.conversations.get_by_seq(agent_id, 0).id


def is_own(tx: Tx, agent_id: AgentId, key: str) -> bool:
    """Return whether the conversation is the agent's own, of which an export was read back into the same agent."""
    try:
        return is_id("conversation", key) and tx.conversations.get(ConversationId(key)).agent_id == agent_id
    except NotFound:
        return False


def own_passages(tx: Tx, agent_id: AgentId, keys: Sequence[str]) -> set[str]:
    """Return which of these are the ids of passages that the agent has itself."""
    archives = {one.id for one in tx.archives.list_by_agent(agent_id)}
    return {id_ for id_, (owner, _) in tx.passages.find_places(list(map(PassageId, keys))).items() if owner in archives}


def look(tx: Tx, agent_id: AgentId, conversation_id: ConversationId, ids: Sequence[MessageId]) -> Standing:
    """Return how a conversation with these messages stands here."""
    digest = tx.of(ImportedItems).find(agent_id, [conversation_id]).get(conversation_id)
    if digest is None:
        return Standing("new", frozenset(tx.messages.find_existing(ids)))
    try:
        tx.conversations.get(conversation_id)
    except NotFound:
        return Standing("deleted")
    if digest == hash_of(*ids):
        return Standing("done", frozenset(ids))
    return Standing("open", frozenset(tx.messages.find_existing(ids)))


def begin(
    tx: Tx,
    agent_id: AgentId,
    conversation_id: ConversationId,
    found: SourceConversation,
    source: ImportSource,
    inputs: UnitInputs,
) -> tuple[Sequence[ImportedMessage], int]:
    """Make the conversation if need be, and take what its source has left since out of it. Return the messages with the
    ids under which they go into it, and how many were taken out. Raises: NotFound; ConversationBusy."""
    tx.agents.lock(agent_id)
    if conversation_id not in tx.of(ImportedItems).find(agent_id, [conversation_id]):
        if not found.is_first:
            at = found.created_at or min((one.occurred_at for one in found.messages), default=inputs.now)
            title = " ".join(found.title.split())[:SUMMARY_CHARS] or None
            made = tx.conversations.add(agent_id, conversation_id, at=at, summary=title)
            if found.archived:
                tx.conversations.put(replace(made, archived_at=inputs.now), at=at)
            renew_system_message(tx, agent_id, made.seq, inputs)
        tx.of(ImportedItems).put(agent_id, {conversation_id: ""})
        return found.messages, 0
    if not found.is_whole:
        return found.messages, 0
    conversation = tx.conversations.get(conversation_id)
    if (busy := tx.runs.find_active(agent_id, conversation.seq)) is not None:
        raise ConversationBusy(busy.id)
    messages = _returning(tx, conversation, found.messages)
    wanted = {*message_ids(agent_id, conversation_id, messages)}
    left = [one for one in _brought(tx, conversation, source) if one.id not in wanted]
    _withdraw(tx, agent_id, left, inputs)
    return messages, len(left)


def finish(tx: Tx, agent_id: AgentId, conversation_id: ConversationId, ids: Sequence[MessageId]) -> None:
    """Note that all messages of a conversation, with these ids, are here."""
    tx.of(ImportedItems).put(agent_id, {conversation_id: hash_of(*ids)})


def _returning(tx: Tx, conversation: Conversation, messages: Sequence[ImportedMessage]) -> Sequence[ImportedMessage]:
    """Return the messages, those that were withdrawn and are of the branch again with another id: what was removed from
    view stays removed."""
    ids = message_ids(conversation.agent_id, conversation.id, messages)
    gone = tx.of(ImportedItems).find(conversation.agent_id, ids)
    found: list[ImportedMessage] = []
    for message, id_ in zip(messages, ids, strict=True):
        number, again = 1, message
        while id_ in gone:
            number += 1
            again = replace(message, id=f"{message.id or hash_of(message.text)}#{number}")
            (id_,) = message_ids(conversation.agent_id, conversation.id, [again])
            gone = {**gone, **tx.of(ImportedItems).find(conversation.agent_id, [id_])}
        found.append(again)
    return found


def _brought(tx: Tx, conversation: Conversation, source: ImportSource) -> Sequence[Message]:
    """Return the messages in view that imports of this source have brought into a conversation."""
    rows: list[Message] = []
    after: int | None = None
    label = Source.of("import", source)
    while page := tx.messages.list(
        conversation.agent_id, conversation_seq=conversation.seq, after_seq=after, limit=PAGE
    ):
        after = page[-1].seq
        sources = tx.sources.list_by_messages(conversation.agent_id, [one.seq for one in page])
        rows += [one for one in page if any(each.source == label for each in sources.get(one.seq, ()))]
    return rows


def _withdraw(tx: Tx, agent_id: AgentId, rows: Sequence[Message], inputs: UnitInputs) -> None:
    """Take messages out of view, of searches, of summaries, and of what is known from them alone."""
    if not rows:
        return
    for row in rows:
        tx.messages.revise(row.id, None, author=AUTHOR, at=inputs.now)
        recount_view(tx, row, replace(row, parts=(Text(""),)), inputs)
    TEXTS_DELETED(tx, [row.id for row in rows], inputs.now)
    for keeper in keepers():
        keeper.erase_messages(tx, agent_id, [row.seq for row in rows], inputs.now)
    revise_nodes(tx, rows, inputs)
    MEMORY_CORRECTED(tx, agent_id)
    tx.of(ImportedItems).put(agent_id, dict.fromkeys((row.id for row in rows), WITHDRAWN))


@dataclass(frozen=True, slots=True)
class PassageCounts:
    """How many passages are `new`, are here `already`, and are `deleted` by a person, so that they stay so."""

    new: int
    already: int
    deleted: int


def put_passages(
    tx: Tx, agent_id: AgentId, passages: Sequence[Passage], new_id: ArchiveId, *, at: datetime, dry: bool
) -> PassageCounts:
    """Add the passages that were never imported, and change those whose text is another at the source since; with `dry`
    only count. Raises: NotFound, TooMany, InvalidInput."""
    ids = [one.id for one in passages]
    known, places = tx.of(ImportedItems).find(agent_id, ids), tx.passages.find_places(ids)
    new = [one for one in {one.id: one for one in passages}.values() if one.id not in known and one.id not in places]
    deleted = sum(id_ in known and id_ not in places for id_ in ids)
    counts = PassageCounts(len(new), len(ids) - len(new) - deleted, deleted)
    if dry:
        return counts
    if new:
        archive = own_archive(tx, agent_id, new_id, at=at)
        import_passages(tx, archive.id, new)
        tx.of(ImportedItems).put(agent_id, dict.fromkeys((one.id for one in new), ""))
    for passage in passages:
        if passage.id in known and passage.id in places and DIGEST in passage.source:
            with suppress(NotFound):
                here = tx.passages.get(passage.id)
                is_untouched = here.source.get(DIGEST) == hash_of(here.text)
                if is_untouched and here.source[DIGEST] != passage.source[DIGEST]:
                    update_passage(tx, here, {"text": passage.text, "source": passage.source}, at=at)
    return counts
