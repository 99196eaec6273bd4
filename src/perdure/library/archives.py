"""Archives as people and programs work on them: all of the store, and one with its passages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import Any, Unpack, get_args

from perdure.app import App
from perdure.core.errors import InvalidInput, NotFound
from perdure.core.ids import AgentId, ArchiveId, PassageId, is_id
from perdure.core.passages import Archive, Passage, PassageFilter, TagMatch
from perdure.domain.archives.batching import BATCH, batches
from perdure.domain.archives.passages import (
    NewPassage,
    PassageChanges,
    delete_passage,
    new_passages,
    passage_in,
    update_passage,
)
from perdure.domain.archives.units import (
    ArchiveChanges,
    Selection,
    attach_archive,
    check_own,
    create_archive,
    delete_archive_rows,
    delete_selected,
    detach_archive,
    selected_seqs,
    update_archive,
)
from perdure.domain.values import filter_tags
from perdure.engine.conversations.reset import delete
from perdure.library.checks import check_choice, check_limit, check_number, check_text, utc
from perdure.search.hits import Hits, PassageHit
from perdure.storage.tx import Tx

__all__ = ["AsyncArchive", "AsyncArchives", "changes_in_utc", "passage_filter"]

NAMED_ARCHIVES = 10


class AsyncArchives:
    """All archives of the store. Several agents may share one."""

    def __init__(self, app: App) -> None:
        self._app = app

    async def create(
        self, name: str, *, description: str | None = None, metadata: Mapping[str, Any] | None = None
    ) -> AsyncArchive:
        """A new archive that no agent has yet. Raises: InvalidInput: a field that can't be used."""
        ports = self._app.ports
        archive_id = ArchiveId(ports.ids.new("archive"))
        archive = await ports.store.write(
            create_archive, archive_id, name, at=ports.clock.now(), description=description, metadata=metadata
        )
        return AsyncArchive(self._app, archive)

    async def get(self, name_or_id: str) -> AsyncArchive:
        """The archive of this id or name; of several of one name the newest. Raises: NotFound, naming what there is."""
        check_text("an archive's name or id", name_or_id)
        return AsyncArchive(self._app, await self._app.store.read(_find, name_or_id))

    async def list(
        self, *, name: str | None = None, limit: int = 50, after: ArchiveId | None = None
    ) -> list[AsyncArchive]:
        """Oldest first; `after` is the last one of the page before, `name` the whole name.

        Raises: InvalidInput: a limit below 1 or above 10,000; NotFound: there is no archive `after`.
        """
        check_limit(limit)
        for what, value in (("name", name), ("after", after)):
            if value is not None:
                check_text(what, value)

        def page(tx: Tx) -> Sequence[Archive]:
            above = None if after is None else tx.archives.get(after).number
            return tx.archives.list(name=name, above=above, limit=limit)

        return [AsyncArchive(self._app, archive) for archive in await self._app.store.read(page)]

    async def delete(self, archive_id: ArchiveId) -> None:
        """Remove the archive with its passages, after taking it from all agents.

        The passages go in batches, so that others can write meanwhile. If it is interrupted, what is left is an archive
        of no agent; deleting it again goes on.
        Raises: NotFound, StoreError; InvalidInput: it holds what a folder's files say, and nothing is removed.
        """
        check_text("archive_id", archive_id)
        remove_some = partial(delete_archive_rows, archive_id=archive_id, limit=BATCH)
        while await delete(self._app.ports, remove_some) is not None:
            pass


class AsyncArchive:
    """One archive, as it was when it was looked up; its passages are always read anew."""

    def __init__(self, app: App, archive: Archive) -> None:
        self._app = app
        self.info = archive
        self.id = archive.id
        self.name = archive.name

    async def update(self, **changes: Unpack[ArchiveChanges]) -> AsyncArchive:
        """The archive as changed; this object stays as it was looked up.

        What is not given stays: `name`, `description`, `metadata`, which is replaced as a whole.
        Raises: NotFound; InvalidInput: a value that can't be used, no such field.
        """
        now = self._app.ports.clock.now()
        return AsyncArchive(self._app, await self._app.store.write(update_archive, self.id, changes, at=now))

    async def insert(
        self,
        text: str,
        *,
        tags: Sequence[str] = (),
        metadata: Mapping[str, Any] | None = None,
        source: Mapping[str, Any] | None = None,
        occurred_at: datetime | None = None,
    ) -> Passage:
        """Put a text away; it is found at once.

        Args:
            source: where it came from, such as `{"url": ...}`.
            occurred_at: when it happened, a time with a zone; by default now.
        Raises: InvalidInput: an empty text, one of more than a million characters, a time without a zone; NotFound.
        """
        new = NewPassage(text=text, tags=tags, metadata=metadata or {}, source=source or {}, occurred_at=occurred_at)
        return (await self._insert([new]))[0]

    async def insert_many(self, passages: Sequence[NewPassage | str]) -> list[Passage]:
        """Put texts away, in transactions of up to 500; plain texts have no tags.

        All are looked at before the first is stored. Raises: InvalidInput, naming the first that can't be stored by its
        place from 0; NotFound; StoreError: what was stored before it stays.
        """
        if isinstance(passages, str):
            raise InvalidInput("passages is one text: give a list of texts or NewPassages")
        return await self._insert([NewPassage(text=one) if isinstance(one, str) else one for one in passages])

    async def search(
        self,
        text: str,
        *,
        tags: Sequence[str] = (),
        tag_match: TagMatch = "any",
        since: datetime | None = None,
        until: datetime | None = None,
        limit: int = 10,
        offset: int = 0,
        explain: bool = False,
    ) -> Hits[PassageHit]:
        """The passages that best match, best first; for an empty text the newest ones. Its `ran` says which arms of the
        search took part, and why others did not.

        Args:
            limit, offset: so many hits, and how many before them are passed over; a search finds at most 1,000.
            explain: have each hit say `why` it was found.
            since, until: times with a zone, both included.
        Raises: InvalidInput: a time without a zone, an unknown `tag_match`, a limit below 1 or above 10,000; NotFound.
        """
        check_limit(limit)
        check_number("offset", offset)
        check_text("text", text)
        where = passage_filter(tags, tag_match, since, until)
        return await self._app.search.passages(
            [self.id], text, where=where, limit=limit, offset=offset, explain=explain
        )

    async def passages(
        self,
        *,
        tags: Sequence[str] = (),
        tag_match: TagMatch = "any",
        since: datetime | None = None,
        until: datetime | None = None,
        limit: int = 100,
        after_seq: int = -1,
    ) -> Sequence[Passage]:
        """A page of the passages, oldest first; `after_seq` is the last one's number of the page before.

        Args:
            since, until: times with a zone, both included.
        Raises: InvalidInput: a time without a zone, an unknown `tag_match`, a limit below 1 or above 10,000; NotFound.
        """
        check_limit(limit)
        check_number("after_seq", after_seq)
        where = passage_filter(tags, tag_match, since, until)

        def page(tx: Tx) -> Sequence[Passage]:
            tx.archives.get(self.id)
            return tx.passages.list(self.id, where=where, limit=limit, after_seq=after_seq)

        return await self._app.store.read(page)

    async def passage(self, passage_id: PassageId) -> Passage:
        """A passage of this archive. Raises: NotFound, also for another archive's."""
        check_text("passage_id", passage_id)
        return await self._app.store.read(passage_in, self.id, passage_id)

    async def update_passage(self, passage_id: PassageId, **changes: Unpack[PassageChanges]) -> Passage:
        """The passage with other fields: `text`, `tags`, `metadata`, `source`, `occurred_at`.

        Raises: NotFound, also for another archive's; InvalidInput: a value that can't be used, no such field.
        """
        check_text("passage_id", passage_id)
        given = changes_in_utc(changes)

        def update(tx: Tx) -> Passage:
            return update_passage(tx, passage_in(tx, self.id, passage_id), given)

        return await self._app.store.write(update)

    async def delete_passage(self, passage_id: PassageId) -> None:
        """Remove a passage. Raises: NotFound, also for another archive's."""
        check_text("passage_id", passage_id)

        def delete(tx: Tx) -> None:
            delete_passage(tx, passage_in(tx, self.id, passage_id))

        await self._app.store.write(delete)

    async def delete_where(
        self,
        *,
        text: str = "",
        tags: Sequence[str] = (),
        tag_match: TagMatch = "any",
        since: datetime | None = None,
        until: datetime | None = None,
        dry_run: bool = False,
    ) -> int:
        """Remove the passages that all conditions hold for; how many there were.

        They go in transactions of up to 500, each of which looks again: what was changed meanwhile so that a condition
        no longer holds stays, and what is put away meanwhile may be among them.
        Args:
            text: those that contain it, in any case of its letters.
            dry_run: only count them.
        Raises: InvalidInput: no condition at all, a value that can't be used; NotFound.
        """
        check_text("text", text)
        selection = Selection(where=passage_filter(tags, tag_match, since, until), text=text)
        if selection.everything:
            raise InvalidInput(
                "nothing says which passages to delete: give text, tags, since or until; delete the archive to delete"
                " all of them"
            )
        store = self._app.store
        above, count = -1, 0
        while seqs := await store.read(selected_seqs, self.id, selection, above=above, limit=BATCH):
            if dry_run:
                gone, above = len(seqs), seqs[-1]
            else:
                gone, above = await store.write(delete_selected, self.id, selection, seqs)
            count += gone
        return count

    async def attach_to(self, agent_id: AgentId) -> None:
        """Let an agent find what is in this archive. Attaching twice is no error. Raises: NotFound."""
        check_text("agent_id", agent_id)
        await self._app.store.write(attach_archive, agent_id, self.id)

    async def detach_from(self, agent_id: AgentId) -> None:
        """Take the archive from an agent; its passages stay. Raises: NotFound: no such agent or archive."""
        check_text("agent_id", agent_id)
        await self._app.store.write(detach_archive, agent_id, self.id)

    async def delete(self) -> None:
        """Remove the archive with its passages; see `AsyncArchives.delete`."""
        await AsyncArchives(self._app).delete(self.id)

    async def _insert(self, new: Sequence[NewPassage]) -> list[Passage]:
        ports = self._app.ports
        given, now = [_in_utc(one) for one in new], ports.clock.now()
        passages = new_passages(given, self.id, ids=ports.ids, at=now, limits=self._app.settings)
        added: list[Passage] = []
        for batch in batches(passages):
            added += await ports.store.write(_add, batch)
        return added


def passage_filter(
    tags: Sequence[str], tag_match: TagMatch, since: datetime | None, until: datetime | None
) -> PassageFilter:
    """The filter of these conditions. Raises: InvalidInput: a time without a zone, an unknown `tag_match`."""
    check_choice("tag_match", tag_match, get_args(TagMatch))
    return PassageFilter(
        tags=filter_tags(tags), tag_match=tag_match, since=utc("since", since), until=utc("until", until)
    )


def changes_in_utc(changes: PassageChanges) -> PassageChanges:
    """The changes with their time in UTC. Raises: InvalidInput: a time without a zone."""
    if "occurred_at" not in changes:
        return changes
    moment = utc("occurred_at", changes["occurred_at"])
    if moment is None:
        raise InvalidInput("occurred_at is None: give a datetime with a zone")
    return {**changes, "occurred_at": moment}


def _in_utc(new: NewPassage) -> NewPassage:
    """Raises: InvalidInput: no passage; a time without a zone."""
    if not isinstance(new, NewPassage):
        raise InvalidInput(f"{new!r:.80} is no passage: give a text or a NewPassage")
    return replace(new, occurred_at=utc("occurred_at", new.occurred_at))


def _add(tx: Tx, passages: Sequence[Passage]) -> Sequence[Passage]:
    check_own(tx, passages[0].archive_id)
    return tx.passages.add(passages)


def _find(tx: Tx, name_or_id: str) -> Archive:
    if is_id("archive", name_or_id):
        return tx.archives.get(ArchiveId(name_or_id))
    found = tx.archives.list(name=name_or_id, newest_first=True, limit=1)
    if not found:
        names = dict.fromkeys(known.name for known in tx.archives.list(newest_first=True))  # several may have one name
        known = ", ".join(map(repr, list(names)[:NAMED_ARCHIVES]))
        raise NotFound("archive", name_or_id, hint=f"there are {known}" if known else "there is none yet")
    return found[0]
