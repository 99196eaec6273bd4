"""What an agent put away: its archival memory, as a part of the agent."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Unpack

from perdure.core.ids import AgentId, ArchiveId, PassageId
from perdure.core.passages import Passage
from perdure.domain.archives.passages import NewPassage, PassageChanges
from perdure.domain.values import as_tags
from perdure.library.archives import AsyncArchive
from perdure.library.checks import check_text
from perdure.library.services import Services
from perdure.library.services.passages import PassageConditions, passage_filter
from perdure.search.hits import Hits, PassageHit


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
