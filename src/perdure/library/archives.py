"""Archives as people and programs work on them: all of the store, one with its passages, and those of an agent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Unpack

from perdure.core.errors import InvalidInput
from perdure.core.ids import AgentId, ArchiveId, PassageId
from perdure.core.passages import Archive, Passage
from perdure.domain.archives.passages import NewPassage, PassageChanges
from perdure.domain.archives.units import ArchiveChanges, Selection
from perdure.domain.values import as_tags
from perdure.library.checks import check_text
from perdure.library.paging import Page
from perdure.library.services import Services
from perdure.library.services.passages import PassageConditions, passage_filter
from perdure.search.hits import Hits, PassageHit


class AsyncArchives:
    """All archives of the store. Several agents may share one."""

    def __init__(self, services: Services) -> None:
        self._services = services

    async def create(
        self, name: str, *, description: str | None = None, metadata: Mapping[str, Any] | None = None
    ) -> AsyncArchive:
        """A new archive that no agent has yet. Raises: InvalidInput: a field that can't be used."""
        fields: ArchiveChanges = {"name": name, "description": description}
        archive = await self._services.archives.create({**fields, "metadata": {} if metadata is None else metadata})
        return AsyncArchive(self._services, archive)

    async def get(self, name_or_id: str) -> AsyncArchive:
        """The archive of this id or name; of several of one name the newest. Raises: NotFound, naming what there is."""
        return AsyncArchive(self._services, await self._services.archives.resolve(name_or_id))

    async def list(
        self, *, name: str | None = None, limit: int = 50, after: ArchiveId | None = None
    ) -> list[AsyncArchive]:
        """Oldest first; `after` is the last one of the page before, `name` the whole name.

        Raises: InvalidInput: a limit below 1 or above 10,000; NotFound: there is no archive `after`.
        """
        archives = await self._services.archives.list(Page(limit, ascending=True, after=after), name=name)
        return [AsyncArchive(self._services, archive) for archive in archives]

    async def delete(self, archive_id: ArchiveId) -> None:
        """Remove the archive with its passages, after taking it from all agents.

        The passages go in batches, so that others can write meanwhile. If it is interrupted, what is left is an archive
        of no agent; deleting it again goes on.
        Raises: NotFound, StoreError; InvalidInput: it holds what a folder's files say, and nothing is removed.
        """
        await self._services.archives.delete(archive_id)


class AsyncArchive:
    """One archive, as it was when it was looked up; its passages are always read anew."""

    def __init__(self, services: Services, archive: Archive) -> None:
        self._services = services
        self.info = archive
        self.id = archive.id
        self.name = archive.name

    async def update(self, **changes: Unpack[ArchiveChanges]) -> AsyncArchive:
        """The archive as changed; this object stays as it was looked up.

        What is not given stays: `name`, `description`, `metadata`, which is replaced as a whole.
        Raises: NotFound; InvalidInput: a value that can't be used, no such field.
        """
        return AsyncArchive(self._services, await self._services.archives.update(self.id, changes))

    async def insert(
        self,
        text: str,
        *,
        tags: Sequence[str] = (),
        metadata: Mapping[str, Any] | None = None,
        source: Mapping[str, Any] | None = None,
        occurred_at: datetime | None = None,
    ) -> Passage:
        """Put a text away; it is found at once.

        Args:
            source: where it came from, such as `{"url": ...}`.
            occurred_at: when it happened, a time with a zone; by default now.
        Raises: InvalidInput: an empty text, one of more than a million characters, a time without a zone; NotFound.
        """
        new = NewPassage(text=text, tags=tags, metadata=metadata or {}, source=source or {}, occurred_at=occurred_at)
        return (await self._services.passages.insert(self.id, [new]))[0]

    async def insert_many(self, passages: Sequence[NewPassage | str]) -> list[Passage]:
        """Put texts away, in transactions of up to 500; plain texts have no tags.

        All are looked at before the first is stored. Raises: InvalidInput, naming the first that can't be stored by its
        place from 0; NotFound; StoreError: what was stored before it stays.
        """
        if isinstance(passages, str):
            raise InvalidInput("passages is one text: give a list of texts or NewPassages")
        new = [NewPassage(text=one) if isinstance(one, str) else one for one in passages]
        return await self._services.passages.insert(self.id, new)

    async def search(
        self,
        text: str,
        *,
        limit: int = 10,
        offset: int = 0,
        explain: bool = False,
        **conditions: Unpack[PassageConditions],
    ) -> Hits[PassageHit]:
        """The passages that best match, best first; for an empty text the newest ones. Its `ran` says which arms of the
        search took part, and why others did not.

        Args:
            limit, offset: so many hits, and how many before them are passed over; a search finds at most 1,000.
            explain: have each hit say `why` it was found.
            conditions: `tags`, of which `tag_match` says whether "any" (the default) or "all" are needed; `since` and
                `until`: times with a zone, both included.
        Raises: InvalidInput: a time without a zone, an unknown `tag_match`, a limit below 1 or above 10,000; NotFound.
        """
        return await self._services.search.passages(
            text, passage_filter(**conditions), archive_id=self.id, limit=limit, offset=offset, explain=explain
        )

    async def passages(
        self, *, limit: int = 100, after_seq: int = -1, **conditions: Unpack[PassageConditions]
    ) -> Sequence[Passage]:
        """A page of the passages, oldest first; `after_seq` is the last one's number of the page before.

        Args and Raises: as `search`.
        """
        where = passage_filter(**conditions)
        return await self._services.passages.list_after(self.id, after_seq, where=where, limit=limit)

    async def passage(self, passage_id: PassageId) -> Passage:
        """A passage of this archive. Raises: NotFound, also for another archive's."""
        return await self._services.passages.get(self.id, passage_id)

    async def update_passage(self, passage_id: PassageId, **changes: Unpack[PassageChanges]) -> Passage:
        """The passage with other fields: `text`, `tags`, `metadata`, `source`, `occurred_at`.

        Raises: NotFound, also for another archive's; InvalidInput: a value that can't be used, no such field.
        """
        return await self._services.passages.update(self.id, passage_id, changes)

    async def delete_passage(self, passage_id: PassageId) -> None:
        """Remove a passage. Raises: NotFound, also for another archive's."""
        await self._services.passages.delete(self.id, passage_id)

    async def delete_where(
        self, *, text: str = "", dry_run: bool = False, **conditions: Unpack[PassageConditions]
    ) -> int:
        """Remove the passages that all conditions hold for; how many there were.

        They go in transactions of up to 500, each of which looks again: what was changed meanwhile so that a condition
        no longer holds stays, and what is put away meanwhile may be among them.
        Args:
            text: those that contain it, in any case of its letters.
            dry_run: only count them.
            conditions: as `search` has them.
        Raises: InvalidInput: no condition at all, a value that can't be used; NotFound.
        """
        selection = Selection(where=passage_filter(**conditions), text=text)
        return await self._services.passages.delete_where(self.id, selection, dry_run=dry_run)

    async def attach_to(self, agent_id: AgentId) -> None:
        """Let an agent find what is in this archive. Attaching twice is no error. Raises: NotFound."""
        await self._services.archives.attach(agent_id, self.id)

    async def detach_from(self, agent_id: AgentId) -> None:
        """Take the archive from an agent; its passages stay. Raises: NotFound: no such agent or archive."""
        await self._services.archives.detach(agent_id, self.id)

    async def delete(self) -> None:
        """Remove the archive with its passages; see `AsyncArchives.delete`."""
        await self._services.archives.delete(self.id)


class AsyncArchival:
    """The archival memory of an agent; `AsyncAgent` has these methods."""

    _services: Services
    id: AgentId

    async def archive(self, text: str, *, tags: Sequence[str] = (), occurred_at: datetime | None = None) -> Passage:
        """Put a text into archival memory.

        Args:
            occurred_at: when it happened, a time with a zone; by default now.
        Raises: InvalidInput: an empty or too long text, a time without a zone.
        """
        check_text("text", text)
        new = NewPassage(text=text, tags=as_tags(tags), occurred_at=occurred_at)
        return await self._services.passages.insert_of_agent(self.id, new)

    async def search_archive(
        self,
        text: str,
        *,
        limit: int = 10,
        offset: int = 0,
        explain: bool = False,
        **conditions: Unpack[PassageConditions],
    ) -> Hits[PassageHit]:
        """The passages that best match, of the agent's archives and of the files of its folders, best first; for an
        empty text the newest ones. The `source` of a file's passage names file and lines. The search's `ran` says which
        arms took part, and why others did not.

        Args:
            limit, offset: so many hits, and how many before them are passed over; a search finds at most 1,000.
            explain: have each hit say `why` it was found.
            conditions: `tags`, of which `tag_match` says whether "any" (the default) or "all" are needed; `since` and
                `until`: times with a zone, both included.
        Raises: InvalidInput: a time without a zone, an unknown `tag_match`, a limit below 1 or above 10,000.
        """
        return await self._services.search.passages(
            text, passage_filter(**conditions), agent_id=self.id, limit=limit, offset=offset, explain=explain
        )

    async def passages(
        self, *, limit: int = 100, after_seq: int = -1, **conditions: Unpack[PassageConditions]
    ) -> Sequence[Passage]:
        """A page of the agent's archive, oldest first; `after_seq` is the last one's number of the page before.

        Args and Raises: as `search_archive`.
        """
        where = passage_filter(**conditions)
        return await self._services.passages.list_after(self.id, after_seq, where=where, limit=limit)

    async def update_passage(self, passage_id: PassageId, **changes: Unpack[PassageChanges]) -> Passage:
        """The passage with other fields: `text`, `tags`, `metadata`, `source`, `occurred_at`.

        Raises: NotFound, also for one of another agent's; InvalidInput: a value that can't be used, no such field.
        """
        return await self._services.passages.update(self.id, passage_id, changes)

    async def delete_passage(self, passage_id: PassageId) -> None:
        """Remove a passage from archival memory. Raises: NotFound, also for one of another agent's."""
        await self._services.passages.delete(self.id, passage_id)


class AsyncAgentArchives:
    """The archives of one agent; the first of them takes what the agent puts away."""

    def __init__(self, services: Services, agent_id: AgentId) -> None:
        self._services, self._agent_id = services, agent_id

    async def list(self) -> list[AsyncArchive]:
        """In the order they were attached."""
        archives = await self._services.archives.list_of_agent(self._agent_id)
        return [AsyncArchive(self._services, archive) for archive in archives]

    async def attach(self, archive_id: ArchiveId) -> None:
        """Let the agent find what is in an archive. Attaching twice is no error. Raises: NotFound."""
        await self._services.archives.attach(self._agent_id, archive_id)

    async def detach(self, archive_id: ArchiveId) -> None:
        """Take an archive from the agent; its passages stay. Raises: NotFound."""
        await self._services.archives.detach(self._agent_id, archive_id)
