"""Folders as people and programs work on them: all of the store, one with its files, and those of an agent."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Unpack

from perdure.app import App
from perdure.core.errors import InvalidInput, NotFound
from perdure.core.files import AgentFile, File, Folder, IfExists
from perdure.core.ids import AgentId, FileId, FolderId, is_id
from perdure.domain.files.folders import (
    FolderChanges,
    attach_folder,
    create_folder,
    delete_files,
    detach_folder,
    find_folder,
    update_folder,
)
from perdure.domain.files.text import read_lines, read_text
from perdure.domain.files.views import FileLimits, close_oldest, limits_of, open_view, open_where_room
from perdure.engine.conversations.reset import delete
from perdure.engine.ports import Ports, window_tokens
from perdure.library.checks import check_limit, check_number, check_text
from perdure.library.uploads import Source, upload
from perdure.storage.tx import Tx

__all__ = ["AsyncAgentFiles", "AsyncFolder", "AsyncFolders", "attach_opening", "embedding"]

POLL_S = 0.1
LOOKED_AT = 16  # files, at a time
FILES_A_STEP = 200  # of one transaction
AGENTS_A_STEP = 20
TEXT_CHARS = 20_000_000  # more than any file has


class AsyncFolders:
    """All folders of the store. Several agents may share one."""

    def __init__(self, app: App) -> None:
        self._app = app

    async def create(
        self,
        name: str,
        *,
        description: str | None = None,
        instructions: str | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> AsyncFolder:
        """A new folder that no agent has yet. Raises: InvalidInput; AlreadyExists: its name is taken."""
        ports = self._app.ports
        folder = await ports.store.write(
            create_folder,
            name,
            ids=ports.ids,
            at=ports.clock.now(),
            description=description,
            instructions=instructions,
            metadata=metadata,
        )
        return AsyncFolder(self._app, folder)

    async def get(self, name_or_id: str) -> AsyncFolder:
        """The folder of this id or name. Raises: NotFound, naming what there is."""
        check_text("a folder's name or id", name_or_id)
        return AsyncFolder(self._app, await self._app.store.read(find_folder, name_or_id))

    async def list(
        self, *, name: str | None = None, limit: int = 50, after: FolderId | None = None
    ) -> list[AsyncFolder]:
        """Oldest first; `after` is the last one of the page before.

        Raises: InvalidInput: a limit below 1 or above 10,000; NotFound: there is no folder `after`.
        """
        check_limit(limit)
        for what, value in (("name", name), ("after", after)):
            if value is not None:
                check_text(what, value)

        def page(tx: Tx) -> Sequence[Folder]:
            above = None if after is None else tx.folders.get(after).number
            return tx.folders.list(name=name, above=above, limit=limit)

        return [AsyncFolder(self._app, folder) for folder in await self._app.store.read(page)]

    async def delete(self, folder_id: FolderId) -> None:
        """Take the folder from all agents and remove it with its files, those that are put into it meanwhile included.

        Raises: NotFound; StoreFull, StoreError: what its files said can't be removed now; it is, once it can be, and
            the folder by another call.
        """
        check_text("folder_id", folder_id)
        store, worker = self._app.store, self._app.files
        held_up_before = worker.held_up
        while True:
            # Step by step, so that nobody waits for one that many agents have.
            while await store.write(_detach_some, folder_id):
                pass
            # Step by step, so that nobody waits for a large one; the folder itself goes last.
            while await store.write(delete_files, folder_id, limit=FILES_A_STEP):
                pass
            worker.wake()
            try:
                await delete(self._app.ports, lambda tx: tx.folders.delete(folder_id))
                return
            except InvalidInput:  # what its files said is still being removed
                if (error := worker.held_up) is not None and error is not held_up_before:
                    raise error from None
                await asyncio.sleep(POLL_S)


class AsyncFolder:
    """One folder, as it was looked up."""

    def __init__(self, app: App, folder: Folder) -> None:
        self._app = app
        self.info, self.id, self.name = folder, folder.id, folder.name

    async def update(self, **changes: Unpack[FolderChanges]) -> AsyncFolder:
        """The folder with another `name`, `description`, `instructions` or `metadata`.

        Raises: NotFound, InvalidInput, AlreadyExists.
        """
        now = self._app.ports.clock.now()
        return AsyncFolder(self._app, await self._app.store.write(update_folder, self.id, changes, at=now))

    async def upload(
        self, source: Source, *, name: str | None = None, if_exists: IfExists = "replace", media_type: str = ""
    ) -> File:
        """Take a file in. It is durable when this returns; its text is made in the background (`wait`).

        Args:
            source: a path, bytes, or an open file.
            name: what it is called in the folder, also with folders, `src/app.py`; by default its own name.
            if_exists: what to do if the name is taken: `replace` (a file with the same bytes stays as it is), `skip`,
                `suffix` (it is called `name_(1)`) or `error`.
        Raises: NotFound, AlreadyExists, FileNameInvalid, FileTypeUnsupported, FileTooLarge, InvalidInput.
        """
        file, _ = await upload(self._app, self.id, source, name=name, if_exists=if_exists, media_type=media_type)
        return file

    async def files(self, *, limit: int = 100, after: FileId | None = None) -> Sequence[File]:
        """Oldest first; `after` is the last one of the page before. Raises: InvalidInput, NotFound."""
        check_limit(limit)
        if after is not None:
            check_text("after", after)

        def page(tx: Tx) -> Sequence[File]:
            tx.folders.get(self.id)
            above = None if after is None else tx.files.get(after).number
            return embedding(tx, self.id, tx.files.list(self.id, above=above, limit=limit))

        return await self._app.store.read(page)

    async def file(self, name_or_id: str) -> File:
        """The file of this id or name. Raises: NotFound."""
        check_text("a file's name or id", name_or_id)
        return await self._app.store.read(lambda tx: embedding(tx, self.id, [_file(tx, self.id, name_or_id)])[0])

    async def text(self, name_or_id: str, *, first_line: int = 1, last_line: int | None = None) -> str:
        """Lines of a file's text, both ends included.

        Raises: NotFound; InvalidInput: no line numbers, or the last before the first.
        """
        check_text("a file's name or id", name_or_id)
        _check_lines(first_line, last_line)

        def lines(tx: Tx) -> str:
            file = _file(tx, self.id, name_or_id)
            if first_line <= 1 and last_line is None:
                return read_text(tx, file.id, max_chars=TEXT_CHARS)
            last = file.line_count if last_line is None else last_line
            return "\n".join(line.text for line in read_lines(tx, file.id, first_line, last, max_chars=TEXT_CHARS))

        return await self._app.store.read(lines)

    async def delete_file(self, name_or_id: str) -> None:
        """Remove a file with what it said. Raises: NotFound."""
        check_text("a file's name or id", name_or_id)
        await self._app.store.write(lambda tx: tx.files.delete(_file(tx, self.id, name_or_id).id))
        self._app.files.wake()

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
            progress: told of the files from time to time: `done` of `total`, and the status.
        Raises: NotFound: one was deleted; TimeoutError; StoreFull, StoreError: what was read can't be stored. The files
            wait then, and are read once they can be.
        """
        store, worker = self._app.store, self._app.files
        held_up_before = worker.held_up
        given = None if files is None else list(files)
        wanted = given if given is not None else [file.id for file in await store.read(self._all)]
        known: dict[FileId, File] = {}

        def look(tx: Tx) -> Sequence[File]:
            # The oldest are read first, so of many only the first that wait can have changed.
            waiting = [file_id for file_id in wanted if file_id not in known or not known[file_id].ended]
            return [tx.files.get(file_id) for file_id in (waiting[:LOOKED_AT] if known else waiting)]

        async with asyncio.timeout(timeout_s):
            while True:
                known |= {file.id: file for file in await store.read(look)}
                found = [known[file_id] for file_id in wanted]
                if progress is not None:
                    progress(found)
                if all(file.ended for file in found):
                    return found
                if (error := worker.held_up) is not None and error is not held_up_before:
                    raise error
                await asyncio.sleep(POLL_S)

    def _all(self, tx: Tx) -> Sequence[File]:
        return tx.files.list(self.id, limit=10_000)

    async def agents(self) -> Sequence[AgentId]:
        """The agents that have it, oldest first. Raises: NotFound."""
        return await self._app.store.read(lambda tx: tx.folders.agents(self.id))


class AsyncAgentFiles:
    """The folders and files of one agent."""

    def __init__(self, app: App, agent_id: AgentId) -> None:
        self._app, self._agent_id = app, agent_id

    async def attach(self, folder: str, *, open_files: bool = True) -> None:
        """Give the agent a folder, by name or id; with its first one it gets the tools that read files.

        Args:
            open_files: open its files, and those that are added later, while there is room for them.
        Raises: NotFound.
        """
        check_text("a folder's name or id", folder)
        ports = self._app.ports
        await ports.store.write(
            lambda tx: attach_opening(tx, ports, self._agent_id, find_folder(tx, folder).id, opens=open_files)
        )

    async def detach(self, folder: str) -> None:
        """Take a folder away. Detaching one that the agent does not have is no error. Raises: NotFound."""
        check_text("a folder's name or id", folder)
        await self._app.store.write(lambda tx: detach_folder(tx, self._agent_id, find_folder(tx, folder).id))

    async def folders(self) -> list[AsyncFolder]:
        """In the order they were attached."""
        folders = await self._app.store.read(lambda tx: tx.folders.of_agent(self._agent_id))
        return [AsyncFolder(self._app, folder) for folder in folders]

    async def list(self, *, is_open: bool | None = None, limit: int = 100) -> Sequence[AgentFile]:
        """The files of its folders: all, the open ones, or the others. Raises: InvalidInput."""
        check_limit(limit)
        return await self._app.store.read(lambda tx: tx.agent_files.list(self._agent_id, is_open=is_open, limit=limit))

    async def open(self, file: str, *, first_line: int = 1, last_line: int | None = None) -> Sequence[AgentFile]:
        """Have lines of a file in the agent's view, from its next message on; the files that were closed for it.

        Args:
            file: its id, or a path such as `docs/plan.md`.
        Raises: NotFound; InvalidInput: its text is not there, or there are no such lines.
        """
        check_text("a file's path or id", file)
        _check_lines(first_line, last_line)
        return await self._app.store.write(self._open, file, first_line, last_line)

    def _open(self, tx: Tx, name: str, first: int, last: int | None) -> Sequence[AgentFile]:
        ports = self._app.ports
        file, limits = self._find(tx, name), self._limits(tx)
        if file.file.status not in ("completed", "embedding"):
            why = file.file.problem or "its text is not made yet"
            raise InvalidInput(f"{file.path} can't be opened: {why}")
        if not 1 <= first <= max(1, file.file.line_count):
            raise InvalidInput(f"{file.path} has lines 1 to {file.file.line_count}: there is no line {first}")
        open_view(
            tx,
            self._agent_id,
            file,
            limits,
            first=first,
            last=last,
            tokens=limits.section_tokens,
            counter=ports.counter,
            at=ports.clock.now(),
        )
        return close_oldest(tx, self._agent_id, limits)

    async def close(self, file: str) -> None:
        """Take a file out of the agent's view. Raises: NotFound."""
        check_text("a file's path or id", file)
        await self._app.store.write(
            lambda tx: tx.agent_files.close(self._agent_id, self._find(tx, file).file.id) and None
        )

    async def close_all(self) -> Sequence[AgentFile]:
        """Take all files out of the agent's view; which they were. Raises: NotFound."""

        def close(tx: Tx) -> Sequence[AgentFile]:
            tx.agents.model(self._agent_id)
            opened = tx.agent_files.opened(self._agent_id)
            for file in opened:
                tx.agent_files.close(self._agent_id, file.file.id)
            return opened

        return await self._app.store.write(close)

    def _find(self, tx: Tx, name: str) -> AgentFile:
        tx.agents.model(self._agent_id)
        if is_id("file", name):
            return tx.agent_files.get(self._agent_id, FileId(name))
        found = tx.agent_files.named(self._agent_id, name)
        if not found or (len(found) > 1 and name not in (found[0].path, found[0].file.name)):
            known = ", ".join(file.path for file in found[:8])
            raise NotFound("file", name, hint=f"it may be {known}" if known else "it is in none of the agent's folders")
        return found[0]

    def _limits(self, tx: Tx) -> FileLimits:
        ports = self._app.ports
        agent = tx.agents.get(self._agent_id)
        return limits_of(agent, window_tokens(agent, ports.models, ports.settings))


def attach_opening(tx: Tx, ports: Ports, agent_id: AgentId, folder_id: FolderId, *, opens: bool = True) -> None:
    """Give an agent a folder, and open its files while there is room. Raises: NotFound."""
    if attach_folder(tx, agent_id, folder_id, opens=opens) and opens:
        files = tx.files.list(folder_id, limit=FILES_A_STEP)
        if not files:
            return
        agent = tx.agents.get(agent_id)
        limits = limits_of(agent, window_tokens(agent, ports.models, ports.settings))
        open_where_room(tx, agent_id, files, limits, counter=ports.counter, at=ports.clock.now())


def embedding(tx: Tx, folder_id: FolderId, files: Sequence[File]) -> list[File]:
    """The files, those whose vectors are still being made with the status that says so."""
    waiting = tx.files.unembedded(folder_id)
    return [
        replace(file, status="embedding") if file.status == "completed" and file.id in waiting else file
        for file in files
    ]


def _file(tx: Tx, folder_id: FolderId, name_or_id: str) -> File:
    if is_id("file", name_or_id):
        file = tx.files.get(FileId(name_or_id))
        if file.folder_id == folder_id:
            return file
    elif (found := tx.files.find(folder_id, name_or_id)) is not None:
        return found
    tx.folders.get(folder_id)
    raise NotFound("file", name_or_id, hint="the folder has no such file")


def _detach_some(tx: Tx, folder_id: FolderId) -> int:
    """Take the folder from some of its agents; from how many."""
    agents = tx.folders.agents(folder_id, limit=AGENTS_A_STEP)
    for agent_id in agents:
        detach_folder(tx, agent_id, folder_id)
    return len(agents)


def _check_lines(first_line: int, last_line: int | None) -> None:
    check_number("first_line", first_line)
    check_number("last_line", last_line)
    if last_line is not None and last_line < first_line:
        raise InvalidInput(f"last_line is {last_line}, before first_line, {first_line}: give the lines in order")
