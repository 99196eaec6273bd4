"""Folders: all of the store, one with its files, and the folders and files of an agent."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any, Unpack

from perdure.app import App
from perdure.core.agents import Agent, AgentFilter
from perdure.core.errors import InvalidInput, NotFound
from perdure.core.ids import AgentId, FileId, FolderId, is_id
from perdure.core.passages import Passage
from perdure.core.text.reprs import short_repr
from perdure.engine.conversations.reset import delete
from perdure.engine.ports import Ports
from perdure.features.files.file_service import POLL_S, AsyncFiles, check_lines, place_of
from perdure.features.files.file_tables import AgentFiles, Files
from perdure.features.files.folder_tables import Folders
from perdure.features.files.units import (
    FolderChanges,
    attach_folders,
    create_folder,
    delete_files,
    detach_folder,
    find_folder,
    update_folder,
)
from perdure.features.files.values import AgentFile, File
from perdure.features.files.values import Folder as FolderInfo
from perdure.features.files.views import FileLimits, close_oldest, limits_of, open_if_room, open_view, read_view
from perdure.features.files.worker import FileWorker
from perdure.library.memory.passages import passages_page
from perdure.library.parts.checks import LIMIT_MAX, Page, check_limit, check_page, check_text
from perdure.library.parts.part import AsyncPart, reads, writes
from perdure.search.ranking.hits import PassageHit
from perdure.storage.tx import Tx

FILES_PER_STEP = 200  # of one transaction
AGENTS_PER_STEP = 20

LISTED_FOLDERS, LISTED_FILES = 1_000, 10_000
"""How many folders and files are listed with their sizes."""


@dataclass(frozen=True, slots=True)
class FolderSize:
    """A folder with the number and bytes of its files, and the oldest of them."""

    folder: FolderInfo
    file_count: int
    size_bytes: int
    files: Sequence[File]


@dataclass(frozen=True, slots=True)
class FolderSizes:
    """The number of folders, of their files, and the bytes of these."""

    folder_count: int
    file_count: int
    size_bytes: int
    folders: Sequence[FolderSize]


FileInView = tuple[AgentFile, str | None]
"""A file of an agent, and the text that is in view of it; None: it is not open."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentFilePage:
    """A page of an agent's files.

    `has_more`: there are others behind the page, in the direction in which it was read.
    """

    files: Sequence[FileInView]
    has_more: bool


class AsyncFolders(AsyncPart):
    """All folders of the store. Several agents may share one."""

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
        return await self.add({**fields, "metadata": metadata or {}})

    async def add(self, fields: FolderChanges) -> AsyncFolder:
        """A new folder that no agent has yet. Raises: as `create`."""
        ports = self._ports
        made = await ports.store.write(create_folder, fields, ids=ports.ids, at=ports.clock.now())
        return AsyncFolder(self._app, made)

    def by_id(self, folder_id: FolderId) -> AsyncFolderById:
        """Return the folder with this id without looking it up; its methods raise NotFound if there is none."""
        return AsyncFolderById(self._app, folder_id)

    async def get(self, name_or_id: str) -> AsyncFolder:
        """The folder of this id or name. Raises: NotFound, naming what there is."""
        check_text("a folder's name or id", name_or_id)
        return AsyncFolder(self._app, await self._ports.store.read(find_folder, name_or_id))

    async def list(
        self, *, name: str | None = None, limit: int = 50, after: FolderId | None = None
    ) -> list[AsyncFolder]:
        """A page of the folders, oldest first; `after` is the last one of the page before.

        Raises: InvalidInput: a limit below 1 or above 10,000; NotFound: there is no folder `after`.
        """
        folders = await self.page(Page(limit, ascending=True, after=after), name=name)
        return [AsyncFolder(self._app, folder) for folder in folders]

    @reads
    def page(
        self, tx: Tx, page: Page, *, name: str | None = None, agent_id: AgentId | None = None
    ) -> Sequence[FolderInfo]:
        """A page of all folders, of those of this name, or of an agent's. Raises: InvalidInput; NotFound."""
        check_page(page, name=name)
        return page.load(partial(tx.of(Folders).list, name=name, agent_id=agent_id), tx.of(Folders).number)

    async def count(self) -> int:
        """How many folders there are."""
        return await self._ports.store.read(lambda tx: tx.of(Folders).count())

    async def get_id(self, name: str) -> FolderId:
        """The id of the folder of this name. Raises: InvalidInput, NotFound."""
        check_text("a folder's name", name)
        folder = await self._ports.store.read(lambda tx: tx.of(Folders).find(name))
        if folder is None:
            raise NotFound("folder", name)
        return folder.id

    @reads
    def sizes(self, tx: Tx, *, with_files: bool = False) -> FolderSizes:
        """How much is in all folders; with `with_files`, also in each of the oldest ones, with its oldest files."""
        found: list[FolderSize] = []
        left = LISTED_FILES
        for folder in tx.of(Folders).list(limit=LISTED_FOLDERS) if with_files else ():
            files = tx.of(Files).list(folder.id, limit=left) if left else ()
            left -= len(files)
            found.append(FolderSize(folder, *tx.of(Files).measure(folder.id), files))
        return FolderSizes(tx.of(Folders).count(), *tx.of(Files).measure(), found)

    async def delete(self, folder_id: FolderId) -> None:
        """Detach the folder from all agents, and remove it with all files, also those added meanwhile.

        Raises: NotFound; StoreFull, StoreError: the text of its files can't be removed now; it is, once it can be, and
            the folder by another call.
        """
        await self.by_id(folder_id).delete()


class AsyncFolderById(AsyncFiles):
    """One folder by its id, which is not looked up before it is used."""

    __repr__ = short_repr("id")

    def __init__(self, app: App, folder_id: FolderId) -> None:
        super().__init__(app)
        self._folder_id = folder_id

    @property
    def id(self) -> FolderId:
        """The folder's id."""
        return self._folder_id

    async def update(self, **changes: Unpack[FolderChanges]) -> AsyncFolder:
        """Change `name`, `description`, `instructions` or `metadata` of the folder and return it; other fields stay.

        Raises: NotFound, InvalidInput, AlreadyExists.
        """
        after = await self._ports.store.write(update_folder, self.id, changes, at=self._ports.clock.now())
        return AsyncFolder(self._app, after)

    async def delete(self) -> None:
        """Remove the folder with its files; see `AsyncFolders.delete`."""
        check_text("folder_id", self.id)
        store, worker = self._ports.store, self._app.service(FileWorker)
        problem_before = worker.held_up
        while True:
            # Step by step, so that nobody waits for a folder of many agents or files; the folder itself goes last.
            while await store.write(_detach_next_agents, self.id):
                pass
            while await store.write(delete_files, self.id, limit=FILES_PER_STEP):
                pass
            worker.wake()
            try:
                await delete(self._ports, lambda tx: tx.of(Folders).delete(self.id))
                return
            except InvalidInput:  # the text of its files is still being removed
                if (problem := worker.held_up) is not None and problem is not problem_before:
                    raise problem from None
                await asyncio.sleep(POLL_S)

    async def agents(self) -> Sequence[AgentId]:
        """The agents that have it, oldest first. Raises: NotFound."""
        return await self.list_agents(Page(LIMIT_MAX, ascending=True))

    @reads
    def list_agents(self, tx: Tx, page: Page) -> Sequence[AgentId]:
        """A page of the agents that have the folder. Raises: NotFound."""
        where = AgentFilter(sharing=("folders", tx.of(Folders).get(self.id).id))
        return [agent.id for agent in tx.agents.page(where=where, **page.arguments)]

    async def list_passages(self, page: Page) -> Sequence[Passage]:
        """A page of the passages that the folder's files are found by. Raises: NotFound."""
        return await self._ports.store.read(lambda tx: passages_page(tx, tx.of(Folders).get(self.id).archive_id, page))


class AsyncFolder(AsyncFolderById):
    """One folder. `info` has its values at look-up time."""

    __repr__ = short_repr("id", "name", "info.file_count")

    def __init__(self, app: App, folder: FolderInfo) -> None:
        super().__init__(app, folder.id)
        self._info = folder

    @property
    def info(self) -> FolderInfo:
        """The folder's values when it was looked up: description, instructions, metadata."""
        return self._info

    @property
    def name(self) -> str:
        """The folder's name when it was looked up."""
        return self._info.name


class AsyncAgentFiles(AsyncPart):
    """The folders that are attached to the agent, and the files that it has open.

    Every method raises NotFound when the agent is gone.
    """

    @writes
    def attach(self, tx: Tx, folder: str, *, open_files: bool = True) -> None:
        """Attach a folder, by name or id; with its first folder an agent gets the tools that read files.

        Args:
            open_files: open its files, and those that are added later, while there is room for them.
        Raises: NotFound.
        """
        check_text("a folder's name or id", folder)
        attach_and_open(tx, self._ports, self._id, find_folder(tx, folder).id, opens=open_files)

    async def detach(self, folder: str) -> None:
        """Take a folder away. Detaching one that the agent does not have is no error. Raises: NotFound."""
        check_text("a folder's name or id", folder)
        await self._ports.store.write(lambda tx: detach_folder(tx, self._id, find_folder(tx, folder).id))

    async def folders(self) -> list[AsyncFolder]:
        """The folders, in the order in which they were attached."""

        def load(tx: Tx) -> Sequence[FolderInfo]:
            """Return the agent's folders. Raises: NotFound."""
            tx.agents.model(self._id)
            return tx.of(Folders).list_by_agent(self._id)

        return [AsyncFolder(self._app, folder) for folder in await self._ports.store.read(load)]

    async def search(self, query: str, *, limit: int = 10) -> Sequence[PassageHit]:
        """The passages of its files that match best, best first. Raises: InvalidInput."""
        check_limit(limit)
        check_text("query", query)
        archives = [folder.info.archive_id for folder in await self.folders()]
        return await self._ports.search.passages(archives, query, limit=limit, skip_deleted=True)

    @reads
    def list(self, tx: Tx, *, is_open: bool | None = None, limit: int = 100) -> Sequence[AgentFile]:
        """The files of its folders: all, the open ones, or the others. Raises: InvalidInput."""
        check_limit(limit)
        tx.agents.model(self._id)
        return tx.of(AgentFiles).list(self._id, is_open=is_open, limit=limit)

    @reads
    def page(self, tx: Tx, page: Page, *, is_open: bool | None = None) -> AgentFilePage:
        """A page of the files of the agent's folders. Raises: NotFound: the agent, or the file that it begins at."""
        one_more = replace(page, limit=page.limit + 1)
        limits = self._limits(tx)
        numbers = {folder.id: folder.number for folder in tx.of(Folders).list_by_agent(self._id)}

        def place(file_id: str) -> tuple[int, int]:
            """Return the position of a file in the order of the page."""
            folder_id, number = place_of(tx, file_id, numbers)
            return numbers[folder_id], number

        found = one_more.load(partial(tx.of(AgentFiles).list, self._id, is_open=is_open), place)
        visible = found[-page.limit :] if page.from_end else found[: page.limit]
        read = partial(self._text_in_view, tx)
        files = [
            (one, read(one.file, one.first_line, one.last_line, limits) if one.is_open else None) for one in visible
        ]
        return AgentFilePage(files=files, has_more=len(found) > page.limit)

    @reads
    def first(self, tx: Tx, agents: Sequence[Agent], *, limit: int) -> Mapping[AgentId, Sequence[FileInView]]:
        """Map each agent to the first files of its folders, up to `limit`, with the texts of open ones."""
        window = self._ports.inputs().window
        limits = {agent.id: limits_of(agent, window(agent)[0]) for agent in agents}
        read = cache(partial(self._text_in_view, tx))  # many agents may show the same lines
        return {
            id_: [
                (file, read(file.file, file.first_line, file.last_line, limits[id_]) if file.is_open else None)
                for file in files
            ]
            for id_, files in tx.of(AgentFiles).list_first([*limits], limit=limit).items()
        }

    @writes
    def open(self, tx: Tx, file: str, *, first_line: int = 1, last_line: int | None = None) -> Sequence[AgentFile]:
        """Show the agent lines of a file from its next message on; return the files that were closed to make room.

        Args:
            file: its id, or a path such as `docs/plan.md`.
        Raises: NotFound; InvalidInput: its text is not there, or there are no such lines.
        """
        check_text("a file's path or id", file)
        check_lines(first_line, last_line)
        ports = self._ports
        found, limits = _find_of_agent(tx, self._id, file), self._limits(tx)
        if found.file.status not in ("completed", "embedding"):
            problem = found.file.problem or "its text is not made yet"
            raise InvalidInput(f"{found.path} can't be opened: {problem}")
        if not 1 <= first_line <= max(1, found.file.line_count):
            raise InvalidInput(f"{found.path} has lines 1 to {found.file.line_count}: there is no line {first_line}")
        open_view(
            tx,
            self._id,
            found,
            limits,
            first=first_line,
            last=last_line,
            tokens=limits.section_tokens,
            counter=ports.counter,
            at=ports.clock.now(),
        )
        return close_oldest(tx, self._id, limits)

    @writes
    def close(self, tx: Tx, file: str) -> None:
        """Take a file out of the agent's view. Raises: NotFound."""
        check_text("a file's path or id", file)
        tx.of(AgentFiles).close(self._id, _find_of_agent(tx, self._id, file).file.id)

    @writes
    def close_all(self, tx: Tx) -> Sequence[AgentFile]:
        """Take all files out of the agent's view, and return them. Raises: NotFound."""
        tx.agents.model(self._id)
        open_files = tx.of(AgentFiles).list_open(self._id)
        for file in open_files:
            tx.of(AgentFiles).close(self._id, file.file.id)
        return open_files

    def _limits(self, tx: Tx) -> FileLimits:
        """The limits of the agent's open files, by its window."""
        agent = tx.agents.get(self._id)
        return limits_of(agent, self._ports.inputs().window(agent)[0])

    def _text_in_view(self, tx: Tx, file: File, first_line: int, last_line: int, limits: FileLimits) -> str:
        """The text of these lines of an open file in an agent's view."""
        view = read_view(
            tx,
            file,
            first_line,
            last_line,
            max_chars=limits.view_chars,
            tokens=limits.section_tokens,
            counter=self._ports.counter,
        )
        return view.whole


def attach_and_open(tx: Tx, ports: Ports, agent_id: AgentId, *folder_ids: FolderId, opens: bool = True) -> None:
    """Give an agent folders, and open their files while there is room. Raises: NotFound."""
    agent = tx.agents.get(agent_id)
    for folder_id in attach_folders(tx, agent_id, *folder_ids, opens=opens):
        if opens and (files := tx.of(Files).list(folder_id, limit=FILES_PER_STEP)):
            limits = limits_of(agent, ports.inputs().window(agent)[0])
            open_if_room(tx, agent_id, files, limits, counter=ports.counter, at=ports.clock.now())


def set_folders(tx: Tx, ports: Ports, agent_id: AgentId, belongings: Mapping[str, Sequence[str]]) -> None:
    """Attach the folders with the ids `belongings["folders"]`, if it is there, and detach others. Raises: NotFound."""
    if (folder_ids := belongings.get("folders")) is not None:
        for folder in tx.of(Folders).list_by_agent(agent_id):
            if folder.id not in folder_ids:
                detach_folder(tx, agent_id, folder.id)
        attach_and_open(tx, ports, agent_id, *map(FolderId, dict.fromkeys(folder_ids)))


def folders_of(tx: Tx, agents: Sequence[AgentId]) -> Mapping[AgentId, Mapping[str, Sequence[FolderInfo]]]:
    """Map each agent to `{"folders": its folders}`, a part of the state of agents."""
    return {agent_id: {"folders": found} for agent_id, found in tx.of(Folders).list_by_agents(agents).items()}


def _detach_next_agents(tx: Tx, folder_id: FolderId) -> int:
    """Detach the folder from its next agents. Returns how many there were; 0: no agent has the folder any more."""
    agents = tx.of(Folders).list_agents(folder_id, limit=AGENTS_PER_STEP)
    for agent_id in agents:
        detach_folder(tx, agent_id, folder_id)
    return len(agents)


def _find_of_agent(tx: Tx, agent_id: AgentId, name_or_id: str) -> AgentFile:
    """The file of this id or path. Raises: NotFound, naming those whose names are alike."""
    tx.agents.model(agent_id)
    if is_id("file", name_or_id):
        return tx.of(AgentFiles).get(agent_id, FileId(name_or_id))
    found = tx.of(AgentFiles).find_by_path(agent_id, name_or_id)
    if not found or (len(found) > 1 and name_or_id not in (found[0].path, found[0].file.name)):
        paths = ", ".join(file.path for file in found[:8])
        hint = f"it may be {paths}" if paths else "it is in none of the agent's folders"
        raise NotFound("file", name_or_id, hint=hint)
    return found[0]
