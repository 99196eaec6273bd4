"""Archives: made, found, changed, shared and removed. What is in them is in `services.passages`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from perdure.app import App
from perdure.core.errors import NotFound
from perdure.core.ids import AgentId, ArchiveId, is_id
from perdure.core.passages import Archive
from perdure.domain.archives.units import (
    ArchiveChanges,
    attach_archive,
    create_archive,
    delete_archive_rows,
    detach_archive,
    update_archive,
)
from perdure.domain.values import BATCH
from perdure.engine.conversations.reset import delete
from perdure.library.checks import LIMIT_MAX, Page, check_page, check_text
from perdure.storage.tx import Tx

Changes = ArchiveChanges | Callable[[Archive], ArchiveChanges]
"""New values of some fields, or a function that makes them from the archive as it is."""

NAMES_SHOWN = 10


class ArchiveService:
    """The operations on archives."""

    def __init__(self, app: App) -> None:
        self._ports = app.ports

    async def create(self, fields: ArchiveChanges) -> Archive:
        """A new archive that no agent has yet. Raises: InvalidInput: a field that can't be used."""
        ports = self._ports
        archive_id, now = ArchiveId(ports.ids.new("archive")), ports.clock.now()
        return await ports.store.write(create_archive, archive_id, fields, at=now)

    async def get(self, archive_id: ArchiveId) -> Archive:
        """Raises: NotFound."""
        return await self._ports.store.read(lambda tx: tx.archives.get(archive_id))

    async def resolve(self, name_or_id: str) -> Archive:
        """The archive of this id or name; of several of one name the newest. Raises: NotFound, naming what there is."""
        check_text("an archive's name or id", name_or_id)
        return await self._ports.store.read(_resolve_archive, name_or_id)

    async def open(self, name: str) -> Archive:
        """The oldest archive of this name, a new one if there is none. Raises: InvalidInput."""
        ports = self._ports
        archive_id, now = ArchiveId(ports.ids.new("archive")), ports.clock.now()

        def find_or_create(tx: Tx) -> Archive:
            tx.archives.lock_names()
            found = tx.archives.list(name=name, limit=1)
            return found[0] if found else create_archive(tx, archive_id, {"name": name}, at=now)

        return await ports.store.write(find_or_create)

    async def tags(self, archive_id: ArchiveId) -> Sequence[str]:
        """The tags of an archive's passages, the most used first; at most 10,000."""
        tags = await self._ports.store.read(lambda tx: tx.archives.tags(archive_id, limit=LIMIT_MAX))
        return [tag for tag, _ in tags]

    async def list(self, page: Page, *, agent_id: AgentId | None = None, name: str | None = None) -> Sequence[Archive]:
        """A page of all archives or of an agent's; `name` is the whole name. Raises: InvalidInput, NotFound."""
        check_page(page, name=name)

        def load(tx: Tx) -> Sequence[Archive]:
            if agent_id is not None:
                tx.agents.model(agent_id)
            query = partial(tx.archives.list, agent_id=agent_id, name=name)
            return page.load(query, tx.archives.number)

        return await self._ports.store.read(load)

    async def list_of_agent(self, agent_id: AgentId) -> Sequence[Archive]:
        """The agent's archives, in the order of attachment; the first takes its texts. Raises: NotFound."""

        def load(tx: Tx) -> Sequence[Archive]:
            tx.agents.model(agent_id)
            return tx.archives.list_by_agent(agent_id)

        return await self._ports.store.read(load)

    async def list_agents(self, archive_id: ArchiveId, *, limit: int) -> Sequence[AgentId]:
        """The ids of agents that have the archive, in order; none for an unknown one."""
        return await self._ports.store.read(lambda tx: tx.archives.list_agents(archive_id, limit=limit))

    async def update(self, archive_id: ArchiveId, changes: Changes) -> Archive:
        """The archive with other fields. Raises: NotFound, InvalidInput."""
        now = self._ports.clock.now()

        def update(tx: Tx) -> Archive:
            fields = changes(tx.archives.get(archive_id)) if callable(changes) else changes
            return update_archive(tx, archive_id, fields, at=now)

        return await self._ports.store.write(update)

    async def delete(self, archive_id: ArchiveId) -> None:
        """Remove the archive with its passages, batch by batch, after taking it from all agents."""
        check_text("archive_id", archive_id)
        delete_some = partial(delete_archive_rows, archive_id=archive_id, limit=BATCH, at=self._ports.clock.now())
        while await delete(self._ports, delete_some) is not None:
            pass

    async def attach(self, agent_id: AgentId, archive_id: ArchiveId) -> None:
        """Let an agent find what is in the archive; twice is no error. Raises: NotFound, InvalidInput."""
        check_text("agent_id", agent_id)
        check_text("archive_id", archive_id)
        await self._ports.store.write(attach_archive, agent_id, archive_id)

    async def detach(self, agent_id: AgentId, archive_id: ArchiveId) -> None:
        """Take the archive from an agent; its passages stay. Raises: NotFound, InvalidInput."""
        check_text("agent_id", agent_id)
        check_text("archive_id", archive_id)
        await self._ports.store.write(detach_archive, agent_id, archive_id)


def _resolve_archive(tx: Tx, name_or_id: str) -> Archive:
    if is_id("archive", name_or_id):
        return tx.archives.get(ArchiveId(name_or_id))
    found = tx.archives.list(name=name_or_id, newest_first=True, limit=1)
    if not found:
        names = dict.fromkeys(known.name for known in tx.archives.list(newest_first=True))  # several may have one name
        known = ", ".join(map(repr, list(names)[:NAMES_SHOWN]))
        raise NotFound("archive", name_or_id, hint=f"there are {known}" if known else "there is none yet")
    return found[0]
