"""`tx.passages`: the verbs of archival memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from perdure.core.ids import ArchiveId, PassageId
from perdure.core.passages import Passage, PassageTexts, TagMatch
from perdure.core.text.words import Query
from perdure.core.tx.found import Matches, Postings

__all__ = ["PassageFilter", "Passages"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PassageFilter:
    """Which passages: all conditions hold. Times are of `occurred_at`, both ends included."""

    tags: tuple[str, ...] = ()
    tag_match: TagMatch = "any"
    since: datetime | None = None
    until: datetime | None = None

    @property
    def everything(self) -> bool:
        """Whether it leaves nothing out."""
        return not self.tags and self.since is None and self.until is None


class Passages(Protocol):
    def add(self, passages: Sequence[Passage]) -> Sequence[Passage]:
        """The passages, all of one archive, with their sequence numbers; at once searchable by text.

        Raises: NotFound: no such archive; AlreadyExists: an id is taken.
        """
        ...

    def get(self, passage_id: PassageId) -> Passage:
        """Raises: NotFound."""
        ...

    def known(self, ids: Sequence[PassageId]) -> dict[PassageId, ArchiveId]:
        """The archives of those that are taken."""
        ...

    def put(self, passage: Passage) -> Passage:
        """Keep its text, tags, metadata, source and `occurred_at`; its place stays, search finds the new text.

        Raises: NotFound.
        """
        ...

    def delete(self, archive_id: ArchiveId, seqs: Sequence[int]) -> int:
        """How many of them there were; nothing finds them any more. Raises: NotFound: no such archive."""
        ...

    def list(
        self, archive_id: ArchiveId, *, where: PassageFilter | None = None, limit: int = 100, after_seq: int = -1
    ) -> Sequence[Passage]: ...

    def page(
        self,
        archive_id: ArchiveId,
        *,
        where: PassageFilter | None = None,
        text: str | None = None,
        among: Sequence[int] | None = None,
        above: int | None = None,
        below: int | None = None,
        newest_first: bool = False,
        limit: int = 100,
    ) -> Sequence[Passage]:
        """Passages whose numbers lie between `above` and `below`, both left out; with a `text`, those of them that
        contain it in any case; with `among`, only those of these numbers."""
        ...

    def newest(self, archive_id: ArchiveId, *, where: PassageFilter, limit: int) -> Sequence[Passage]: ...

    def match(
        self,
        archive_id: ArchiveId,
        query: Query,
        *,
        where: PassageFilter,
        limit: int,
        known: Postings | None = None,
        rows: int | None = None,
    ) -> Matches:
        """Candidates of a full-text search. What is read of the index goes by `known`, and is added to it; `rows`: how
        many passages the filter lets through, if that is known."""
        ...

    def texts(self, archive_id: ArchiveId, seqs: Sequence[int]) -> PassageTexts:
        """Those that are there, in the order of `seqs`."""
        ...

    def use(self, archive_id: ArchiveId, seqs: Sequence[int]) -> None:
        """Count that these were shown to an agent that looked for them."""
        ...

    def seqs(self, archive_id: ArchiveId, *, where: PassageFilter) -> Sequence[int]:
        """The numbers of all that the filter lets through, in order."""
        ...

    def latest(self, archive_id: ArchiveId, *, where: PassageFilter, limit: int) -> Sequence[int]:
        """The numbers of those that the filter lets through whose `occurred_at` is latest, the latest first."""
        ...

    def by_seqs(self, archive_id: ArchiveId, seqs: Sequence[int]) -> Sequence[Passage]: ...
