"""Archives with plain calls; every method is the asynchronous one's of `library.archives` and `library.archival`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Unpack

from perdure.core.ids import AgentId, ArchiveId, PassageId
from perdure.core.passages import Passage, TagMatch
from perdure.domain.archives.passages import NewPassage, PassageChanges
from perdure.domain.archives.units import ArchiveChanges
from perdure.library.archival import AsyncAgentArchives, AsyncArchival
from perdure.library.archives import AsyncArchive, AsyncArchives
from perdure.library.portal import Portal
from perdure.search.hits import Hits, PassageHit

__all__ = ["AgentArchives", "Archival", "Archive", "Archives"]


class Archives:
    """All archives of the store; see `AsyncArchives` for arguments and errors."""

    def __init__(self, portal: Portal, inner: AsyncArchives) -> None:
        self._portal, self._inner = portal, inner

    def create(
        self, name: str, *, description: str | None = None, metadata: Mapping[str, Any] | None = None
    ) -> Archive:
        """A new archive that no agent has yet."""
        made = self._inner.create(name, description=description, metadata=metadata)
        return Archive(self._portal, self._portal.run(made))

    def get(self, name_or_id: str) -> Archive:
        """The archive of this id or name."""
        return Archive(self._portal, self._portal.run(self._inner.get(name_or_id)))

    def list(self, *, name: str | None = None, limit: int = 50, after: ArchiveId | None = None) -> list[Archive]:
        """Oldest first."""
        found = self._portal.run(self._inner.list(name=name, limit=limit, after=after))
        return [Archive(self._portal, archive) for archive in found]

    def delete(self, archive_id: ArchiveId) -> None:
        """Remove the archive with its passages, after taking it from all agents."""
        self._portal.run(self._inner.delete(archive_id))


class Archive:
    """One archive; see `AsyncArchive` for arguments and errors."""

    def __init__(self, portal: Portal, inner: AsyncArchive) -> None:
        self._portal, self._inner = portal, inner
        self.info, self.id, self.name = inner.info, inner.id, inner.name

    def update(self, **changes: Unpack[ArchiveChanges]) -> Archive:
        """The archive as changed; this object stays as it was looked up."""
        return Archive(self._portal, self._portal.run(self._inner.update(**changes)))

    def insert(
        self,
        text: str,
        *,
        tags: Sequence[str] = (),
        metadata: Mapping[str, Any] | None = None,
        source: Mapping[str, Any] | None = None,
        occurred_at: datetime | None = None,
    ) -> Passage:
        """Put a text away; it is found at once."""
        return self._portal.run(
            self._inner.insert(text, tags=tags, metadata=metadata, source=source, occurred_at=occurred_at)
        )

    def insert_many(self, passages: Sequence[NewPassage | str]) -> list[Passage]:
        """Put texts away, in transactions of up to 500."""
        return self._portal.run(self._inner.insert_many(passages))

    def search(
        self,
        text: str,
        *,
        tags: Sequence[str] = (),
        tag_match: TagMatch = "any",
        since: datetime | None = None,
        until: datetime | None = None,
        limit: int = 10,
        offset: int = 0,
        explain: bool = False,
    ) -> Hits[PassageHit]:
        """The passages that best match, best first."""
        return self._portal.run(
            self._inner.search(
                text,
                tags=tags,
                tag_match=tag_match,
                since=since,
                until=until,
                limit=limit,
                offset=offset,
                explain=explain,
            )
        )

    def passages(
        self,
        *,
        tags: Sequence[str] = (),
        tag_match: TagMatch = "any",
        since: datetime | None = None,
        until: datetime | None = None,
        limit: int = 100,
        after_seq: int = -1,
    ) -> Sequence[Passage]:
        """A page of the passages, oldest first."""
        return self._portal.run(
            self._inner.passages(
                tags=tags, tag_match=tag_match, since=since, until=until, limit=limit, after_seq=after_seq
            )
        )

    def passage(self, passage_id: PassageId) -> Passage:
        """A passage of this archive."""
        return self._portal.run(self._inner.passage(passage_id))

    def update_passage(self, passage_id: PassageId, **changes: Unpack[PassageChanges]) -> Passage:
        """The passage with other fields."""
        return self._portal.run(self._inner.update_passage(passage_id, **changes))

    def delete_passage(self, passage_id: PassageId) -> None:
        """Remove a passage."""
        self._portal.run(self._inner.delete_passage(passage_id))

    def delete_where(
        self,
        *,
        text: str = "",
        tags: Sequence[str] = (),
        tag_match: TagMatch = "any",
        since: datetime | None = None,
        until: datetime | None = None,
        dry_run: bool = False,
    ) -> int:
        """Remove the passages that all conditions hold for; how many there were."""
        return self._portal.run(
            self._inner.delete_where(
                text=text, tags=tags, tag_match=tag_match, since=since, until=until, dry_run=dry_run
            )
        )

    def attach_to(self, agent_id: AgentId) -> None:
        """Let an agent find what is in this archive."""
        self._portal.run(self._inner.attach_to(agent_id))

    def detach_from(self, agent_id: AgentId) -> None:
        """Take the archive from an agent; its passages stay."""
        self._portal.run(self._inner.detach_from(agent_id))

    def delete(self) -> None:
        """Remove the archive with its passages."""
        self._portal.run(self._inner.delete())


class Archival:
    """The archival memory of an agent; `Agent` has these methods."""

    _portal: Portal
    _inner: AsyncArchival

    def archive(self, text: str, *, tags: Sequence[str] = (), occurred_at: datetime | None = None) -> Passage:
        """Put a text into archival memory."""
        return self._portal.run(self._inner.archive(text, tags=tags, occurred_at=occurred_at))

    def search_archive(
        self,
        text: str,
        *,
        tags: Sequence[str] = (),
        tag_match: TagMatch = "any",
        since: datetime | None = None,
        until: datetime | None = None,
        limit: int = 10,
        offset: int = 0,
        explain: bool = False,
    ) -> Hits[PassageHit]:
        """The passages that best match, best first."""
        return self._portal.run(
            self._inner.search_archive(
                text,
                tags=tags,
                tag_match=tag_match,
                since=since,
                until=until,
                limit=limit,
                offset=offset,
                explain=explain,
            )
        )

    def passages(
        self,
        *,
        tags: Sequence[str] = (),
        tag_match: TagMatch = "any",
        since: datetime | None = None,
        until: datetime | None = None,
        limit: int = 100,
        after_seq: int = -1,
    ) -> Sequence[Passage]:
        """A page of the agent's archive, oldest first."""
        return self._portal.run(
            self._inner.passages(
                tags=tags, tag_match=tag_match, since=since, until=until, limit=limit, after_seq=after_seq
            )
        )

    def update_passage(self, passage_id: PassageId, **changes: Unpack[PassageChanges]) -> Passage:
        """The passage with other fields."""
        return self._portal.run(self._inner.update_passage(passage_id, **changes))

    def delete_passage(self, passage_id: PassageId) -> None:
        """Remove a passage from archival memory."""
        self._portal.run(self._inner.delete_passage(passage_id))


class AgentArchives:
    """The archives of one agent; see `AsyncAgentArchives`."""

    def __init__(self, portal: Portal, inner: AsyncAgentArchives) -> None:
        self._portal, self._inner = portal, inner

    def list(self) -> list[Archive]:
        """In the order they were attached."""
        return [Archive(self._portal, archive) for archive in self._portal.run(self._inner.list())]

    def attach(self, archive_id: ArchiveId) -> None:
        """Let the agent find what is in an archive."""
        self._portal.run(self._inner.attach(archive_id))

    def detach(self, archive_id: ArchiveId) -> None:
        """Take an archive from the agent; its passages stay."""
        self._portal.run(self._inner.detach(archive_id))
