"""`tx.archives`: the verbs of archives."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from perdure.core.ids import AgentId, ArchiveId
from perdure.core.passages import Archive

__all__ = ["Archives"]


class Archives(Protocol):
    def add(self, archive: Archive) -> Archive:
        """The archive with its number; counts begin at 0."""
        ...

    def get(self, archive_id: ArchiveId) -> Archive:
        """Raises: NotFound."""
        ...

    def put(self, archive: Archive) -> None:
        """Keep its name, description, metadata and `updated_at`; nothing else can be changed so. Raises: NotFound."""
        ...

    def list(
        self,
        *,
        agent_id: AgentId | None = None,
        name: str | None = None,
        above: int | None = None,
        below: int | None = None,
        newest_first: bool = False,
        limit: int = 100,
    ) -> Sequence[Archive]:
        """Archives whose numbers lie between `above` and `below`, both left out, in order of creation: all, those of an
        agent, those of exactly this name. Those of folders are left out."""
        ...

    def delete(self, archive_id: ArchiveId) -> None:
        """Take it from all agents and remove it.

        Raises: NotFound; InvalidInput: it still has passages, or is a folder's.
        """
        ...

    def attach(self, agent_id: AgentId, archive_id: ArchiveId) -> None:
        """Raises: NotFound, TooMany. Attaching twice is no error."""
        ...

    def detach(self, agent_id: AgentId, archive_id: ArchiveId) -> None:
        """Raises: NotFound. Detaching what is not attached is no error."""
        ...

    def detach_all(self, archive_id: ArchiveId, *, limit: int) -> int:
        """Take it from up to `limit` of its agents; from how many. Raises: NotFound."""
        ...

    def of_agent(self, agent_id: AgentId) -> Sequence[Archive]:
        """In the order they were attached; the first one takes what the agent inserts."""
        ...

    def tags(self, archive_id: ArchiveId, *, limit: int = 20) -> Sequence[tuple[str, int]]:
        """(tag, number of passages), the most used first."""
        ...
