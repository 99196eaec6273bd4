"""`tx.files`: the verbs of files, from their bytes to their lines; `tx.agent_files`: what agents have open of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Protocol

from perdure.core.files import AgentFile, File, FilePart, FileStatus
from perdure.core.ids import AgentId, FileId, FolderId

__all__ = ["AgentFiles", "Files"]


class Files(Protocol):
    def add(self, file: File) -> File:
        """The file with its number. Raises: NotFound: no such folder; AlreadyExists: its name is taken."""
        ...

    def get(self, file_id: FileId) -> File:
        """Raises: NotFound."""
        ...

    def find(self, folder_id: FolderId, name: str) -> File | None: ...

    def same_content(self, digest: str, *, suffix: str) -> File | None:
        """A file with these bytes whose text is made, its name ending in `suffix`."""
        ...

    def list(
        self,
        folder_id: FolderId,
        *,
        above: int | None = None,
        below: int | None = None,
        newest_first: bool = False,
        limit: int = 100,
    ) -> Sequence[File]:
        """Files whose numbers lie between `above` and `below`, both left out."""
        ...

    def count(self, folder_id: FolderId) -> Mapping[FileStatus, int]:
        """Status -> files; those that none has are missing."""
        ...

    def unembedded(self, folder_id: FolderId) -> Mapping[FileId, int]:
        """File -> how many of its passages wait for their vectors; those that wait for none are missing."""
        ...

    def delete(self, file_id: FileId) -> None:
        """Nobody has it any more, and its name is free; what is left of it waits for a worker (`claim`), who ends with
        `forget`. Raises: NotFound."""
        ...

    def drop_views(self, file_id: FileId, *, limit: int) -> int:
        """Forget what up to `limit` agents have open of a file; of how many."""
        ...

    def forget(self, file: File) -> None:
        """Remove a deleted file, whose passages and views were removed, with its text. Raises: LeaseLost."""
        ...

    # its bytes

    def put_bytes(self, file_id: FileId, seq: int, data: bytes, *, at: datetime) -> None:
        """Keep a part of the bytes of a file, also of one that is still to be added; parts count from 0."""
        ...

    def bytes_of(self, file_id: FileId, seq: int) -> bytes | None:
        """A part of the bytes; None behind the last."""
        ...

    def drop_bytes(self, file_id: FileId) -> None: ...

    def drop_abandoned(self, *, before: datetime) -> int:
        """Forget the bytes of files that were never added, if they are older; how many parts."""
        ...

    # its processing

    def unended(self) -> bool:
        """Whether there is a file for `claim` to find now or later, whoever works on it."""
        ...

    def claim(self, *, owner: str, at: datetime, until: datetime, dead_owners: Sequence[str] = ()) -> File | None:
        """The oldest file whose text is to be made, or that was deleted, and that nobody works on, now worked on by
        `owner`; `tries` has grown. None: there is none now."""
        ...

    def holders(self) -> Sequence[str]:
        """Who works on files now."""
        ...

    def hold(
        self,
        file: File,
        *,
        until: datetime,
        status: FileStatus | None = None,
        done: int | None = None,
        total: int | None = None,
    ) -> None:
        """Keep the claim that `file` was returned with, and how far the work is.

        Raises: LeaseLost: it is another's, or has ended, or is gone.
        """
        ...

    def end(self, file: File) -> None:
        """Keep what became of a claimed file: its status and all that is known of its text; nobody works on it any
        more. Its folder has another version if it can be read now. Raises: LeaseLost."""
        ...

    def release(self, owner: str) -> None:
        """Nobody works any more on what `owner` worked on, and it counts as not tried."""
        ...

    def give_back(self, file: File) -> None:
        """Nobody works any more on this file, and it counts as not tried; nothing if another has it by now."""
        ...

    # its text

    def put_parts(self, file_id: FileId, parts: Sequence[FilePart], page_starts: Sequence[int] = ()) -> None:
        """Add parts; page starts, if there are any, are kept with whichever parts they come."""
        ...

    def drop_parts(self, file_id: FileId) -> None: ...

    def parts(self, file_id: FileId, *, from_line: int = 1, after_seq: int = -1, limit: int = 1) -> Sequence[FilePart]:
        """Parts from the one that `from_line` begins in, and behind `after_seq`, in order."""
        ...

    def page_starts(self, file_id: FileId) -> Sequence[int]:
        """The first line of each page, from 1; empty where there are no pages."""
        ...


class AgentFiles(Protocol):
    def shown(self, agent_id: AgentId) -> Mapping[str, int]:
        """What an agent's prompt shows of files: folder id -> version, and open file's id -> version of its view."""
        ...

    def open(self, agent_id: AgentId, file_id: FileId, first_line: int, last_line: int, *, at: datetime) -> AgentFile:
        """The file with these lines in view, as the one used last. Raises: NotFound: it is in none of the agent's
        folders."""
        ...

    def close(self, agent_id: AgentId, file_id: FileId) -> bool:
        """Whether it was open."""
        ...

    def get(self, agent_id: AgentId, file_id: FileId) -> AgentFile:
        """Raises: NotFound: it is in none of the agent's folders."""
        ...

    def opened(self, agent_id: AgentId) -> Sequence[AgentFile]:
        """The files that the agent has open, the one used last first."""
        ...

    def named(self, agent_id: AgentId, name: str, *, limit: int = 20) -> Sequence[AgentFile]:
        """Files of the agent's folders that are called so: `folder/name`, a name, or the end of a name behind a
        slash."""
        ...

    def list(
        self,
        agent_id: AgentId,
        *,
        is_open: bool | None = None,
        above: tuple[int, int] | None = None,
        below: tuple[int, int] | None = None,
        newest_first: bool = False,
        limit: int = 100,
    ) -> Sequence[AgentFile]:
        """Files of the agent's folders by (folder's number, file's number); above and below leave theirs out."""
        ...
