"""The sources in the context of a write, and those of what searches find.

A write may come from all that the request showed which brought its call: the rows of the view, and, where a summary
stands before them, everything that the conversation said before, for the summary covers it. Memory blocks are not
looked at: they keep their label where they are shown to people, and reading one taints nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from perdure.core.blocks import WORKING_CHECKPOINT, Block, BlockVersion
from perdure.core.conversations import Conversation
from perdure.core.events import MemoryRecalled
from perdure.core.features import Point
from perdure.core.ids import AgentId, ArchiveId, MessageId, PassageId
from perdure.core.messages import Message
from perdure.core.passages import Passage
from perdure.core.sources import SOURCES_MAX, TRUST_LABELS, TRUSTED, MemoryWrite, Source, WriteSource, write_sources
from perdure.domain.texts import keepers
from perdure.storage.tx import Tx

VERSIONS_PER_PAGE = 8
"""How many versions of a block are read at once: the newest is nearly always its agent's."""

PASSAGE_SOURCE: Point[[Tx, Passage], Source | None] = Point("passage_source")
"""What a passage is a part of, such as a file."""


def context_sources(
    tx: Tx, agent_id: AgentId, conversation_seq: int, *, before_seq: int, everything: bool = False
) -> tuple[WriteSource, ...]:
    """Return the sources in the context of the message `before_seq`; `everything`: also of earlier contexts."""
    conversation = tx.conversations.get_by_seq(agent_id, conversation_seq)
    entered = tx.sources.list_by_conversation(
        agent_id, conversation_seq, from_seq=conversation.first_seq, before_seq=before_seq
    )
    if entered and not everything:
        first_seq, pinned = _first_in_context(tx, conversation)
        entered = [one for one in entered if one.seq >= first_seq or one.seq in pinned]
    return write_sources(entered)


def _first_in_context(tx: Tx, conversation: Conversation) -> tuple[int, Sequence[int]]:
    """Return (the number of the first message in the context, the numbers of pinned messages before it)."""
    if conversation.prefix_seq is None:
        return conversation.first_seq, ()
    prefix = tx.prefixes.get(conversation.agent_id, conversation.prefix_seq)
    return (conversation.first_seq if prefix.summary else prefix.from_message_seq), prefix.pinned


def range_sources(
    tx: Tx, agent_id: AgentId, conversation_seqs: Iterable[int], *, from_seq: int, upto_seq: int
) -> tuple[Source, ...]:
    """Return the sources of the messages [`from_seq`, `upto_seq`] of these conversations, the least trusted first."""
    entered = [
        one
        for seq in conversation_seqs
        for one in tx.sources.list_by_conversation(agent_id, seq, from_seq=from_seq, before_seq=upto_seq + 1)
    ]
    return tuple(source.source for source in write_sources(entered))


def sources_of_messages(tx: Tx, messages: Sequence[Message]) -> tuple[Source, ...]:
    """Return the sources of these messages: those that they brought and, for the agent's messages, all that had entered
    the conversation before. Raises: NotFound."""
    return tuple(dict.fromkeys(source for found in sources_by_message(tx, messages).values() for source in found))


def sources_by_message(tx: Tx, messages: Sequence[Message]) -> Mapping[MessageId, Sequence[Source]]:
    """Return id of a message -> its sources, as `sources_of_messages` says. Raises: NotFound."""
    by_line: dict[tuple[AgentId, int], list[Message]] = {}
    for message in messages:
        by_line.setdefault((message.agent_id, message.conversation_seq), []).append(message)
    found: dict[MessageId, Sequence[Source]] = {message.id: () for message in messages}
    for (agent_id, conversation_seq), rows in by_line.items():
        brought = tx.sources.list_by_messages(agent_id, [row.seq for row in rows])
        before: Mapping[Source, int] | None = {}
        if before_seq := max((row.seq for row in rows if row.role == "assistant"), default=0):
            first_seq = tx.conversations.get_by_seq(agent_id, conversation_seq).first_seq
            before = tx.sources.list_first(
                agent_id, conversation_seq, from_seq=first_seq, before_seq=before_seq, most=SOURCES_MAX
            )
        for row in rows:
            earlier: Iterable[Source] = ()
            if row.role == "assistant" and before is None:  # too many to be read at once
                entered = context_sources(tx, agent_id, conversation_seq, before_seq=row.seq, everything=True)
                earlier = (one.source for one in entered)
            elif row.role == "assistant" and before is not None:
                earlier = (source for source, seq in before.items() if seq < row.seq)
            found[row.id] = list(dict.fromkeys((*(one.source for one in brought.get(row.seq, ())), *earlier)))
    return found


def writes_of_passages(tx: Tx, passages: Sequence[Passage]) -> Mapping[str, MemoryWrite]:
    """Return id of a passage -> its write, of those passages whose sources are known."""
    by_archive: dict[ArchiveId, list[str]] = {}
    for passage in passages:
        by_archive.setdefault(passage.archive_id, []).append(passage.id)
    found = (write for archive_id, ids in by_archive.items() for write in tx.sources.list_by_refs(archive_id, ids))
    return {write.ref: write for write in found}


def with_sources(tx: Tx, passages: Sequence[Passage]) -> list[Passage]:
    """Return these passages with the sources of their writes in `sources`."""
    writes = writes_of_passages(tx, passages)
    return [replace(one, sources=writes[one.id].sources) if one.id in writes else one for one in passages]


def sources_of_passages(tx: Tx, passages: Sequence[Passage]) -> tuple[Source, ...]:
    """Return the untrusted sources of these passages: those they were written from, and the files they are parts of."""
    writes = writes_of_passages(tx, passages).values()
    found = dict.fromkeys(source.source for write in writes for source in write.sources if not source.source.is_trusted)
    for passage in passages:
        if whole := [one for find in PASSAGE_SOURCE.functions if (one := find(tx, passage)) is not None]:
            found |= dict.fromkeys(whole)
        elif passage.source.get("type") in TRUST_LABELS and passage.source["type"] not in TRUSTED:
            found[Source.of(passage.source["type"], str(passage.source.get("url") or passage.id))] = None
    return tuple(found)


def recalled_sources(tx: Tx, event: MemoryRecalled) -> tuple[Source, ...]:
    """Return the untrusted sources of the texts that automatic recall added to a request, by its event."""
    ids: dict[str, list[str]] = {}
    for shown in event.sources:
        ids.setdefault(shown["kind"], []).append(shown["id"])
    found = passage_sources(tx, [PassageId(id_) for id_ in ids.get("passage", ())])
    messages = tx.messages.find_existing([MessageId(id_) for id_ in ids.get("turn", ())])
    by_agent: dict[AgentId, list[int]] = {}
    for agent_id, seq in map(tx.messages.place, sorted(messages)):
        by_agent.setdefault(agent_id, []).append(seq)
    for agent_id, seqs in by_agent.items():
        found += sources_of_messages(tx, tx.messages.list_by_seqs(agent_id, seqs))
    for keeper in keepers():
        if keeper.kind in ids:
            found += tuple(keeper.list_sources(tx, ids[keeper.kind]))
    return tuple(dict.fromkeys(found))


def sources_of_notes(tx: Tx, agent_id: AgentId, conversation_seq: int) -> tuple[Source, ...]:
    """Return the untrusted sources of a conversation's working notes: all that were in the context when the agent wrote
    the notes last, older notes included. Later versions by others, such as a correction of one word, remove none."""
    block = tx.blocks.find(agent_id, WORKING_CHECKPOINT, conversation_seq)
    return () if block is None else sources_of_block(tx, block)


def sources_of_block(tx: Tx, block: Block) -> tuple[Source, ...]:
    """Return the untrusted sources of a block that its agent always rewrites as a whole: those of the agent's newest
    version, and of later versions by others."""
    refs: list[str] = []
    for version in _versions(tx, block):
        if not version.value.strip():
            break
        refs.append(str(version.version))
        if version.author.kind == "agent":
            break
    writes = tx.sources.list_by_refs(block.id, refs) if refs else ()
    return tuple(dict.fromkeys(one.source for write in writes for one in write.sources if not one.source.is_trusted))


def _versions(tx: Tx, block: Block) -> Iterator[BlockVersion]:
    """Yield the versions of a block, newest first."""
    page = tx.blocks.versions(block.id, limit=VERSIONS_PER_PAGE)
    while page:
        yield from page
        page = tx.blocks.versions(block.id, limit=VERSIONS_PER_PAGE, before=page[-1].version)


def captured_sources(tx: Tx, messages: Sequence[Message]) -> tuple[WriteSource, ...]:
    """Return the sources of a passage made of these messages, each with the first message that has it."""
    found = sources_by_message(tx, messages)
    ids = {source: message.id for message in reversed(messages) for source in found[message.id]}
    return sort_captured(ids)


def sort_captured(ids: Mapping[Source, MessageId]) -> tuple[WriteSource, ...]:
    """Return the sources of a write, the least trusted first, from source -> the message that brought it."""
    ordered = sorted(ids, key=lambda source: -TRUST_LABELS.index(source.label))
    return tuple(WriteSource(source, (ids[source],)) for source in ordered)


def passage_sources(tx: Tx, passage_ids: Sequence[PassageId]) -> tuple[Source, ...]:
    """Return the untrusted sources of the passages with these ids that exist."""
    places = tx.passages.find_places(passage_ids)
    passages = [
        passage
        for archive_id in dict.fromkeys(archive for archive, _ in places.values())
        for passage in tx.passages.list_by_seqs(
            archive_id, [seq for archive, seq in places.values() if archive == archive_id]
        )
    ]
    return sources_of_passages(tx, passages)
