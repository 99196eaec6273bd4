"""Archives and passages: texts that agents store for search."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, Literal, get_args

from perdure.core.features import ArchiveUse
from perdure.core.ids import ArchiveId, OrgId, PassageId
from perdure.core.sources import WriteSource
from perdure.core.text.forms import in_name_form
from perdure.core.text.reprs import short_repr

TagMatch = Literal["any", "all"]
PassageState = Literal["active", "faded", "archived"]
"""`faded`: out of automatic recall; searches find it. `archived`: only a search that asks for it finds it."""

PASSAGE_STATES: Final[tuple[PassageState, ...]] = get_args(PassageState)
SEARCHED_STATES: Final[tuple[PassageState, ...]] = ("active", "faded")
RECALLED_STATES: Final[tuple[PassageState, ...]] = ("active",)

CAPTURED = "capture"
"""`source["type"]` of passages that were captured from a conversation."""


@dataclass(frozen=True, slots=True, kw_only=True)
@in_name_form("name")
class Archive:
    """A searchable store of passages, which agents may share. `version` grows with every change of its passages."""

    __repr__ = short_repr("id", "name", "passage_count")

    id: ArchiveId
    org_id: OrgId
    number: int = 0
    name: str
    description: str | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)
    passage_count: int = 0
    version: int = 0
    created_at: datetime
    updated_at: datetime


@dataclass(frozen=True, slots=True)
class ArchiveOwner:
    """What an archive belongs to, such as a folder with this name."""

    use: ArchiveUse
    id: str
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
@in_name_form("tags")
class Passage:
    """One text in an archive, numbered by the archive's own count.

    `source` is its origin: the agent, run and message that stored it, or a file. `state_origin` says since when, why
    and by which pass of the policy it is in its state; it is empty where that never changed. `sources` are what a new
    passage may come from; a passage that is read has none.
    """

    __repr__ = short_repr("id", "text", "tags")

    id: PassageId
    archive_id: ArchiveId
    seq: int = 0
    text: str
    tags: tuple[str, ...] = ()
    metadata: Mapping[str, Any] = field(default_factory=dict)
    source: Mapping[str, Any] = field(default_factory=dict)
    created_at: datetime
    occurred_at: datetime
    state: PassageState = "active"
    state_origin: Mapping[str, Any] = field(default_factory=dict)
    sources: tuple[WriteSource, ...] = field(default=(), compare=False)


def _no_rows(row: Any) -> Passage:
    """The `make` of `PassageTexts` without rows, which is never called. Raises: IndexError."""
    raise IndexError(row)


@dataclass(frozen=True, slots=True, eq=False)
class PassageTexts:
    """The candidates of a search as columns of equal length, from which only the hits become `Passage` values.

    Attributes:
        occurred_at: in epoch seconds.
        origins: the id of the file or conversation that each comes from; None: neither.
        rows: the other columns in the store's form; `make` builds a passage from a row.
        uses: how often a search showed each to an agent; ranking reads it.
    """

    seqs: Sequence[int] = ()
    texts: Sequence[str] = ()
    occurred_at: Sequence[float] = ()
    origins: Sequence[str | None] = ()
    rows: Sequence[Any] = field(default=(), repr=False)
    uses: Sequence[int] = ()
    make: Callable[[Any], Passage] = field(default=_no_rows, repr=False)

    def __len__(self) -> int:
        return len(self.seqs)

    def passage(self, index: int) -> Passage:
        """Build the passage at an index, without reading it again."""
        return self.make(self.rows[index])

    @classmethod
    def join(cls, several: Sequence[PassageTexts]) -> PassageTexts:
        """Return the candidates of several searches in one store, one after the other."""
        if len(several) == 1:
            return several[0]
        columns = ("seqs", "texts", "occurred_at", "origins", "rows", "uses")
        joined = {name: [value for texts in several for value in getattr(texts, name)] for name in columns}
        return cls(**joined, make=next((texts.make for texts in several if texts.rows), _no_rows))


@dataclass(frozen=True, slots=True, kw_only=True)
@in_name_form("tags")
class PassageFilter:
    """Selects passages that meet all conditions. Times are of `occurred_at`, ends included; empty `states`: all."""

    tags: tuple[str, ...] = ()
    tag_match: TagMatch = "any"
    since: datetime | None = None
    until: datetime | None = None
    states: tuple[PassageState, ...] = ()

    @property
    def matches_all(self) -> bool:
        """Whether every passage matches."""
        return not self.tags and self.since is None and self.until is None and not self.states
