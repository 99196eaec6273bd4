"""The archives of the store, one archive with its passages, and the archives of an agent."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import Any, Unpack

from perdure.app import App
from perdure.core.errors import InvalidInput, NotFound
from perdure.core.ids import AgentId, ArchiveId, PassageId, derived_id, is_id
from perdure.core.passages import Archive as ArchiveInfo
from perdure.core.passages import Passage, PassageFilter
from perdure.core.text.forms import name_form
from perdure.core.text.reprs import short_repr
from perdure.domain.archives import units
from perdure.domain.archives.passages import (
    NewPassage,
    PassageChanges,
    add_passages,
    delete_passage,
    new_passages,
    restore_passage,
    update_passage,
)
from perdure.domain.values import BATCH, batches
from perdure.engine.conversations.reset import delete
from perdure.library.memory.passages import (
    AsyncPassages,
    PassageConditions,
    from_outside,
    passage_filter,
    passages_page,
)
from perdure.library.memory.search import AsyncSearch
from perdure.library.parts.checks import LIMIT_MAX, Page, check_page, check_text
from perdure.library.parts.part import AsyncPart, reads, writes
from perdure.search.ranking.hits import Hits, PassageHit
from perdure.storage.tx import Tx

Changes = units.ArchiveChanges | Callable[[ArchiveInfo], units.ArchiveChanges]
"""New values of some fields, or a function that makes them from the archive as it is."""

NAMES_SHOWN = 10


class AsyncArchives(AsyncPart):
    """All archives of the store. Several agents may share one."""

    async def create(
        self, name: str, *, description: str | None = None, metadata: Mapping[str, Any] | None = None
    ) -> AsyncArchive:
        """A new archive that no agent has yet. Raises: InvalidInput: a field that can't be used."""
        fields: units.ArchiveChanges = {"name": name, "description": description}
        return await self.add({**fields, "metadata": {} if metadata is None else metadata})

    async def add(self, fields: units.ArchiveChanges) -> AsyncArchive:
        """A new archive that no agent has yet. Raises: InvalidInput: a field that can't be used."""
        ports = self._ports
        archive_id, now = ArchiveId(ports.ids.new("archive")), ports.clock.now()
        return AsyncArchive(self._app, await ports.store.write(units.create_archive, archive_id, fields, at=now))

    async def get(self, name_or_id: str) -> AsyncArchive:
        """The archive of this id or name; of several of one name the newest. Raises: NotFound, naming what there is."""
        check_text("an archive's name or id", name_or_id)
        return AsyncArchive(self._app, await self._ports.store.read(_resolve_archive, name_or_id))

    async def open(self, name: str) -> AsyncArchive:
        """The oldest archive of this name, a new one if there is none. Raises: InvalidInput."""
        ports = self._ports
        archive_id, now = ArchiveId(ports.ids.new("archive")), ports.clock.now()

        def find_or_create(tx: Tx) -> ArchiveInfo:
            """Return the oldest archive of this name, or a new one."""
            tx.archives.lock_names()
            found = tx.archives.list(name=name, limit=1)
            return found[0] if found else units.create_archive(tx, archive_id, {"name": name}, at=now)

        return AsyncArchive(self._app, await ports.store.write(find_or_create))

    async def list(
        self, *, name: str | None = None, limit: int = 50, after: ArchiveId | None = None
    ) -> list[AsyncArchive]:
        """A page of the archives, oldest first; `after` is the last one of the page before, `name` the whole name.

        Raises: InvalidInput: a limit below 1 or above 10,000; NotFound: there is no archive `after`.
        """
        archives = await self.page(Page(limit, ascending=True, after=after), name=name)
        return [AsyncArchive(self._app, archive) for archive in archives]

    @reads
    def page(
        self, tx: Tx, page: Page, *, agent_id: AgentId | None = None, name: str | None = None
    ) -> Sequence[ArchiveInfo]:
        """A page of all archives or of an agent's; `name` is the whole name. Raises: InvalidInput, NotFound."""
        check_page(page, name=name)
        if agent_id is not None:
            tx.agents.model(agent_id)
        query = partial(tx.archives.list, agent_id=agent_id, name=name)
        return page.load(query, tx.archives.number)

    async def delete(self, archive_id: ArchiveId) -> None:
        """Remove the archive with its passages, after taking it from all agents.

        The passages are deleted in batches, so that others can write meanwhile. If it is interrupted, delete it again.
        Raises: NotFound, StoreError; InvalidInput: it holds what a folder's files say, and nothing is removed.
        """
        await AsyncArchiveById(self._app, archive_id).delete()

    async def restore_passage(self, passage_id: PassageId) -> Passage:
        """Have a passage of any archive found again that has faded or is archived; return it. Raises: NotFound."""
        check_text("passage_id", passage_id)
        now = self._ports.clock.now()
        return await self._ports.store.write(lambda tx: restore_passage(tx, tx.passages.get(passage_id), at=now))


class AsyncArchiveById(AsyncPassages):
    """One archive, which nobody has looked up: its passages are read at each call."""

    __repr__ = short_repr("id")

    def __init__(self, app: App, archive_id: ArchiveId) -> None:
        super().__init__(app, archive_id)
        self._archive_id = archive_id

    @property
    def id(self) -> ArchiveId:
        """The archive's id."""
        return self._archive_id

    async def update(self, **changes: Unpack[units.ArchiveChanges]) -> AsyncArchive:
        """Change fields of the archive and return it; this object keeps its old values.

        Args:
            changes: `name`, `description`, and `metadata`, which is replaced as a whole. A missing field stays.
        Raises: NotFound; InvalidInput: a value that can't be used, no such field.
        """
        return AsyncArchive(self._app, await self.edit(changes))

    @writes
    def edit(self, tx: Tx, changes: Changes) -> ArchiveInfo:
        """Change fields of the archive, and return it as changed. Raises: NotFound, InvalidInput."""
        now = self._ports.clock.now()
        fields = changes(tx.archives.get(self.id)) if callable(changes) else changes
        return units.update_archive(tx, self.id, fields, at=now)

    async def insert(
        self,
        text: str,
        *,
        tags: Sequence[str] = (),
        metadata: Mapping[str, Any] | None = None,
        source: Mapping[str, Any] | None = None,
        occurred_at: datetime | None = None,
    ) -> Passage:
        """Store a text as a passage. Searches find it at once.

        Args:
            source: where it came from, such as `{"url": ...}`.
            occurred_at: when it happened, a time with a zone; by default now.
        Raises: InvalidInput: an empty text, one of more than a million characters, a time without a zone; NotFound.
        """
        new = NewPassage(text=text, tags=tags, metadata=metadata or {}, source=source or {}, occurred_at=occurred_at)
        return (await self.insert_many([new]))[0]

    async def insert_many(self, passages: Sequence[NewPassage | str]) -> list[Passage]:
        """Store texts as passages, in transactions of up to 500; plain texts have no tags.

        All are checked before the first is stored. Raises: InvalidInput, naming the first that can't be stored by its
        place from 0; NotFound; StoreError: what was stored before it stays.
        """
        if isinstance(passages, str):
            raise InvalidInput("passages is one text: give a list of texts or NewPassages")
        ports, now = self._ports, self._ports.clock.now()
        new = [from_outside(passage) for passage in passages]
        checked = new_passages(new, self.id, ids=ports.ids, at=now, limits=self._app.settings)
        if not checked:
            await ports.store.read(lambda tx: tx.archives.get(self.id))
        added: list[Passage] = []
        for batch in batches(checked):
            embeddings = [one.embedding for one in new[len(added) : len(added) + len(batch)]]
            added += await ports.store.write(add_passages, batch, embeddings)
        return added

    async def search(
        self,
        text: str,
        *,
        limit: int = 10,
        offset: int = 0,
        explain: bool = False,
        **conditions: Unpack[PassageConditions],
    ) -> Hits[PassageHit]:
        """The passages that best match, best first; for an empty text the newest ones. `ran` of the result says which
        arms of the search took part, and why others did not.

        Args:
            limit, offset: how many hits to return, and how many to skip before them; a search finds at most 1,000.
            explain: whether each hit says `why` it was found.
            conditions: `tags` and `tag_match`: only passages that have "any" (the default) or "all" of the tags;
                `since` and `until`: only passages of this time; times with a zone, both included; `states`: only
                those in these, of "active", "faded" and "archived"; by default the first two.
        Raises: InvalidInput: a time without a zone, an unknown `tag_match`, a limit below 1 or above 10,000; NotFound.
        """
        where = passage_filter(**conditions)
        return await AsyncSearch(self._app).search_passages(
            text, where, archive_id=self.id, limit=limit, offset=offset, explain=explain
        )

    async def list_passages(
        self, page: Page, *, where: PassageFilter | None = None, text: str | None = None
    ) -> Sequence[Passage]:
        """A page of the passages, those that contain `text` in any case. Raises: InvalidInput, NotFound."""
        return await self._ports.store.read(passages_page, self.id, page, where=where, text=text)

    @writes
    def put_named(self, tx: Tx, name: Sequence[str], new: NewPassage | str) -> Passage:
        """Store a text as the passage of this name (its parts): changed, or added. Raises: InvalidInput, NotFound."""
        ports, at = self._ports, self._ports.clock.now()
        new = from_outside(new)
        (passage,) = new_passages([new], self.id, ids=ports.ids, at=at, limits=tx.limits)
        if not (passage_ids := _find_named(tx, self.id, name)):
            id_ = _named_passage(self.id, name_form(name))
            return add_passages(tx, [replace(passage, id=id_)], [new.embedding])[0]
        fields: PassageChanges = {"text": passage.text, "tags": passage.tags, "metadata": passage.metadata}
        return update_passage(
            tx, tx.passages.get(passage_ids[0]), {**fields, "occurred_at": passage.occurred_at}, at=ports.clock.now()
        )

    @writes
    def change_named(self, tx: Tx, name: Sequence[str], change: Callable[[Passage], PassageChanges]) -> None:
        """Change the passage of this name, if any, by `change`, in one transaction. Raises: InvalidInput."""
        for id_ in _find_named(tx, self.id, name):
            passage = tx.passages.get(id_)
            update_passage(tx, passage, change(passage), at=self._ports.clock.now())

    async def find_named(self, name: Sequence[str]) -> Passage | None:
        """The passage of this name; None: there is none."""
        return await self._ports.store.read(lambda tx: next(map(tx.passages.get, _find_named(tx, self.id, name)), None))

    @writes
    def delete_named(self, tx: Tx, name: Sequence[str]) -> None:
        """Remove the passage of this name, if there is one."""
        for id_ in _find_named(tx, self.id, name):
            delete_passage(tx, tx.passages.get(id_), at=self._ports.clock.now())

    async def delete_where(
        self, *, text: str = "", dry_run: bool = False, **conditions: Unpack[PassageConditions]
    ) -> int:
        """Delete the passages that meet all conditions, up to 500 in a transaction; return how many they are.

        Args:
            text: only passages that contain it, in any letter case.
            dry_run: only count them.
            conditions: `tags` and `tag_match`: only passages that have "any" (the default) or "all" of the tags;
                `since` and `until`: only passages of this time; times with a zone, both included; `states`: only
                those in one of these.
        Raises: InvalidInput: no condition at all, a value that can't be used; NotFound.
        """
        selection = units.Selection(where=passage_filter(**conditions), text=text)
        return await self.delete_selection(selection, dry_run=dry_run)

    async def delete_selection(self, selection: units.Selection, *, dry_run: bool = False) -> int:
        """Delete the selected passages, or only count them; return how many. Each transaction of 500 selects again."""
        check_text("text", selection.text)
        if selection.everything:
            raise InvalidInput(
                "nothing says which passages to delete: give text, tags, since or until; delete the archive to delete"
                " all of them"
            )
        store, now = self._ports.store, self._ports.clock.now()
        above, count = -1, 0
        while seqs := await store.read(units.select_seqs, self.id, selection, above=above, limit=BATCH):
            if dry_run:
                deleted, above = len(seqs), seqs[-1]
            else:
                deleted, above = await store.write(units.delete_selected, self.id, selection, seqs, at=now)
            count += deleted
        return count

    async def tags(self) -> Sequence[str]:
        """The tags of the passages, the most used first; at most 10,000."""
        tags = await self._ports.store.read(lambda tx: tx.archives.tags(self.id, limit=LIMIT_MAX))
        return [tag for tag, _ in tags]

    async def agents(self, *, limit: int) -> Sequence[AgentId]:
        """The ids of agents that have the archive, in order; none for an unknown one."""
        return await self._ports.store.read(lambda tx: tx.archives.list_agents(self.id, limit=limit))

    async def attach_to(self, agent_id: AgentId) -> None:
        """Let an agent find what is in this archive. Attaching twice is no error. Raises: NotFound."""
        await AsyncAgentArchives(self._app, agent_id).attach(self.id)

    async def detach_from(self, agent_id: AgentId) -> None:
        """Take the archive from an agent; its passages stay. Raises: NotFound: no such agent or archive."""
        await AsyncAgentArchives(self._app, agent_id).detach(self.id)

    async def delete(self) -> None:
        """Remove the archive with its passages; see `AsyncArchives.delete`."""
        check_text("archive_id", self.id)
        delete_some = partial(units.delete_archive_rows, archive_id=self.id, limit=BATCH, at=self._ports.clock.now())
        while await delete(self._ports, delete_some) is not None:
            pass


class AsyncArchive(AsyncArchiveById):
    """One archive. `info` has its values at look-up time; its passages are read at each call."""

    __repr__ = short_repr("id", "name", "info.passage_count")

    def __init__(self, app: App, archive: ArchiveInfo) -> None:
        super().__init__(app, archive.id)
        self._info = archive

    @property
    def info(self) -> ArchiveInfo:
        """The archive's values when it was looked up: description, metadata, number of passages."""
        return self._info

    @property
    def name(self) -> str:
        """The archive's name when it was looked up."""
        return self._info.name


class AsyncAgentArchives(AsyncPart):
    """The archives of one agent; the first of them takes the texts that the agent stores."""

    @reads
    def list(self, tx: Tx) -> list[AsyncArchive]:
        """The archives, in the order in which they were attached."""
        tx.agents.model(self._id)
        return [AsyncArchive(self._app, archive) for archive in tx.archives.list_by_agent(self._id)]

    async def attach(self, archive_id: ArchiveId) -> None:
        """Let the agent find what is in an archive. Attaching twice is no error. Raises: NotFound."""
        check_text("agent_id", self._id)
        check_text("archive_id", archive_id)
        await self._ports.store.write(units.attach_archive, self._id, archive_id)

    async def detach(self, archive_id: ArchiveId) -> None:
        """Take an archive from the agent; its passages stay. Raises: NotFound."""
        check_text("agent_id", self._id)
        check_text("archive_id", archive_id)
        await self._ports.store.write(units.detach_archive, self._id, archive_id)


def _resolve_archive(tx: Tx, name_or_id: str) -> ArchiveInfo:
    """The archive of this id or name; of several of one name the newest. Raises: NotFound, naming what there is."""
    if is_id("archive", name_or_id):
        return tx.archives.get(ArchiveId(name_or_id))
    found = tx.archives.list(name=name_or_id, newest_first=True, limit=1)
    if not found:
        names = dict.fromkeys(known.name for known in tx.archives.list(newest_first=True))  # several may have one name
        known = ", ".join(map(repr, list(names)[:NAMES_SHOWN]))
        raise NotFound("archive", name_or_id, hint=f"there are {known}" if known else "there is none yet")
    return found[0]


def _named_passage(archive_id: ArchiveId, name: Sequence[str]) -> PassageId:
    """Return the id of the passage with this name in an archive, which is derived from the name."""
    return PassageId(derived_id("passage", archive_id, *name))


def _find_named(tx: Tx, archive_id: ArchiveId, name: Sequence[str]) -> Sequence[PassageId]:
    """Return the ids under which this and older versions store the passage of this name, as far as they exist."""
    forms = (name_form(name), name, [unicodedata.normalize("NFD", part) for part in name])
    ids = dict.fromkeys(_named_passage(archive_id, form) for form in forms)
    found = tx.passages.find_places(list(ids))
    return [id_ for id_ in ids if id_ in found]
