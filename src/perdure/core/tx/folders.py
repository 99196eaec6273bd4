"""`tx.folders`: the verbs of folders."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from perdure.core.files import Folder
from perdure.core.ids import AgentId, ArchiveId, FolderId

__all__ = ["Folders"]


class Folders(Protocol):
    def add(self, folder: Folder) -> Folder:
        """The folder with its number; counts begin at 0. Raises: AlreadyExists: its name is taken."""
        ...

    def get(self, folder_id: FolderId) -> Folder:
        """Raises: NotFound."""
        ...

    def find(self, name: str) -> Folder | None: ...

    def of_archive(self, archive_id: ArchiveId) -> Folder | None:
        """The folder whose files' passages this archive holds; None for all other archives."""
        ...

    def put(self, folder: Folder) -> None:
        """Keep its name, description, instructions, metadata and `updated_at`; nothing else can be changed so.

        Raises: NotFound, AlreadyExists.
        """
        ...

    def list(
        self,
        *,
        name: str | None = None,
        above: int | None = None,
        below: int | None = None,
        newest_first: bool = False,
        limit: int = 100,
    ) -> Sequence[Folder]:
        """Folders whose numbers lie between `above` and `below`, both left out, in order of creation."""
        ...

    def count(self) -> int: ...

    def delete(self, folder_id: FolderId) -> None:
        """Take it from all agents and remove it with its archive.

        Raises: NotFound; InvalidInput: it still has files, or its archive passages.
        """
        ...

    def attach(self, agent_id: AgentId, folder_id: FolderId, *, opens: bool) -> bool:
        """Whether it was not attached before. `opens`: files that become readable are opened where there is room.

        Raises: NotFound, TooMany.
        """
        ...

    def detach(self, agent_id: AgentId, folder_id: FolderId) -> bool:
        """Whether it was attached; the agent has none of its files open then. Raises: NotFound."""
        ...

    def of_agent(self, agent_id: AgentId) -> Sequence[Folder]:
        """In the order they were attached."""
        ...

    def agents(self, folder_id: FolderId, *, opening: bool = False, limit: int | None = None) -> Sequence[AgentId]:
        """The agents that have it, oldest first; with `limit`, some of them, in another order.

        Args:
            opening: only those that open what becomes readable.
        """
        ...
