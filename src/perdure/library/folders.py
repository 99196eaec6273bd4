"""Folders as people and programs work on them: all of the store, one with its files, and those of an agent."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Unpack

from perdure.core.files import AgentFile, File, IfExists
from perdure.core.files import Folder as FolderInfo
from perdure.core.ids import AgentId, FileId, FolderId
from perdure.core.text.reprs import short_repr
from perdure.domain.files.folders import FolderChanges
from perdure.library.checks import LIMIT_MAX, Page
from perdure.library.services.folders.files import Source
from perdure.library.services.store import Services


class AsyncFolders:
    """All folders of the store. Several agents may share one."""

    def __init__(self, services: Services) -> None:
        self._services = services

    async def create(
        self,
        name: str,
        *,
        description: str | None = None,
        instructions: str | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> AsyncFolder:
        """A new folder that no agent has yet. Raises: InvalidInput; AlreadyExists: its name is taken."""
        fields: FolderChanges = {"name": name, "description": description, "instructions": instructions}
        folder = await self._services.folders.create({**fields, "metadata": metadata or {}})
        return AsyncFolder(self._services, folder)

    async def get(self, name_or_id: str) -> AsyncFolder:
        """The folder of this id or name. Raises: NotFound, naming what there is."""
        return AsyncFolder(self._services, await self._services.folders.resolve(name_or_id))

    async def list(
        self, *, name: str | None = None, limit: int = 50, after: FolderId | None = None
    ) -> list[AsyncFolder]:
        """A page of the folders, oldest first; `after` is the last one of the page before.

        Raises: InvalidInput: a limit below 1 or above 10,000; NotFound: there is no folder `after`.
        """
        folders = await self._services.folders.list(Page(limit, ascending=True, after=after), name=name)
        return [AsyncFolder(self._services, folder) for folder in folders]

    async def delete(self, folder_id: FolderId) -> None:
        """Take the folder from all agents and remove it with its files, those that are put into it meanwhile included.

        Raises: NotFound; StoreFull, StoreError: the text of its files can't be removed now; it is, once it can be, and
            the folder by another call.
        """
        await self._services.folders.delete(folder_id)


class AsyncFolder:
    """One folder. `info` has its values at look-up time."""

    __repr__ = short_repr("id", "name", "info.file_count")

    def __init__(self, services: Services, folder: FolderInfo) -> None:
        self._services, self._info = services, folder

    @property
    def info(self) -> FolderInfo:
        """The folder's values when it was looked up: description, instructions, metadata."""
        return self._info

    @property
    def id(self) -> FolderId:
        """The folder's id."""
        return self._info.id

    @property
    def name(self) -> str:
        """The folder's name when it was looked up."""
        return self._info.name

    async def update(self, **changes: Unpack[FolderChanges]) -> AsyncFolder:
        """Change `name`, `description`, `instructions` or `metadata` of the folder and return it; other fields stay.

        Raises: NotFound, InvalidInput, AlreadyExists.
        """
        return AsyncFolder(self._services, await self._services.folders.update(self.id, changes))

    async def upload(
        self,
        source: Source,
        *,
        name: str | None = None,
        if_exists: IfExists = "replace",
        media_type: str = "",
        encoding: str | None = None,
    ) -> File:
        """Take a file in. It is durable when this returns; its text is made in the background (`wait`).

        Args:
            source: a path, bytes, or an open file.
            name: what it is called in the folder, also with folders, `src/app.py`; by default its own name.
            if_exists: what to do if the name is taken: `replace` (a file with the same bytes stays as it is), `skip`,
                `suffix` (it is called `name_(1)`) or `error`.
            encoding: that of a text, such as `gb18030`; by default it is guessed, and the file's `warnings` name it.
        Raises: NotFound, AlreadyExists, FileNameInvalid, FileTypeUnsupported, FileEncodingInvalid, FileTooLarge,
            InvalidInput.
        """
        return await self._services.files.upload(
            self.id, source, name=name, if_exists=if_exists, media_type=media_type, encoding=encoding
        )

    async def files(self, *, limit: int = 100, after: FileId | None = None) -> Sequence[File]:
        """A page of files, oldest first; `after` is the last one of the page before. Raises: InvalidInput, NotFound."""
        return [
            state.file for state in await self._services.files.list(self.id, Page(limit, ascending=True, after=after))
        ]

    async def file(self, name_or_id: str) -> File:
        """The file of this id or name. Raises: NotFound."""
        return (await self._services.files.get(self.id, name_or_id)).file

    async def text(self, name_or_id: str, *, first_line: int = 1, last_line: int | None = None) -> str:
        """Lines of a file's text, both ends included.

        Raises: NotFound; InvalidInput: no line numbers, or the last before the first.
        """
        return await self._services.files.read(self.id, name_or_id, first_line, last_line)

    async def original(self, name_or_id: str) -> bytes:
        """The bytes of a file as they were uploaded, checked by their SHA-256.

        Raises: NotFound; InvalidInput: they are not kept, because `PERDURE_FILES` was not set; StoreUnavailable: the
        object store does not answer; StoreDamaged: it has other bytes, or none.
        """
        return await self._services.files.original(self.id, name_or_id)

    async def delete_file(self, name_or_id: str) -> None:
        """Remove a file with its text. Raises: NotFound."""
        await self._services.files.delete(self.id, name_or_id)

    async def wait(
        self,
        files: Iterable[FileId] | None = None,
        *,
        progress: Callable[[Sequence[File]], None] | None = None,
        timeout_s: float | None = None,
    ) -> Sequence[File]:
        """The files, once the text of each is there or will never be: then its status is `error`.

        Vectors may still be made: the text is found by words already.

        Args:
            files: ids; by default all of the folder, at most 10,000.
            progress: is called with the files from time to time, in the store's own thread: `done` of `total`, and the
                status.
        Raises: NotFound: one was deleted; TimeoutError; StoreFull, StoreError: what was read can't be stored. The files
            wait then, and are read once they can be.
        """
        return await self._services.files.wait(self.id, files, progress=progress, timeout_s=timeout_s)

    async def agents(self) -> Sequence[AgentId]:
        """The agents that have it, oldest first. Raises: NotFound."""
        return await self._services.folders.list_agents(self.id, Page(LIMIT_MAX, ascending=True))


class AsyncAgentFiles:
    """The folders and files of one agent. Every method raises NotFound when the agent is gone."""

    __repr__ = short_repr("_agent_id")

    def __init__(self, services: Services, agent_id: AgentId) -> None:
        self._services, self._agent_id = services, agent_id

    async def attach(self, folder: str, *, open_files: bool = True) -> None:
        """Give the agent a folder, by name or id; with its first one it gets the tools that read files.

        Args:
            open_files: open its files, and those that are added later, while there is room for them.
        Raises: NotFound.
        """
        await self._services.folders.attach(self._agent_id, folder, opens=open_files)

    async def detach(self, folder: str) -> None:
        """Take a folder away. Detaching one that the agent does not have is no error. Raises: NotFound."""
        await self._services.folders.detach(self._agent_id, folder)

    async def folders(self) -> list[AsyncFolder]:
        """The folders, in the order in which they were attached."""
        folders = await self._services.folders.list_of_agent(self._agent_id)
        return [AsyncFolder(self._services, folder) for folder in folders]

    async def list(self, *, is_open: bool | None = None, limit: int = 100) -> Sequence[AgentFile]:
        """The files of its folders: all, the open ones, or the others. Raises: InvalidInput."""
        return await self._services.agent_files.list(self._agent_id, is_open=is_open, limit=limit)

    async def open(self, file: str, *, first_line: int = 1, last_line: int | None = None) -> Sequence[AgentFile]:
        """Have lines of a file in the agent's view, from its next message on; the files that were closed for it.

        Args:
            file: its id, or a path such as `docs/plan.md`.
        Raises: NotFound; InvalidInput: its text is not there, or there are no such lines.
        """
        return await self._services.agent_files.open(self._agent_id, file, first_line=first_line, last_line=last_line)

    async def close(self, file: str) -> None:
        """Take a file out of the agent's view. Raises: NotFound."""
        await self._services.agent_files.close(self._agent_id, file)

    async def close_all(self) -> Sequence[AgentFile]:
        """Take all files out of the agent's view; which they were. Raises: NotFound."""
        return await self._services.agent_files.close_all(self._agent_id)
