"""Archives and passages: what an agent put away to be found again by search."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

from perdure.core.ids import ArchiveId, OrgId, PassageId
from perdure.core.quick import maker, quick

__all__ = ["Archive", "Passage", "PassageText", "TagMatch", "make_passage", "make_passage_text"]

TagMatch = Literal["any", "all"]


@quick
@dataclass(frozen=True, slots=True, kw_only=True)
class Archive:
    """A searchable store of passages; several agents may share one. `version` grows with every change of its
    passages."""

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


@quick
@dataclass(frozen=True, slots=True, kw_only=True)
class Passage:
    """One text in an archive, numbered by the archive's own count.

    `source` says where it came from: the agent, run and message that stored it, or a file.
    """

    id: PassageId
    archive_id: ArchiveId
    seq: int = 0
    text: str
    tags: tuple[str, ...] = ()
    metadata: Mapping[str, Any] = field(default_factory=dict)
    source: Mapping[str, Any] = field(default_factory=dict)
    created_at: datetime
    occurred_at: datetime


@quick
@dataclass(frozen=True, slots=True)
class PassageText:
    """What a search has to know of a passage: `occurred_at` in epoch seconds; `origin` names the file or conversation
    that it is a part of, if any; `uses`: how often it was shown to an agent that looked for it; `whole` makes the
    passage, without reading it again."""

    seq: int
    text: str
    occurred_at: float
    origin: str | None
    uses: int
    whole: Callable[[], Passage] = field(compare=False, repr=False)


make_passage, make_passage_text = maker(Passage), maker(PassageText)
