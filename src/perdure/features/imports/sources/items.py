"""What readers find in exports of other programs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, Literal, get_args

from perdure.core.passages import Passage
from perdure.domain.blocks.units import NewBlock
from perdure.domain.conversations.importing import NAME_MAX_CHARS, ImportedMessage
from perdure.features.imports.sources.plain import key_of, text_in, time_of

ImportSource = Literal["chatgpt", "claude", "mem0", "zep", "letta-db", "markdown", "jsonl"]

IMPORT_SOURCES: Final[tuple[ImportSource, ...]] = get_args(ImportSource)

COMPANIONS = "companions, which are made anew with the agents that they help: what they said stays there"
EMPTY = "conversations without a message"
ROOT = "00000000-0000-4000-8000-000000000000"
"""What the first message follows in Claude's export."""
CUT_OFF = "messages that the shown branch does not lead to, because one between is missing"


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceAgent:
    """An agent of the source, which comes before what is its own.

    Args:
        id: its id at the source, which `agent` of the other items names.
        former: agents whose exports were read one into the other, and the last into this one: the newest first.
        file: its agent file, where the source has one.
    """

    id: str
    name: str
    system: str | None = None
    description: str | None = None
    blocks: tuple[NewBlock, ...] = ()
    file: bytes | None = None
    former: tuple[tuple[str, ...], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceConversation:
    """A conversation of the source, with its messages in order.

    Args:
        created_at: None: as its first message.
        is_whole: these are all messages that it has now: others that an earlier import brought are no part of it.
        is_first: it is what the agent said in its first conversation.
        waiting: so many messages at its end are an answer whose calls wait for somebody, and results of others.
        agent: the id of a `SourceAgent`; empty: the agent of the import.
    """

    id: str
    title: str = ""
    created_at: datetime | None = None
    messages: Sequence[ImportedMessage]
    is_whole: bool = False
    is_first: bool = False
    archived: bool = False
    waiting: int = 0
    agent: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceMemory:
    """A text that the source remembers.

    Args:
        passage: all of it, where the source is an export of Perdure.
        agent: as that of a conversation.
    """

    id: str
    text: str
    created_at: datetime
    tags: tuple[str, ...] = ()
    metadata: dict[str, Any] = field(default_factory=dict)
    passage: Passage | None = None
    agent: str = ""


@dataclass(frozen=True, slots=True)
class Omission:
    """Things of the source that are not imported. `why`: what they are and why, in the plural."""

    why: str
    count: int = 1


SourceItem = SourceAgent | SourceConversation | SourceMemory | Omission


Nodes = Mapping[str, Mapping[str, Any]]
"""The messages of a tree by their ids; one field of each says which it follows."""


def path_to(last: Any, nodes: Nodes, field: str) -> list[str]:
    """Return the ids from the first message to `last`; also where there are circles."""
    path: dict[str, None] = {}
    while isinstance(last, str) and last in nodes and last not in path:
        path[last] = None
        last = nodes[last].get(field)
    return [*reversed(path)]


def find_gap(path: Sequence[str], nodes: Nodes, field: str, says: Callable[[Any], str]) -> Omission:
    """Return how many messages may be missing above a path whose first message names a parent that is not there."""
    above = nodes[path[0]].get(field) if path else None
    is_cut = isinstance(above, str) and above != ROOT and above not in nodes
    return Omission(CUT_OFF, sum(bool(says(nodes[id_])) for id_ in nodes.keys() - {*path}) if is_cut else 0)


Row = tuple[Any, Any, Any, datetime | None, str]
"""A message of a source: its id or nothing, role, speaker or nothing, time if it has one, text."""


def conversation_of(
    key: Any, title: Any, created_at: Any, rows: Sequence[Row], otherwise: datetime, *, is_whole: bool = False
) -> SourceConversation | Omission:
    """Return a conversation, or the note that it is empty. A message without a time gets that of the one before, else
    of the first one with a time, else of the conversation, else `otherwise`."""
    if not rows:
        return Omission(EMPTY)
    begun = time_of(created_at)
    at = next((row[3] for row in rows if row[3] is not None), begun or otherwise)
    messages = []
    for id_, role, name, said_at, text in rows:
        at = said_at or at
        speaker = text_in(name)[:NAME_MAX_CHARS] or None
        message_id = key_of(id_) if id_ else None
        messages.append(ImportedMessage(role=role, text=text, occurred_at=at, name=speaker, id=message_id))
    return SourceConversation(
        id=key_of(key or rows[0][0]), title=text_in(title), created_at=begun, messages=messages, is_whole=is_whole
    )
