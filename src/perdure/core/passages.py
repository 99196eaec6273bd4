"""Archives and passages: what an agent put away to be found again by search."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

from perdure.core.ids import ArchiveId, OrgId, PassageId
from perdure.core.quick import maker, quick

__all__ = ["Archive", "Passage", "PassageTexts", "TagMatch", "make_passage"]

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


def _none(index: int) -> Passage:
    raise IndexError(index)


@dataclass(frozen=True, slots=True, eq=False)
class PassageTexts:
    """What a search has to know of some passages, by columns: it looks at many, and gives few of them back.

    Attributes:
        occurred_at: in epoch seconds.
        origins: the file or conversation that each is a part of, if any.
        uses: how often each was shown to an agent that looked for it.
        whole: makes the passage of an index, without reading it again.
    """

    seqs: Sequence[int] = ()
    texts: Sequence[str] = ()
    occurred_at: Sequence[float] = ()
    origins: Sequence[str | None] = ()
    uses: Sequence[int] = ()
    whole: Callable[[int], Passage] = field(default=_none, repr=False)

    def __len__(self) -> int:
        return len(self.seqs)

    @classmethod
    def joined(cls, several: Sequence[PassageTexts]) -> PassageTexts:
        """All of several, one after the other."""
        if len(several) == 1:
            return several[0]
        makers = [functools.partial(some.whole, index) for some in several for index in range(len(some))]
        return cls(
            [seq for some in several for seq in some.seqs],
            [text for some in several for text in some.texts],
            [at for some in several for at in some.occurred_at],
            [origin for some in several for origin in some.origins],
            [uses for some in several for uses in some.uses],
            lambda index: makers[index](),
        )


make_passage = maker(Passage)
