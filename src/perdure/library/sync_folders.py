"""Folders with plain calls; every method is the asynchronous one's of `library.folders`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Unpack

from perdure.core.files import AgentFile, File, IfExists
from perdure.core.ids import AgentId, FileId, FolderId
from perdure.domain.files.folders import FolderChanges
from perdure.library.folders import AsyncAgentFiles, AsyncFolder, AsyncFolders
from perdure.library.portal import Portal
from perdure.library.uploads import Source

__all__ = ["AgentFiles", "Folder", "Folders"]


class Folders:
    """All folders of the store; see `AsyncFolders` for arguments and errors."""

    def __init__(self, portal: Portal, inner: AsyncFolders) -> None:
        self._portal, self._inner = portal, inner

    def create(
        self,
        name: str,
        *,
        description: str | None = None,
        instructions: str | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> Folder:
        """A new folder that no agent has yet."""
        made = self._inner.create(name, description=description, instructions=instructions, metadata=metadata)
        return Folder(self._portal, self._portal.run(made))

    def get(self, name_or_id: str) -> Folder:
        """The folder of this id or name."""
        return Folder(self._portal, self._portal.run(self._inner.get(name_or_id)))

    def list(self, *, name: str | None = None, limit: int = 50, after: FolderId | None = None) -> list[Folder]:
        """Oldest first."""
        found = self._portal.run(self._inner.list(name=name, limit=limit, after=after))
        return [Folder(self._portal, folder) for folder in found]

    def delete(self, folder_id: FolderId) -> None:
        """Take the folder from all agents and remove it with its files."""
        self._portal.run(self._inner.delete(folder_id))


class Folder:
    """One folder; see `AsyncFolder` for arguments and errors."""

    def __init__(self, portal: Portal, inner: AsyncFolder) -> None:
        self._portal, self._inner = portal, inner
        self.info, self.id, self.name = inner.info, inner.id, inner.name

    def update(self, **changes: Unpack[FolderChanges]) -> Folder:
        """The folder as changed; this object stays as it was looked up."""
        return Folder(self._portal, self._portal.run(self._inner.update(**changes)))

    def upload(
        self, source: Source, *, name: str | None = None, if_exists: IfExists = "replace", media_type: str = ""
    ) -> File:
        """Take a file in; its text is made in the background."""
        return self._portal.run(self._inner.upload(source, name=name, if_exists=if_exists, media_type=media_type))

    def files(self, *, limit: int = 100, after: FileId | None = None) -> Sequence[File]:
        """Oldest first."""
        return self._portal.run(self._inner.files(limit=limit, after=after))

    def file(self, name_or_id: str) -> File:
        """The file of this id or name."""
        return self._portal.run(self._inner.file(name_or_id))

    def text(self, name_or_id: str, *, first_line: int = 1, last_line: int | None = None) -> str:
        """Lines of a file's text, both ends included."""
        return self._portal.run(self._inner.text(name_or_id, first_line=first_line, last_line=last_line))

    def delete_file(self, name_or_id: str) -> None:
        """Remove a file with what it said."""
        self._portal.run(self._inner.delete_file(name_or_id))

    def wait(
        self,
        files: Iterable[FileId] | None = None,
        *,
        progress: Callable[[Sequence[File]], None] | None = None,
        timeout_s: float | None = None,
    ) -> Sequence[File]:
        """The files, once the text of each is there or will never be. `progress` is called in the store's thread."""
        return self._portal.run(self._inner.wait(files, progress=progress, timeout_s=timeout_s))

    def agents(self) -> Sequence[AgentId]:
        """The agents that have it, oldest first."""
        return self._portal.run(self._inner.agents())


class AgentFiles:
    """The folders and files of one agent; see `AsyncAgentFiles` for arguments and errors."""

    def __init__(self, portal: Portal, inner: AsyncAgentFiles) -> None:
        self._portal, self._inner = portal, inner

    def attach(self, folder: str, *, open_files: bool = True) -> None:
        """Give the agent a folder, by name or id."""
        self._portal.run(self._inner.attach(folder, open_files=open_files))

    def detach(self, folder: str) -> None:
        """Take a folder away from the agent."""
        self._portal.run(self._inner.detach(folder))

    def folders(self) -> list[Folder]:
        """In the order they were attached."""
        return [Folder(self._portal, folder) for folder in self._portal.run(self._inner.folders())]

    def list(self, *, is_open: bool | None = None, limit: int = 100) -> Sequence[AgentFile]:
        """The files of its folders: all, the open ones, or the others."""
        return self._portal.run(self._inner.list(is_open=is_open, limit=limit))

    def open(self, file: str, *, first_line: int = 1, last_line: int | None = None) -> Sequence[AgentFile]:
        """Have lines of a file in the agent's view; the files that were closed for it."""
        return self._portal.run(self._inner.open(file, first_line=first_line, last_line=last_line))

    def close(self, file: str) -> None:
        """Take a file out of the agent's view."""
        self._portal.run(self._inner.close(file))

    def close_all(self) -> Sequence[AgentFile]:
        """Take all files out of the agent's view; which they were."""
        return self._portal.run(self._inner.close_all())
