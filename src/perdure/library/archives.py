"""The archives of the store, one archive with its passages, and the archives of an agent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Unpack

from perdure.core.errors import InvalidInput
from perdure.core.ids import AgentId, ArchiveId, PassageId
from perdure.core.passages import Archive as ArchiveInfo
from perdure.core.passages import Passage
from perdure.core.text.reprs import short_repr
from perdure.domain.archives.passages import NewPassage, PassageChanges
from perdure.domain.archives.units import ArchiveChanges, Selection
from perdure.domain.values import as_tags
from perdure.library.checks import Page, check_text
from perdure.library.history import AsyncAgentBase
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
        """A page of the archives, oldest first; `after` is the last one of the page before, `name` the whole name.

        Raises: InvalidInput: a limit below 1 or above 10,000; NotFound: there is no archive `after`.
        """
        archives = await self._services.archives.list(Page(limit, ascending=True, after=after), name=name)
        return [AsyncArchive(self._services, archive) for archive in archives]

    async def delete(self, archive_id: ArchiveId) -> None:
        """Remove the archive with its passages, after taking it from all agents.

        The passages are deleted in batches, so that others can write meanwhile. If it is interrupted, delete it again.
        Raises: NotFound, StoreError; InvalidInput: it holds what a folder's files say, and nothing is removed.
        """
        await self._services.archives.delete(archive_id)


class AsyncPassages:
    """The passages of an archive, or of the archive that an agent stores its texts in."""

    _services: Services

    @property
    def id(self) -> ArchiveId | AgentId:
        """Whose passages they are."""
        raise NotImplementedError

    async def passages(
        self, *, limit: int = 100, after_seq: int = -1, **conditions: Unpack[PassageConditions]
    ) -> Sequence[Passage]:
        """A page of the passages, oldest first; `after_seq` is the number of the last one on the page before.

        Args:
            conditions: `tags` and `tag_match`: only passages that have "any" (the default) or "all" of the tags;
                `since` and `until`: only passages of this time; times with a zone, both included; `states`: only
                those that are "active", "faded" or "archived".
        Raises: InvalidInput: a time without a zone, an unknown `tag_match`, a limit below 1 or above 10,000; NotFound.
        """
        where = passage_filter(**conditions)
        return await self._services.passages.list_after(self.id, after_seq, where=where, limit=limit)

    async def update_passage(self, passage_id: PassageId, **changes: Unpack[PassageChanges]) -> Passage:
        """Change `text`, `tags`, `metadata`, `source` or `occurred_at` of a passage and return it.

        Raises: NotFound, also for another owner's; InvalidInput: a value that can't be used, no such field.
        """
        return await self._services.passages.update(self.id, passage_id, changes)

    async def restore_passage(self, passage_id: PassageId) -> Passage:
        """Have a passage recalled and found again that has faded or is archived; return it.

        Raises: NotFound, also for another owner's.
        """
        return await self._services.passages.restore(passage_id, self.id)

    async def delete_passage(self, passage_id: PassageId) -> None:
        """Remove a passage. Raises: NotFound, also for another owner's."""
        await self._services.passages.delete(self.id, passage_id)


class AsyncArchive(AsyncPassages):
    """One archive. `info` has its values at look-up time; its passages are read at each call."""

    __repr__ = short_repr("id", "name", "info.passage_count")

    def __init__(self, services: Services, archive: ArchiveInfo) -> None:
        self._services, self._info = services, archive

    @property
    def info(self) -> ArchiveInfo:
        """The archive's values when it was looked up: description, metadata, number of passages."""
        return self._info

    @property
    def id(self) -> ArchiveId:
        """The archive's id."""
        return self._info.id

    @property
    def name(self) -> str:
        """The archive's name when it was looked up."""
        return self._info.name

    async def update(self, **changes: Unpack[ArchiveChanges]) -> AsyncArchive:
        """Change fields of the archive and return it; this object keeps its old values.

        Args:
            changes: `name`, `description`, and `metadata`, which is replaced as a whole. A missing field stays.
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
        """Store a text as a passage. Searches find it at once.

        Args:
            source: where it came from, such as `{"url": ...}`.
            occurred_at: when it happened, a time with a zone; by default now.
        Raises: InvalidInput: an empty text, one of more than a million characters, a time without a zone; NotFound.
        """
        new = NewPassage(text=text, tags=tags, metadata=metadata or {}, source=source or {}, occurred_at=occurred_at)
        return (await self._services.passages.insert(self.id, [new]))[0]

    async def insert_many(self, passages: Sequence[NewPassage | str]) -> list[Passage]:
        """Store texts as passages, in transactions of up to 500; plain texts have no tags.

        All are checked before the first is stored. Raises: InvalidInput, naming the first that can't be stored by its
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
        """The passages that best match, best first; for an empty text the newest ones. `ran` of the result says which
        arms of the search took part, and why others did not.

        Args:
            limit, offset: how many hits to return, and how many to skip before them; a search finds at most 1,000.
            explain: whether each hit says `why` it was found.
            conditions: `tags` and `tag_match`: only passages that have "any" (the default) or "all" of the tags;
                `since` and `until`: only passages of this time; times with a zone, both included; `states`: only
                those in these, of "active", "faded" and "archived"; by default the first two.
        Raises: InvalidInput: a time without a zone, an unknown `tag_match`, a limit below 1 or above 10,000; NotFound.
        """
        where = passage_filter(**conditions)
        return await self._services.search.passages(
            text, where, archive_id=self.id, limit=limit, offset=offset, explain=explain
        )

    async def passage(self, passage_id: PassageId) -> Passage:
        """A passage of this archive. Raises: NotFound, also for another archive's."""
        return await self._services.passages.get(self.id, passage_id)

    async def delete_where(
        self, *, text: str = "", dry_run: bool = False, **conditions: Unpack[PassageConditions]
    ) -> int:
        """Delete the passages that meet all conditions, up to 500 in a transaction; return how many they are.

        Args:
            text: only passages that contain it, in any letter case.
            dry_run: only count them.
            conditions: `tags` and `tag_match`: only passages that have "any" (the default) or "all" of the tags;
                `since` and `until`: only passages of this time; times with a zone, both included; `states`: only
                those in one of these.
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


class AsyncArchival(AsyncAgentBase, AsyncPassages):
    """The archival memory of an agent; `AsyncAgent` has these methods."""

    async def archive(self, text: str, *, tags: Sequence[str] = (), occurred_at: datetime | None = None) -> Passage:
        """Store a text as a passage of the agent's own archive.

        Args:
            occurred_at: when it happened, a time with a zone; by default now.
        Raises: InvalidInput: an empty or too long text, a time without a zone.
        """
        check_text("text", text)
        new = NewPassage(text=text, tags=as_tags(tags), occurred_at=occurred_at)
        return await self._services.passages.insert_of_agent(self.id, new)

    async def update_passage(self, passage_id: PassageId, **changes: Unpack[PassageChanges]) -> Passage:
        """Change `text`, `tags`, `metadata`, `source` or `occurred_at` of a passage and return it; `undo` takes it
        back.

        Raises: NotFound, also for another owner's; InvalidInput: a value that can't be used, no such field.
        """
        return await self._services.corrections.update_passage(self.id, passage_id, changes)

    async def delete_passage(self, passage_id: PassageId) -> None:
        """Remove a passage; `undo` brings it back. Raises: NotFound, also for another owner's."""
        await self._services.corrections.delete_passages(self.id, [passage_id])

    async def search_archive(
        self,
        text: str,
        *,
        limit: int = 10,
        offset: int = 0,
        explain: bool = False,
        **conditions: Unpack[PassageConditions],
    ) -> Hits[PassageHit]:
        """The passages of the agent's archives and folders that best match, best first; for an empty text the newest
        ones. The `source` of a file's passage names file and lines. `ran` of the result says which arms of the search
        took part, and why others did not.

        Args:
            limit, offset: how many hits to return, and how many to skip before them; a search finds at most 1,000.
            explain: whether each hit says `why` it was found.
            conditions: `tags` and `tag_match`: only passages that have "any" (the default) or "all" of the tags;
                `since` and `until`: only passages of this time; times with a zone, both included; `states`: only
                those in these, of "active", "faded" and "archived"; by default the first two.
        Raises: InvalidInput: a time without a zone, an unknown `tag_match`, a limit below 1 or above 10,000.
        """
        where = passage_filter(**conditions)
        return await self._services.search.passages(
            text, where, agent_id=self.id, limit=limit, offset=offset, explain=explain
        )


class AsyncAgentArchives:
    """The archives of one agent; the first of them takes the texts that the agent stores."""

    __repr__ = short_repr("_agent_id")

    def __init__(self, services: Services, agent_id: AgentId) -> None:
        self._services, self._agent_id = services, agent_id

    async def list(self) -> list[AsyncArchive]:
        """The archives, in the order in which they were attached."""
        archives = await self._services.archives.list_of_agent(self._agent_id)
        return [AsyncArchive(self._services, archive) for archive in archives]

    async def attach(self, archive_id: ArchiveId) -> None:
        """Let the agent find what is in an archive. Attaching twice is no error. Raises: NotFound."""
        await self._services.archives.attach(self._agent_id, archive_id)

    async def detach(self, archive_id: ArchiveId) -> None:
        """Take an archive from the agent; its passages stay. Raises: NotFound."""
        await self._services.archives.detach(self._agent_id, archive_id)
