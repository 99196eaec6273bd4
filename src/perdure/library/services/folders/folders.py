"""Folders: of the whole store, and those of an agent."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from perdure.app import App
from perdure.core.agents import AgentFilter
from perdure.core.errors import InvalidInput, NotFound
from perdure.core.files import File, Folder
from perdure.core.ids import AgentId, FolderId
from perdure.core.passages import Passage
from perdure.domain.files.folders import (
    FolderChanges,
    attach_folder,
    create_folder,
    delete_files,
    detach_folder,
    find_folder,
    update_folder,
)
from perdure.domain.files.views import limits_of, open_if_room
from perdure.engine.conversations.reset import delete
from perdure.engine.ports import Ports
from perdure.library.checks import Page, check_page, check_text
from perdure.library.passages import passages_page
from perdure.storage.tx import Tx

POLL_S = 0.1
"""How often a caller that waits looks whether the worker of files is done."""

FILES_PER_STEP = 200  # of one transaction
AGENTS_PER_STEP = 20

LISTED_FOLDERS, LISTED_FILES = 1_000, 10_000
"""How many folders and files are listed with their sizes."""


@dataclass(frozen=True, slots=True)
class FolderSize:
    """A folder with the number and bytes of its files, and the oldest of them."""

    folder: Folder
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


class FolderService:
    """The operations on folders."""

    def __init__(self, app: App) -> None:
        self._app, self._ports = app, app.ports

    async def create(self, fields: FolderChanges) -> Folder:
        """A new folder that no agent has yet. Raises: InvalidInput; AlreadyExists: its name is taken."""
        ports = self._ports
        return await ports.store.write(create_folder, fields, ids=ports.ids, at=ports.clock.now())

    async def get(self, folder_id: FolderId) -> Folder:
        """Raises: NotFound."""
        return await self._ports.store.read(lambda tx: tx.folders.get(folder_id))

    async def resolve(self, name_or_id: str) -> Folder:
        """The folder of this id or name. Raises: NotFound, naming what there is."""
        check_text("a folder's name or id", name_or_id)
        return await self._ports.store.read(find_folder, name_or_id)

    async def list(self, page: Page, *, name: str | None = None, agent_id: AgentId | None = None) -> Sequence[Folder]:
        """A page of all folders, of those of this name, or of an agent's. Raises: InvalidInput; NotFound: the page
        begins at none; the agent."""
        check_page(page, name=name)
        return await self._ports.store.read(
            lambda tx: page.load(partial(tx.folders.list, name=name, agent_id=agent_id), tx.folders.number)
        )

    async def count(self) -> int:
        """How many folders there are."""
        return await self._ports.store.read(lambda tx: tx.folders.count())

    async def get_id(self, name: str) -> FolderId:
        """The id of the folder of this name. Raises: InvalidInput, NotFound."""
        check_text("a folder's name", name)
        folder = await self._ports.store.read(lambda tx: tx.folders.find(name))
        if folder is None:
            raise NotFound("folder", name)
        return folder.id

    async def list_sizes(self, *, with_files: bool = False) -> FolderSizes:
        """How much is in all folders; with `with_files`, also in each of the oldest ones, with its oldest files."""

        def read(tx: Tx) -> FolderSizes:
            found: list[FolderSize] = []
            left = LISTED_FILES
            for folder in tx.folders.list(limit=LISTED_FOLDERS) if with_files else ():
                files = tx.files.list(folder.id, limit=left) if left else ()
                left -= len(files)
                found.append(FolderSize(folder, *tx.files.measure(folder.id), files))
            return FolderSizes(tx.folders.count(), *tx.files.measure(), found)

        return await self._ports.store.read(read)

    async def update(self, folder_id: FolderId, changes: FolderChanges) -> Folder:
        """The folder with other fields. Raises: NotFound, InvalidInput, AlreadyExists."""
        return await self._ports.store.write(update_folder, folder_id, changes, at=self._ports.clock.now())

    async def delete(self, folder_id: FolderId) -> None:
        """Take the folder from all agents and remove it with its files, also those put into it meanwhile."""
        check_text("folder_id", folder_id)
        store, worker = self._ports.store, self._app.files
        problem_before = worker.held_up
        while True:
            # Step by step, so that nobody waits for a folder of many agents or files; the folder itself goes last.
            while await store.write(_detach_next_agents, folder_id):
                pass
            while await store.write(delete_files, folder_id, limit=FILES_PER_STEP):
                pass
            worker.wake()
            try:
                await delete(self._ports, lambda tx: tx.folders.delete(folder_id))
                return
            except InvalidInput:  # the text of its files is still being removed
                if (problem := worker.held_up) is not None and problem is not problem_before:
                    raise problem from None
                await asyncio.sleep(POLL_S)

    async def list_agents(self, folder_id: FolderId, page: Page) -> Sequence[AgentId]:
        """A page of the agents that have the folder. Raises: NotFound."""

        def load(tx: Tx) -> Sequence[AgentId]:
            where = AgentFilter(folder_id=tx.folders.get(folder_id).id)
            return [agent.id for agent in tx.agents.page(where=where, **page.arguments)]

        return await self._ports.store.read(load)

    async def list_passages(self, folder_id: FolderId, page: Page) -> Sequence[Passage]:
        """A page of the passages that the folder's files are found by. Raises: NotFound."""
        return await self._ports.store.read(lambda tx: passages_page(tx, tx.folders.get(folder_id).archive_id, page))

    # --- those of an agent

    async def list_of_agent(self, agent_id: AgentId) -> Sequence[Folder]:
        """The agent's folders, in the order in which they were attached. Raises: NotFound."""

        def load(tx: Tx) -> Sequence[Folder]:
            tx.agents.model(agent_id)
            return tx.folders.list_by_agent(agent_id)

        return await self._ports.store.read(load)

    async def attach(self, agent_id: AgentId, name_or_id: str, *, opens: bool = True) -> None:
        """Give the agent a folder; with its first one it gets the tools that read files. Twice is no error.

        Args:
            opens: open its files, and those that are added later, while there is room for them.
        Raises: NotFound, TooMany.
        """
        check_text("a folder's name or id", name_or_id)
        await self._ports.store.write(
            lambda tx: attach_and_open(tx, self._ports, agent_id, find_folder(tx, name_or_id).id, opens=opens)
        )

    async def detach(self, agent_id: AgentId, name_or_id: str) -> None:
        """Take a folder away from the agent, and with its last one the tools. One it does not have is no error."""
        check_text("a folder's name or id", name_or_id)
        await self._ports.store.write(lambda tx: detach_folder(tx, agent_id, find_folder(tx, name_or_id).id))


def attach_and_open(tx: Tx, ports: Ports, agent_id: AgentId, folder_id: FolderId, *, opens: bool = True) -> None:
    """Give an agent a folder, and open its files while there is room. Raises: NotFound."""
    if attach_folder(tx, agent_id, folder_id, opens=opens) and opens:
        files = tx.files.list(folder_id, limit=FILES_PER_STEP)
        if not files:
            return
        agent = tx.agents.get(agent_id)
        limits = limits_of(agent, ports.inputs().window(agent)[0])
        open_if_room(tx, agent_id, files, limits, counter=ports.counter, at=ports.clock.now())


def _detach_next_agents(tx: Tx, folder_id: FolderId) -> int:
    """Detach the folder from its next agents. Returns how many there were; 0: no agent has the folder any more."""
    agents = tx.folders.list_agents(folder_id, limit=AGENTS_PER_STEP)
    for agent_id in agents:
        detach_folder(tx, agent_id, folder_id)
    return len(agents)
