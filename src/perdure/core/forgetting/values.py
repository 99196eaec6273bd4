"""What is forgotten: where a text stands, and corrections that can be undone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal

from perdure.core.ids import AgentId
from perdure.core.text.reprs import short_repr

Place = Literal[
    "block",
    "block_version",
    "passage",
    "message",
    "earlier_message",
    "summary",
    "file",
    "fact",
    "graph",
    "request",
    "event",
    "settings",
    "schedule",
    "group",
    "source",
    "correction",
]
"""Where a text can stand. `fact`: facts that are believed. `graph`: facts that no longer are, entities, episodes, rules
and communities. `earlier_message`: earlier versions of messages, and messages out of view. `request`: what
models were sent and answered, with prefixes and recipes. `group`: groups of agents, with turns and transcripts.
`source`:
the names of sources, such as URLs. `correction`: what undoing a correction would bring back."""

PLACE_NAMES: Mapping[Place, str] = {
    "block": "memory blocks",
    "passage": "archives",
    "fact": "facts",
    "message": "history",
    "summary": "summaries",
    "block_version": "versions of blocks",
    "earlier_message": "old versions of messages",
    "file": "files",
    "graph": "entities and earlier facts",
    "request": "recorded requests",
    "event": "events of runs",
    "settings": "settings and descriptions",
    "schedule": "schedules",
    "group": "groups",
    "source": "sources of memories",
    "correction": "what undo would bring back",
}
"""Place -> its name for people, in the order in which they are shown."""

IN_VIEW: tuple[Place, ...] = ("block", "passage", "message", "summary", "file", "fact")
"""The places that forgetting takes a text out of; the others need `erase`."""

IN_FILES: tuple[Place, ...] = ("block_version", "graph", "schedule", "settings")
"""Other places of which an agent file holds something, but not a text that is forgotten."""

TITLE_CHARS = 120

CorrectionKind = Literal["block", "passage", "message", "forget", "revert"]
"""What was corrected. `revert`: writes were taken back."""


Key = tuple[int | str, ...]
"""The key of a row beside its owner."""


@dataclass(frozen=True, slots=True)
class Found:
    """A row with the text: its key beside the owner, and its texts by column."""

    key: Key
    texts: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class FoundPage:
    """The rows with the text among those that were read. `after`: the last key that was read; None: the end."""

    found: Sequence[Found]
    after: Key | None


@dataclass(frozen=True, slots=True)
class Mention:
    """A thing in which the text stands.

    Args:
        id: of the block, passage, message, file, fact or graph; of a summary its conversation and number; else the
            agent's.
        name: what people call it, such as the label of a block; empty: it has none.
        excerpt: the text with its surroundings.
    """

    place: Place
    id: str
    name: str
    excerpt: str


@dataclass(frozen=True, slots=True)
class ForgetPreview:
    """Where a text stands.

    Args:
        text: what was looked for.
        counts: place -> how many rows there hold it, only places that do.
        mentions: the first of them, those in view first.
        shared_with: other agents that have a block, archive or folder in which it stands. `erase` takes it out of
            their history too.
        unended: an erasure of the agent has not ended, so the text may still stand in the store's file.
    """

    __repr__ = short_repr("text", "mentions", "shared_with")

    text: str
    counts: Mapping[Place, int]
    mentions: Sequence[Mention]
    shared_with: Sequence[AgentId] = ()
    unended: bool = False

    @property
    def total(self) -> int:
        """How many rows hold it."""
        return sum(self.counts.values())

    @property
    def in_view(self) -> int:
        """How many of them forgetting takes it out of."""
        return sum(count for place, count in self.counts.items() if place in IN_VIEW)

    @property
    def indexed(self) -> int:
        """How many texts in full-text index and vectors hold it."""
        return sum(self.counts.get(place, 0) for place in ("passage", "message", "file", "fact"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Correction:
    """A change of memory or history that can be undone.

    Args:
        number: counts within the agent, from 1.
        text: what was changed, for people; of a forgotten text its beginning.
        items: how many things it changed.
    """

    agent_id: AgentId
    number: int
    kind: CorrectionKind
    text: str
    items: int
    created_at: datetime
    undone_at: datetime | None = None


def title_of(text: str) -> str:
    """The beginning of a text, on one line."""
    title = " ".join(text.split())
    return title if len(title) <= TITLE_CHARS else f"{title[: TITLE_CHARS - 1]}…"


@dataclass(frozen=True, slots=True, kw_only=True)
class CorrectionItem:
    """One changed thing.

    Args:
        kind: block, passage, message, summary, file or fact.
        id: of the thing; of a summary its conversation and number, `0:3`; of a part of a file also its number; of facts
            their graph.
        before: what undoing needs: of a block the version before, of a message its parts, of a passage its fields, of a
            summary and a part of a file its text, of facts their ids and an episode that supported them.
        after: the checksum of what the thing held after the correction; None: it was deleted, or is a summary that was
            written again, and is once more.
    """

    kind: Place
    id: str
    before: str
    after: int | None = None


@dataclass(frozen=True, slots=True)
class ForgetResult:
    """What was forgotten.

    Args:
        counts: place -> how many rows it was taken out of.
        correction: what `undo` takes back; None: nothing was in view, or it was erased.
        erased: the text was removed from the store's file.
    """

    counts: Mapping[Place, int]
    correction: Correction | None = None
    erased: bool = False

    @property
    def total(self) -> int:
        """How many rows it was taken out of."""
        return sum(self.counts.values())


@dataclass(frozen=True, slots=True)
class UndoResult:
    """An undone correction: how many things are as before, and why others are not."""

    correction: Correction
    restored: int
    conflicts: Sequence[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Erasure:
    """A text that is being removed from the store's file.

    Args:
        text: empty once every row is done.
        targets: the tables and their owners, in order.
        target: the place in `targets` of the next one; `after`: the key of its last row that is done.
        changed: how many rows this pass has changed; a pass without any is the last.
        counts: place -> how many rows it was taken out of.
        updated_at: when the last step was.
        owner: the process that carries it out, as in leases; empty: none.
    """

    agent_id: AgentId
    number: int
    text: str
    targets: Sequence[tuple[str, str]]
    target: int = 0
    after: tuple[int | str, ...] | None = None
    changed: int = 0
    passes: int = 0
    counts: Mapping[Place, int] = field(default_factory=dict)
    created_at: datetime
    updated_at: datetime
    ended_at: datetime | None = None
    owner: str = ""
