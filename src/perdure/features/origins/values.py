"""What an agent's memory came from, where a text stands in it, and what forgetting, reverting and undoing did."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from perdure.core.features import find_features
from perdure.core.forgetting.corrections import Correction, Key, Place
from perdure.core.ids import AgentId
from perdure.core.sources import MemoryWrite, Source
from perdure.core.text.reprs import short_repr

_NAMES: Mapping[Place, str] = {
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
    "source": "sources of memories",
    "correction": "what undo would bring back",
}
_TABLES = {use.place: use.name for feature in find_features() for use in reversed(feature.text_tables)}
PLACE_NAMES: Mapping[Place, str] = {**_NAMES, **{one: name for one, name in _TABLES.items() if one not in _NAMES}}
"""Place -> its name for people, in the order in which they are shown; those that features add have that of a table."""

IN_VIEW: tuple[Place, ...] = ("block", "passage", "message", "summary", "file", "fact")
"""The places that forgetting takes a text out of; the others need `erase`."""

IN_FILES: tuple[Place, ...] = ("block_version", "graph", "schedule", "settings", "skill")
"""Other places of which an agent file holds something, but not a text that is forgotten."""


@dataclass(frozen=True, slots=True)
class MatchedRow:
    """A row with the text: its key beside the owner, and its texts by column."""

    key: Key
    texts: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class MatchedRowPage:
    """The rows with the text among those that were read. `after`: the last key that was read; None: the end."""

    found: Sequence[MatchedRow]
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
    """In which rows of an agent and its memory a text was found.

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


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceSummary:
    """A source of an agent's memory: how many writes it has, by kind, without those that were reverted.

    Args:
        title: its name for people, such as that of a file.
        reverted: how many more writes were reverted.
    """

    source: Source
    title: str = ""
    blocks: int = 0
    passages: int = 0
    facts: int = 0
    reverted: int = 0
    first_at: datetime
    last_at: datetime

    @property
    def total(self) -> int:
        """How many writes were not reverted."""
        return self.blocks + self.passages + self.facts


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteText:
    """A write of memory as people read it.

    Args:
        name: the label of the block, or the name of the archive or graph.
        text: what it wrote: the diff of a block, the text of a passage, the facts of an episode, a line each.
        stands: whether any of it is still there.
    """

    write: MemoryWrite
    name: str
    text: str
    stands: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class RevertConflict:
    """A write that can't be taken back, because what it wrote was changed again.

    Args:
        value: what the block holds now.
        merged: what it would hold without the write where both changed, with marks around these places.
    """

    write_id: str
    name: str
    reason: str
    value: str = ""
    merged: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RevertResult:
    """What a revert took back, or would.

    Args:
        writes: the ids of the writes.
        correction: the number of the correction that undoes it; None: nothing was changed.
    """

    writes: Sequence[str]
    conflicts: Sequence[RevertConflict] = ()
    blocks: int = 0
    passages: int = 0
    facts: int = 0
    correction: int | None = None
    is_dry_run: bool = field(default=False)
