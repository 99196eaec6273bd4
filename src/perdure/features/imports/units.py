"""Units of work of imports: what is here already, branches that their source has left, and memories."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Literal

from perdure.core.agents import Agent
from perdure.core.conversations import Conversation
from perdure.core.errors import ConversationBusy, NotFound
from perdure.core.ids import AgentId, ArchiveId, ConversationId, MessageId, PassageId, derived_id, is_id
from perdure.core.messages import Message, Text
from perdure.core.passages import Passage
from perdure.core.sources import Source
from perdure.domain.agents.units import COMPANIONS, update_agent
from perdure.domain.archives.passages import delete_passage, own_archive, update_passage
from perdure.domain.conversations.importing import IMPORTED, ImportedMessage, message_ids
from perdure.domain.conversations.transfer import import_passages
from perdure.domain.conversations.units import SUMMARY_CHARS
from perdure.domain.corrections import MEMORY_CORRECTED, put_block_value
from perdure.domain.texts import TEXTS_DELETED, keepers
from perdure.engine.compaction.revise import revise_nodes
from perdure.engine.conversations.edit import recount_view
from perdure.engine.ports import UnitInputs
from perdure.engine.prompt.system_messages import renew_system_message
from perdure.features.imports.common.tables import MOVED, ImportedItems
from perdure.features.imports.common.values import AUTHOR
from perdure.features.imports.sources.items import ImportSource, SourceConversation
from perdure.features.imports.sources.plain import hash_of
from perdure.storage.tx import Tx

WITHDRAWN, FACTS, SAID, TITLE = "withdrawn", "facts ", "said ", "title "
"""What is noted of messages and pieces of memories that the source has left, of memories and conversations that were to
be read for facts, and of conversations: the digests of all texts, and of the title."""
DIGEST = "digest"
"""Where the source of a passage has the digest of the text that was imported."""
PAGE = 500


@dataclass(frozen=True, slots=True)
class ImportState:
    """The state of a source's conversation here: `done` (complete) or `deleted` by a person; how many messages are
    `new`, or `withdrawn` (imported, but gone from the source). `messages`: the source's, with their ids here.
    `renamed`: it has a new title at the source, and still the imported one here."""

    state: Literal["new", "open", "done", "deleted"]
    new: int = 0
    withdrawn: int = 0
    messages: Sequence[ImportedMessage] = ()
    renamed: bool = False


def id_of(
    kind: Literal["conversation", "passage"], owners: Sequence[AgentId], source: ImportSource, key: str, piece: int = 1
) -> str:
    """Return the id of a conversation or memory of a source, or of a piece of a long one, in the last of `owners`; the
    agents before it had the item earlier, one after the other."""
    found = derived_id(kind, owners[0], "import", source, key, *([] if piece == 1 else ["piece", str(piece)]))
    return (
        found
        if len(owners) == 1
        else derived_id(kind, owners[-1], "import", "jsonl", id_of(kind, owners[:-1], source, key, piece))
    )


def find_agent(tx: Tx, key: str, name: str | None) -> Agent | None:
    """Return the agent with a name or id; without one the agent that an import has made for this key."""
    if name is None:
        owner = tx.of(ImportedItems).find_owner(key)
        return None if owner is None else tx.agents.get(owner)
    with suppress(NotFound):
        return tx.agents.get(AgentId(name)) if is_id("agent", name) else tx.agents.find_by_name(name)
    return None


def note_moved(tx: Tx, agent_id: AgentId, chains: Sequence[Sequence[str]]) -> None:
    """Store that an agent takes over what the first agent of each chain had, maybe through the next ones."""
    tx.of(ImportedItems).put(agent_id, {MOVED + " ".join(chain): "" for chain in chains})


def former_agents(tx: Tx, agent_id: AgentId) -> Sequence[Sequence[AgentId]]:
    """Return the agents whose exports were read into an agent, each with those before it."""
    return tx.of(ImportedItems).list_moved(agent_id)


def _import_chains(tx: Tx, agent_id: AgentId) -> Sequence[tuple[AgentId, ...]]:
    """Return the chains of agents by which an item may have come here, oldest first; the shortest is this agent."""
    chains = former_agents(tx, agent_id)
    moved = [(*reversed(chain[:count]), agent_id) for chain in chains for count in range(1, len(chain) + 1)]
    return [*dict.fromkeys([(agent_id,), *moved])]


def find_conversation(
    tx: Tx, agent_id: AgentId, source: ImportSource, found: SourceConversation
) -> tuple[ConversationId, Sequence[ImportedMessage]]:
    """Return the id here of a source's conversation, and its messages with their ids here: those of the agent that
    first got it, if it came in exports."""
    ways = {ConversationId(id_of("conversation", way, source, found.id)): way for way in _import_chains(tx, agent_id)}
    known = tx.of(ImportedItems).find(agent_id, [*ways])
    own_id = next((id_ for id_ in ways if id_ in known), next(iter(ways)))
    messages = found.messages
    for count, owner in enumerate(ways[own_id][:-1], 1):
        there = ConversationId(id_of("conversation", ways[own_id][:count], source, found.id))
        ids = message_ids(owner, there, messages)
        messages = [replace(one, id=id_) for one, id_ in zip(messages, ids, strict=True)]
    return own_id, messages


def moved_passages(
    tx: Tx, agent_id: AgentId, source: ImportSource, pieces: Mapping[PassageId, tuple[str, int]]
) -> Mapping[PassageId, PassageId]:
    """Return which passages came here in exports: the id each would have (-> key and piece number) -> its id."""
    ways = _import_chains(tx, agent_id)[1:]
    ids = {id_of("passage", way, source, *piece): own for way in ways for own, piece in pieces.items()}
    return {ids[id_]: PassageId(id_) for id_ in tx.of(ImportedItems).find(agent_id, [*ids])}


def free_name(tx: Tx, name: str) -> str:
    """Return the name, with a number behind it if an agent has it."""
    number, free = 1, name
    while tx.agents.find_by_name(free) is not None:
        number += 1
        free = f"{name}-{number}"
    return free


def claim_agent(tx: Tx, made: AgentId, key: str, named: str | None, name: str, at: datetime) -> Agent:
    """Give an agent that is complete its name, and note it for this key; or return the one that another import has made
    meanwhile. Raises: NotFound, NameInvalid."""
    tx.agents.lock_names()  # other imports wait here
    if (there := find_agent(tx, key, named)) is not None:
        return there
    tx.of(ImportedItems).put(made, {key: ""})
    unfinished, name = tx.agents.get(made).name, free_name(tx, name)
    for companion in [one for some in COMPANIONS(tx, made) for one in some]:  # named after it, also in a block
        own = tx.agents.get(companion).name.replace(unfinished, name)
        update_agent(tx, companion, {"name": free_name(tx, own)}, author=AUTHOR, at=at)
        for block in tx.blocks.list_by_agent(companion):
            if unfinished in block.value:
                put_block_value(tx, block.id, block.value.replace(unfinished, name), author=AUTHOR, at=at)
    return update_agent(tx, made, {"name": name}, author=AUTHOR, at=at)


def is_own(tx: Tx, agent_id: AgentId, key: str) -> bool:
    """Return whether the conversation is the agent's own, of which an export was read back into the same agent."""
    try:
        return is_id("conversation", key) and tx.conversations.get(ConversationId(key)).agent_id == agent_id
    except NotFound:
        return False


def own_passages(tx: Tx, agent_id: AgentId, keys: Sequence[str]) -> set[str]:
    """Return which of these are the ids of passages that the agent has itself."""
    archives = {archive.id for archive in tx.archives.list_by_agent(agent_id)}
    return {id_ for id_, (owner, _) in tx.passages.find_places(list(map(PassageId, keys))).items() if owner in archives}


def put_conversation(
    tx: Tx,
    agent_id: AgentId,
    conversation_id: ConversationId,
    found: SourceConversation,
    source: ImportSource,
    inputs: UnitInputs,
    *,
    dry: bool,
) -> ImportState:
    """Create the conversation if it is new, and hide messages that its source no longer has; with `dry` only look.
    Return its state. Raises: ConversationBusy."""
    if not dry:
        tx.agents.lock(agent_id)
    ids = message_ids(agent_id, conversation_id, found.messages)
    noted = tx.of(ImportedItems).find(agent_id, [conversation_id, SAID + conversation_id])
    digest = noted.get(conversation_id)
    if digest is None:
        if not dry:
            _make_conversation(tx, agent_id, conversation_id, found, inputs)
        return ImportState("new", len({*ids} - tx.messages.find_existing(ids)), 0, found.messages)
    try:
        conversation = tx.conversations.get(conversation_id)
    except NotFound:
        return ImportState("deleted")
    renamed = _rename(tx, conversation, found, inputs, dry=dry)
    if digest == hash_of(*ids) and (
        not found.is_whole or noted.get(SAID + conversation_id) == _digest_of(found.messages)
    ):
        return ImportState("done", messages=found.messages, renamed=renamed)
    messages, left = _compare(tx, conversation, found, source)
    if left and not dry:
        if (busy := tx.runs.find_active(agent_id, conversation.seq)) is not None:
            raise ConversationBusy(busy.id)
        _withdraw(tx, agent_id, left, inputs)
    ids = message_ids(agent_id, conversation_id, messages)
    return ImportState("open", len({*ids} - tx.messages.find_existing(ids)), len(left), messages, renamed)


def _rename(tx: Tx, conversation: Conversation, found: SourceConversation, inputs: UnitInputs, *, dry: bool) -> bool:
    """Give a conversation its source's new title, if it still has the imported one, and note that; return whether the
    title changes. With `dry` change nothing."""
    key, title, old = TITLE + conversation.id, _title(found), hash_of(conversation.summary or "")
    digest = hash_of(title or "")
    known = tx.of(ImportedItems).find(conversation.agent_id, [key]).get(key)
    is_new = title is not None and not found.is_first and known == old != digest
    if not dry and known != digest and (is_new or old == digest):
        tx.conversations.put(replace(conversation, summary=title), at=inputs.now)
        tx.of(ImportedItems).put(conversation.agent_id, {key: digest})
    return is_new


def _title(found: SourceConversation) -> str | None:
    """Return the title of a source's conversation, in the form that conversations have here."""
    return " ".join(found.title.split())[:SUMMARY_CHARS] or None


def _digest_of(messages: Sequence[ImportedMessage]) -> str:
    """Return a digest of the messages' texts."""
    return hash_of(*(message.text for message in messages))


def _make_conversation(
    tx: Tx, agent_id: AgentId, conversation_id: ConversationId, found: SourceConversation, inputs: UnitInputs
) -> None:
    """Make a conversation without messages, unless it is the agent's first one, and note it. Raises: NotFound."""
    if not found.is_first:
        at = found.created_at or min((message.occurred_at for message in found.messages), default=inputs.now)
        title = _title(found)
        made = tx.conversations.add(agent_id, conversation_id, at=at, summary=title)
        tx.of(ImportedItems).put(agent_id, {TITLE + conversation_id: hash_of(title or "")})
        if found.archived:
            tx.conversations.put(replace(made, archived_at=inputs.now), at=at)
        renew_system_message(tx, agent_id, made.seq, inputs)
    tx.of(ImportedItems).put(agent_id, {conversation_id: ""})


def _compare(
    tx: Tx, conversation: Conversation, found: SourceConversation, source: ImportSource
) -> tuple[Sequence[ImportedMessage], Sequence[Message]]:
    """Return the source's messages with their ids here; and imported messages that the source has no more."""
    if not found.is_whole:
        return found.messages, ()
    brought = {one.id: one for one in _imported_messages(tx, conversation, source)}
    messages = _with_new_ids(tx, conversation, found.messages, brought)
    wanted = {*message_ids(conversation.agent_id, conversation.id, messages)}
    return messages, [one for id_, one in brought.items() if id_ not in wanted]


def finish(
    tx: Tx,
    agent_id: AgentId,
    conversation_id: ConversationId,
    messages: Sequence[ImportedMessage],
    inputs: UnitInputs,
    *,
    facts: bool,
) -> None:
    """Note that a conversation is complete; have it read for `facts` or excluded from extraction. Raises: NotFound."""
    ids = message_ids(agent_id, conversation_id, messages)
    digest, noted = hash_of(*ids), tx.of(ImportedItems)
    before = noted.find(agent_id, [conversation_id, FACTS + conversation_id])
    if before.get(FACTS + conversation_id) != digest and (facts or before.get(conversation_id) != digest):
        IMPORTED(tx, agent_id, tx.conversations.get(conversation_id), {*ids}, facts, inputs.ids, inputs.now)
    noted.put(
        agent_id,
        {conversation_id: digest, SAID + conversation_id: _digest_of(messages)}
        | ({FACTS + conversation_id: digest} if facts else {}),
    )


def _with_new_ids(
    tx: Tx, conversation: Conversation, messages: Sequence[ImportedMessage], brought: Mapping[MessageId, Message]
) -> Sequence[ImportedMessage]:
    """Return the messages with another id for those that were withdrawn and are of the branch again, for what was
    removed from view stays removed; and for those that were `brought` with another text, and not changed here."""
    ids = message_ids(conversation.agent_id, conversation.id, messages)
    gone = tx.of(ImportedItems).find(conversation.agent_id, ids)
    found: list[ImportedMessage] = []
    for message, id_ in zip(messages, ids, strict=True):
        number, again = 1, message
        while id_ in gone or (id_ in brought and not brought[id_].revision and brought[id_].text != message.text):
            number += 1
            again = replace(message, id=f"{message.id or hash_of(message.text)}#{number}")
            (id_,) = message_ids(conversation.agent_id, conversation.id, [again])
            gone = {**gone, **tx.of(ImportedItems).find(conversation.agent_id, [id_])}
        found.append(again)
    return found


def _imported_messages(tx: Tx, conversation: Conversation, source: ImportSource) -> Sequence[Message]:
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
    """How many passages are `new`, are here `already`, of which so many are `changed` at the source, and are `deleted`
    by a person, so that they stay so."""

    new: int
    already: int
    changed: int
    deleted: int


def put_passages(
    tx: Tx, agent_id: AgentId, passages: Sequence[Passage], inputs: UnitInputs, *, facts: bool, dry: bool
) -> PassageCounts:
    """Add passages that were never imported, and update those whose text has changed at the source but not here; with
    `facts` have them read by extraction. With `dry` only count. Raises: NotFound, TooMany, InvalidInput."""
    by_id = {passage.id: passage for passage in passages}
    found, places = tx.of(ImportedItems).find(agent_id, [*by_id]), tx.passages.find_places([*by_id])
    known = {id_ for id_, digest in found.items() if digest != WITHDRAWN}
    new = [one for id_, one in by_id.items() if id_ not in known and id_ not in places]
    here = [tx.passages.get(id_) for id_ in by_id if id_ in places and DIGEST in by_id[id_].source]
    untouched = [one for one in here if one.source.get(DIGEST) == hash_of(one.text)]
    changed = [one for one in untouched if by_id[one.id].text != one.text]
    deleted = sum(id_ in known and id_ not in places for id_ in by_id)
    unread = {id_ for id_ in by_id if found.get(id_) != FACTS}
    if not dry and (new or changed or (facts and unread)):
        archive = own_archive(tx, agent_id, ArchiveId(inputs.ids.new("archive")), at=inputs.now)
        import_passages(tx, archive.id, new)
        for one in changed:
            update_passage(tx, one, {"text": by_id[one.id].text, "source": by_id[one.id].source}, at=inputs.now)
        IMPORTED(tx, agent_id, archive, unread, facts, inputs.ids, inputs.now)
        noted = (unread & {*places}) | {one.id for one in new} if facts else {one.id for one in new}
        tx.of(ImportedItems).put(agent_id, dict.fromkeys(noted, FACTS if facts else ""))
    return PassageCounts(len(new), len(passages) - len(new) - deleted, len(changed), deleted)


def drop_pieces(
    tx: Tx, agent_id: AgentId, source: ImportSource, counts: Mapping[str, int], *, at: datetime, dry: bool
) -> int:
    """Delete pieces that a memory no longer has at the source (key -> number of pieces), unless somebody has changed
    them here; return how many. With `dry` only count. Raises: NotFound."""
    dropped = 0
    while counts:
        numbers = {id_of("passage", (agent_id,), source, key, count + 1): key for key, count in counts.items()}
        known, places = (
            tx.of(ImportedItems).find(agent_id, [*numbers]),
            tx.passages.find_places([*map(PassageId, numbers)]),
        )
        for id_ in places:
            passage = tx.passages.get(id_)
            if id_ in known and passage.source.get(DIGEST) == hash_of(passage.text):
                dropped += 1
                if not dry:
                    delete_passage(tx, passage, at=at)
                    tx.of(ImportedItems).put(agent_id, {id_: WITHDRAWN})
        counts = {numbers[id_]: counts[numbers[id_]] + 1 for id_ in known}
    return dropped
