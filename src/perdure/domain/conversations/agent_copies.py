"""What makes an agent's copy the same agent: read for an agent file, and given to the agent that is made of it."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from perdure.core.blocks import Author, check_limit
from perdure.core.conversations import MODEL, OPTIONS
from perdure.core.features import Point, feature_settings, find_features
from perdure.core.forgetting.corrections import Correction
from perdure.core.forgetting.redaction import REDACTED, Redactor
from perdure.core.ids import AgentId, ArchiveId, Ids, PassageId, derived_id
from perdure.core.messages import Message
from perdure.core.passages import Archive, Passage
from perdure.domain.agents.units import update_agent, without_own
from perdure.domain.archives.passages import check_passage, find_own_archive
from perdure.domain.conversations.copy_values import AgentCopy, BlockValue, ConversationCopy, HiddenText, OpenCallCopy
from perdure.domain.conversations.transfer import import_passages
from perdure.domain.conversations.units import DESCRIPTION, MODEL_SETTINGS
from perdure.domain.provenance.context import with_sources
from perdure.storage.tx import Tx


@dataclass(frozen=True, slots=True)
class FileRows:
    """The rows of an agent that an agent file holds.

    Args:
        turns: number of a conversation -> its messages of the user and the agent with text.
        passages: id in the file -> the passage.
        turns_read: number of a conversation -> how many of these turns a feature has read in the background.
    """

    turns: Mapping[int, Sequence[Message]]
    passages: Mapping[str, Passage]
    turns_read: Mapping[int, int] = field(default_factory=dict)


TURNS_READ: Point[[Tx, AgentId, int, Sequence[Message]], int] = Point("turns_read")
"""How many of these turns of a conversation a feature has read in the background."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyPart:
    """Data that a feature keeps for each agent, and how an agent file carries it to a copy of the agent.

    Args:
        name: the name of the data in agent files.
        kind: the type of the data, which JSON can hold.
        hide: takes a forgotten text out of the data in a file.
        copy: reads the data of an agent, given the rows that the file holds.
        restore: gives the data to a copy of the agent, given its rows, a source of ids and the time; returns what was
            left out, a sentence each.
    """

    name: str
    kind: Any
    hide: Callable[[Any, HiddenText], None]
    copy: Callable[[Tx, AgentId, FileRows], Any]
    restore: Callable[[Tx, AgentId, Any, FileRows, Ids, datetime], Sequence[str]]


@functools.cache
def copy_parts() -> Sequence[CopyPart]:
    """Return the copy parts of all features."""
    return [feature.load(feature.copies) for feature in find_features() if feature.copies]


VALUES_MAX = 1_000
"""The most values of a block that a file holds, the newest."""
_ALL = 1_000_000


def settings_of_copy(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of an agent that its copies have."""
    stays = {name for name, (_, setting) in feature_settings().items() if setting.stays}
    return {name: value for name, value in without_own(settings).items() if name not in stays}


def copy_agent(tx: Tx, agent_id: AgentId, lines: Mapping[int, Sequence[Message]]) -> AgentCopy:
    """Return the parts of an agent that agent files of the second layout don't hold. `lines`: number of a conversation
    -> its messages in the file, in order. Raises: NotFound."""
    agent = tx.agents.get(agent_id)
    archive = find_own_archive(tx, agent_id)
    if archive is not None and list(tx.owners.list_agents("archives", archive.id)) != [agent_id]:
        archive = None  # what it holds may be others'
    passages = [] if archive is None else with_sources(tx, tx.passages.page(archive.id, limit=_ALL))
    turns = {seq: [*filter(_has_place, messages)] for seq, messages in lines.items()}
    rows = FileRows(turns, {passage.id: passage for passage in passages})
    return AgentCopy(
        settings=settings_of_copy(agent.settings),
        follows_default=agent.follows_default,
        conversations=[_copy_conversation(tx, agent_id, seq, of_line) for seq, of_line in turns.items()],
        passages=passages,
        block_values={
            block.label: [
                BlockValue(value=version.value, by=version.author.kind, created_at=version.created_at)
                for version in reversed(tx.blocks.versions(block.id, limit=VALUES_MAX))
            ]
            for block in tx.blocks.list_by_agent(agent_id)
        },
        parts={part.name: part.copy(tx, agent_id, rows) for part in copy_parts()},
    )


def list_forgotten(tx: Tx, agent_id: AgentId) -> Sequence[Correction]:
    """Return the corrections that made an agent forget a text: its own, and others' in shared blocks or graphs."""
    found = {(one.agent_id, one.number): one for one in tx.corrections.forgotten(agent_id)}
    owners = tx.owners.list(agent_id)
    blocks = [id_ for table, id_ in owners if table == "blocks"]
    sharing = {agent for agents in tx.blocks.list_agents(blocks).values() for agent in agents}
    shared = [*tx.corrections.forgotten_in(sorted(sharing), "block", blocks)]
    for table, graph_id in owners:
        if table == "graphs":
            shared += tx.corrections.forgotten_in(tx.owners.list_agents(table, graph_id), "fact", [graph_id])
    found |= {(one.agent_id, one.number): one for one in shared}
    return [*found.values()]


Forgotten = Sequence[tuple[Redactor, datetime]]  # texts that an agent has forgotten, and when


def forgotten_texts(tx: Tx, agent_id: AgentId) -> Forgotten:
    """Return the texts that an agent has forgotten, each with the time; those that were erased are nowhere any more."""
    return redactors_of(list_forgotten(tx, agent_id))


def redactors_of(found: Sequence[Correction]) -> Forgotten:
    """Return the texts that these corrections forgot, each with the time."""
    return [(Redactor(one.needle), one.created_at) for one in found if one.needle != REDACTED]


def _copy_conversation(tx: Tx, agent_id: AgentId, seq: int, turns: Sequence[Message]) -> ConversationCopy:
    """Return the copy of the conversation `seq` without its messages; `turns` are those that the file holds."""
    line = tx.conversations.get_by_seq(agent_id, seq)
    rows: Sequence[Message] = ()
    if line.pending_from is not None:
        rows = tx.messages.view(agent_id, seq, from_seq=line.pending_from, upto_seq=tx.messages.next_seq(agent_id))
    answered = {result.call_id for row in rows for result in row.results}
    blocks = tx.blocks.list_isolated(agent_id, seq).items()
    return ConversationCopy(
        summary=line.summary,
        description=line.settings.get(DESCRIPTION),
        model=line.settings.get(MODEL),
        model_settings=line.settings.get(MODEL_SETTINGS),
        options=line.settings.get(OPTIONS),
        archived=line.archived_at is not None,
        blocks={label: None if block_id is None else tx.blocks.get(block_id).value for label, block_id in blocks},
        open_calls={
            call.call_id: OpenCallCopy(
                awaits=call.awaits, tool_digest=call.tool_digest, loop_arguments=call.loop_arguments
            )
            for row in rows
            for call in row.calls
            if call.call_id not in answered
        },
        turns_read=max(TURNS_READ(tx, agent_id, seq, turns), default=0),
    )


def _has_place(message: Message) -> bool:
    """Return whether sources of facts count a message: by what a file keeps of it, so not by its sender."""
    return message.kind == "message" and message.role in ("user", "assistant") and bool(message.text.strip())


def begin_archive(tx: Tx, agent_id: AgentId, new_id: ArchiveId, *, at: datetime) -> None:
    """Add the archive that an agent's copy gets; nobody sees it until `restore_agent`. Raises: NotFound."""
    name = f"{tx.agents.get(agent_id).name}'s archive"
    tx.of_unfinished().archives.add(Archive(id=new_id, org_id=tx.org_id, name=name, created_at=at, updated_at=at))
    tx.unfinished.link("archives", agent_id, [new_id])


def add_passages_of_copy(tx: Tx, archive_id: ArchiveId, passages: Sequence[Passage]) -> Mapping[str, Passage]:
    """Add passages of a copy to an archive that `begin_archive` added; return their ids in the copy -> the passages.
    Raises: InvalidInput, NotFound, TooMany."""
    there = tx.of_unfinished()
    new = [
        check_passage(replace(one, id=PassageId(derived_id("passage", archive_id, one.id)), archive_id=archive_id))
        for one in passages
    ]
    import_passages(there, archive_id, new)
    places = there.passages.find_places([one.id for one in new])
    tx.unfinished.show_ids([*places])
    return {old.id: replace(one, seq=places[one.id][1]) for old, one in zip(passages, new, strict=True)}


def read_rows_of_copy(
    tx: Tx, agent_id: AgentId, copy: AgentCopy, lines: Sequence[int], passages: Mapping[str, Passage]
) -> FileRows:
    """Return the rows that an agent has of its copy.

    Args:
        lines: the numbers of its conversations, which have their messages, in the order of those of the copy.
        passages: those of the copy, as `add_passages_of_copy` returned them.
    """
    rows = {seq: tx.messages.list(agent_id, conversation_seq=seq, limit=_ALL, reset=True) for seq in lines}
    turns_read = {seq: line.turns_read for line, seq in zip(copy.conversations, lines, strict=False)}
    return FileRows({seq: [*filter(_has_place, found)] for seq, found in rows.items()}, passages, turns_read)


def restore_agent(
    tx: Tx, agent_id: AgentId, copy: AgentCopy, rows: FileRows, *, author: Author, ids: Ids, at: datetime
) -> Sequence[str]:
    """Give an agent that was made from an agent file, and has these rows of it, the rest of what the file holds; return
    what was left out. Raises: InvalidInput, NotFound, TooMany, BlockLimitExceeded."""
    tx.unfinished.finish(agent_id)
    before = tx.agents.get(agent_id)
    rules = {name: before.settings[name] for name in ("tool_rules",) if name in before.settings}
    brought = settings_of_copy(copy.settings)
    settings = {**{name: value for name, value in brought.items() if name != "tool_rules"}, **rules}
    update_agent(tx, agent_id, {"settings": settings}, author=author, at=at)
    for block in tx.blocks.list_by_agent(agent_id):
        values = copy.block_values.get(block.label, ())
        if block.version or not values:  # one that agents of the file share has them already
            continue
        if values[0].value != block.value:  # somebody changed it in the file
            continue
        for one in values[1:]:
            by = Author(kind=one.by, id=agent_id if one.by == "agent" else author.id)
            by = author if block.is_protected else by  # a person who imports it brings its history
            after = check_limit(replace(block, value=one.value))
            block = tx.blocks.put(after, expected=block.version, author=by, at=one.created_at)
    for line, seq in zip(copy.conversations, rows.turns, strict=False):
        for label, block_id in tx.blocks.list_isolated(agent_id, seq).items():
            if (value := line.blocks.get(label)) is None or block_id is None:
                tx.blocks.isolate(agent_id, seq, label, None)
            elif value != (block := tx.blocks.get(block_id)).value:
                tx.blocks.put(check_limit(replace(block, value=value)), expected=block.version, author=author, at=at)
    return [
        line
        for part in copy_parts()
        if part.name in copy.parts
        for line in part.restore(tx, agent_id, copy.parts[part.name], rows, ids, at)
    ]
