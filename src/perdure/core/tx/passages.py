"""`tx.archives` and `tx.passages`: the verbs of archival memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from perdure.core.ids import AgentId, ArchiveId, PassageId
from perdure.core.passages import Archive, Passage, TagMatch
from perdure.core.text import Query
from perdure.core.tx.found import Found

__all__ = ["Archives", "PassageFilter", "Passages"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PassageFilter:
    """Which passages: all conditions hold. Times are of `occurred_at`, both ends included."""

    tags: tuple[str, ...] = ()
    tag_match: TagMatch = "any"
    since: datetime | None = None
    until: datetime | None = None


class Archives(Protocol):
    def add(self, archive: Archive) -> Archive: ...

    def get(self, archive_id: ArchiveId) -> Archive:
        """Raises: NotFound."""
        ...

    def attach(self, agent_id: AgentId, archive_id: ArchiveId) -> None:
        """Raises: NotFound. Attaching twice is no error."""
        ...

    def of_agent(self, agent_id: AgentId) -> Sequence[Archive]:
        """In the order they were attached; the first one takes what the agent inserts."""
        ...

    def tags(self, archive_id: ArchiveId, *, limit: int = 20) -> Sequence[tuple[str, int]]:
        """(tag, number of passages), the most used first."""
        ...


class Passages(Protocol):
    def add(self, passage: Passage) -> Passage:
        """The passage with its sequence number, at once searchable. Raises: NotFound: no such archive."""
        ...

    def get(self, passage_id: PassageId) -> Passage:
        """Raises: NotFound."""
        ...

    def delete(self, passage_id: PassageId) -> None:
        """Raises: NotFound."""
        ...

    def list(
        self, archive_id: ArchiveId, *, where: PassageFilter | None = None, limit: int = 100, after_seq: int = -1
    ) -> Sequence[Passage]: ...

    def page(
        self,
        archive_id: ArchiveId,
        *,
        text: str | None = None,
        above: int | None = None,
        below: int | None = None,
        newest_first: bool = False,
        limit: int = 100,
    ) -> Sequence[Passage]:
        """Passages whose numbers lie between `above` and `below`, both left out; with a `text`, those that contain it
        in any case."""
        ...

    def newest(self, archive_id: ArchiveId, *, where: PassageFilter, limit: int) -> Sequence[Passage]: ...

    def match(self, archive_id: ArchiveId, query: Query, *, where: PassageFilter, limit: int) -> Sequence[Found]:
        """Candidates of a full-text search, best first."""
        ...

    def by_seqs(self, archive_id: ArchiveId, seqs: Sequence[int]) -> Sequence[Passage]: ...
