"""The service of passages: insert, list, change and delete them."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import TypedDict, get_args

from perdure.app import App
from perdure.core.errors import InvalidInput, NotFound
from perdure.core.ids import AgentId, ArchiveId, PassageId, derived_id
from perdure.core.passages import PASSAGE_STATES, Passage, PassageFilter, PassageState, TagMatch
from perdure.core.text.forms import name_form
from perdure.domain.archives.passages import (
    NewPassage,
    PassageChanges,
    add_passages,
    delete_passage,
    get_passage,
    insert_passage,
    list_passages,
    new_passages,
    own_archive,
    page_of_text,
    restore_passage,
    update_passage,
)
from perdure.domain.archives.units import Selection, delete_selected, select_seqs
from perdure.domain.values import BATCH, batches, filter_tags
from perdure.library.checks import Page, check_choice, check_limit, check_number, check_text, current_principal, utc
from perdure.storage.tx import Tx


class PassageConditions(TypedDict, total=False):
    """Which passages of an archive: those with any or all of these tags, a time from `since` up to `until`, and one of
    these states."""

    tags: Sequence[str]
    tag_match: TagMatch
    since: datetime | None
    until: datetime | None
    states: Sequence[PassageState]


class PassageService:
    """The operations on the passages of one archive, and of all archives of an agent."""

    def __init__(self, app: App) -> None:
        self._ports, self._settings = app.ports, app.settings

    async def insert(self, archive_id: ArchiveId, new: Sequence[NewPassage]) -> list[Passage]:
        """Store texts as passages, in transactions of up to 500. All are checked before the first is stored."""
        ports, now = self._ports, self._ports.clock.now()
        new = [from_outside(one) for one in new]
        passages = new_passages(new, archive_id, ids=ports.ids, at=now, limits=self._settings)
        if not passages:
            await ports.store.read(lambda tx: tx.archives.get(archive_id))
        added: list[Passage] = []
        for batch in batches(passages):
            embeddings = [one.embedding for one in new[len(added) : len(added) + len(batch)]]
            added += await ports.store.write(add_passages, batch, embeddings)
        return added

    async def insert_of_agent(self, agent_id: AgentId, new: NewPassage) -> Passage:
        """Store a text in the agent's own archive, which is created with its first text."""
        ports, now = self._ports, self._ports.clock.now()
        new = from_outside(new)

        def insert(tx: Tx) -> Passage:
            tx.agents.model(agent_id)
            archive = own_archive(tx, agent_id, ArchiveId(ports.ids.new("archive")), at=now)
            return insert_passage(tx, archive.id, new, ids=ports.ids, at=now)

        passage = await ports.store.write(insert)
        ports.waiting.note((agent_id, 0))
        return passage

    async def get(self, archive_id: ArchiveId, passage_id: PassageId) -> Passage:
        """The passage of this id. Raises: NotFound, also for one of another archive."""
        check_text("passage_id", passage_id)
        return await self._ports.store.read(get_passage, archive_id, passage_id)

    async def put_named(self, archive_id: ArchiveId, name: Sequence[str], new: NewPassage) -> Passage:
        """Store a text under a name: the passage that has it changes, or is added. Raises: InvalidInput, NotFound."""
        ports, at = self._ports, self._ports.clock.now()
        new = from_outside(new)

        def put(tx: Tx) -> Passage:
            (passage,) = new_passages([new], archive_id, ids=ports.ids, at=at, limits=tx.limits)
            if not (known := _find_named(tx, archive_id, name)):
                id_ = _named_passage(archive_id, name_form(name))
                return add_passages(tx, [replace(passage, id=id_)], [new.embedding])[0]
            fields: PassageChanges = {"text": passage.text, "tags": passage.tags, "metadata": passage.metadata}
            return update_passage(
                tx, tx.passages.get(known[0]), {**fields, "occurred_at": passage.occurred_at}, at=ports.clock.now()
            )

        return await ports.store.write(put)

    async def find_named(self, archive_id: ArchiveId, name: Sequence[str]) -> Passage | None:
        """The passage of this name; None: there is none."""
        return await self._ports.store.read(
            lambda tx: next(map(tx.passages.get, _find_named(tx, archive_id, name)), None)
        )

    async def delete_named(self, archive_id: ArchiveId, name: Sequence[str]) -> None:
        """Remove the passage of this name, if there is one."""

        def delete(tx: Tx) -> None:
            for id_ in _find_named(tx, archive_id, name):
                delete_passage(tx, tx.passages.get(id_), at=self._ports.clock.now())

        await self._ports.store.write(delete)

    async def list(
        self, archive_id: ArchiveId, page: Page, *, where: PassageFilter | None = None, text: str | None = None
    ) -> Sequence[Passage]:
        """A page of an archive's passages, those that contain `text` in any case. Raises: InvalidInput, NotFound."""
        return await self._ports.store.read(passages_page, archive_id, page, where=where, text=text)

    async def list_after(
        self, owner_id: ArchiveId | AgentId, after_seq: int, *, where: PassageFilter, limit: int
    ) -> Sequence[Passage]:
        """The passages after the number `after_seq`, oldest first: of an archive, or of the one that an agent stores
        its texts in. Raises: InvalidInput, NotFound."""
        check_limit(limit)
        check_number("after_seq", after_seq)
        return await self._ports.store.read(list_passages, owner_id, where=where, limit=limit, after_seq=after_seq)

    async def list_of_agent(
        self, agent_id: AgentId, page: Page, *, text: str | None = None, where: PassageFilter | None = None
    ) -> Sequence[Passage]:
        """A page over all archives of the agent, one after the other in the order in which they were attached.

        Raises: NotFound: there is no such agent; the page begins at none of its passages.
        """
        return await self._ports.store.read(_load_agent_page, agent_id, page, text, where)

    async def update(self, owner_id: ArchiveId | AgentId, passage_id: PassageId, changes: PassageChanges) -> Passage:
        """Change fields of a passage and return it. Raises: InvalidInput; NotFound, also for another owner's."""
        check_text("passage_id", passage_id)
        changes, now = changes_in_utc(changes), self._ports.clock.now()
        return await self._ports.store.write(
            lambda tx: update_passage(tx, get_passage(tx, owner_id, passage_id), changes, at=now)
        )

    async def restore(self, passage_id: PassageId, owner_id: ArchiveId | AgentId | None = None) -> Passage:
        """Have a faded or archived passage found again, and return it. Raises: NotFound, also for another owner's."""
        check_text("passage_id", passage_id)
        now = self._ports.clock.now()

        def restore(tx: Tx) -> Passage:
            found = tx.passages.get(passage_id) if owner_id is None else get_passage(tx, owner_id, passage_id)
            return restore_passage(tx, found, at=now)

        return await self._ports.store.write(restore)

    async def delete(self, owner_id: ArchiveId | AgentId, passage_id: PassageId) -> None:
        """Remove a passage of an archive or agent. Raises: NotFound, also for another's."""
        check_text("passage_id", passage_id)
        now = self._ports.clock.now()
        await self._ports.store.write(lambda tx: delete_passage(tx, get_passage(tx, owner_id, passage_id), at=now))

    async def delete_where(self, archive_id: ArchiveId, selection: Selection, *, dry_run: bool = False) -> int:
        """Delete the selected passages, or only count them; return how many. Each transaction of 500 selects again."""
        check_text("text", selection.text)
        if selection.everything:
            raise InvalidInput(
                "nothing says which passages to delete: give text, tags, since or until; delete the archive to delete"
                " all of them"
            )
        store, now = self._ports.store, self._ports.clock.now()
        above, count = -1, 0
        while seqs := await store.read(select_seqs, archive_id, selection, above=above, limit=BATCH):
            if dry_run:
                deleted, above = len(seqs), seqs[-1]
            else:
                deleted, above = await store.write(delete_selected, archive_id, selection, seqs, at=now)
            count += deleted
        return count


def _named_passage(archive_id: ArchiveId, name: Sequence[str]) -> PassageId:
    """The id of the passage that has this name in an archive."""
    return PassageId(derived_id("passage", archive_id, *name))


def _find_named(tx: Tx, archive_id: ArchiveId, name: Sequence[str]) -> Sequence[PassageId]:
    """The passage of this name, if there is one, and those that older versions stored under another form of it: other
    things lead to a passage by its id, so they keep theirs."""
    forms = (name_form(name), name, [unicodedata.normalize("NFD", part) for part in name])
    ids = dict.fromkeys(_named_passage(archive_id, form) for form in forms)
    found = tx.passages.find_places(list(ids))
    return [id_ for id_ in ids if id_ in found]


def passage_filter(
    *,
    tags: Sequence[str] = (),
    tag_match: TagMatch = "any",
    since: datetime | None = None,
    until: datetime | None = None,
    states: Sequence[PassageState] = (),
) -> PassageFilter:
    """The filter of these conditions. Raises: InvalidInput: a time without a zone, an unknown `tag_match` or state."""
    check_choice("tag_match", tag_match, get_args(TagMatch))
    for state in states:
        check_choice("a state", state, PASSAGE_STATES)
    return PassageFilter(
        tags=filter_tags(tags),
        tag_match=tag_match,
        since=utc("since", since),
        until=utc("until", until),
        states=tuple(states),
    )


def passages_page(
    tx: Tx, archive_id: ArchiveId, page: Page, *, where: PassageFilter | None = None, text: str | None = None
) -> Sequence[Passage]:
    """A page of an archive's passages. Raises: NotFound: no such archive, or the cursor is not one of its passages."""
    tx.archives.get(archive_id)
    query = partial(page_of_text, tx, archive_id, text, where=where)

    def place_of(cursor: str) -> int:
        owner, seq = tx.passages.place(PassageId(cursor))
        if owner != archive_id:
            raise NotFound("passage", cursor, hint="it is in another archive")
        return seq

    return page.load(query, place_of)


def _load_agent_page(
    tx: Tx, agent_id: AgentId, page: Page, text: str | None, where: PassageFilter | None
) -> Sequence[Passage]:
    """A page over the agent's archives. Raises: NotFound."""
    tx.agents.model(agent_id)
    archives = [archive.id for archive in tx.archives.list_by_agent(agent_id)]

    def place_of(cursor: str) -> tuple[int, int]:
        """The archive's place among the agent's, and the passage's number in it."""
        owner, seq = tx.passages.place(PassageId(cursor))
        if owner not in archives:
            name = "after" if cursor == page.after else "before"
            raise NotFound("passage", cursor, hint=f"`{name}` must be one of the list")
        return archives.index(owner), seq

    def query(
        *, above: tuple[int, int] | None, below: tuple[int, int] | None, newest_first: bool, limit: int
    ) -> Sequence[Passage]:
        first = 0 if above is None else above[0]
        last = len(archives) - 1 if below is None else below[0]
        found: list[Passage] = []
        for place in range(last, first - 1, -1) if newest_first else range(first, last + 1):
            if len(found) == limit:
                break
            found += page_of_text(
                tx,
                archives[place],
                text,
                where=where,
                above=above[1] if above is not None and place == above[0] else None,
                below=below[1] if below is not None and place == below[0] else None,
                newest_first=newest_first,
                limit=limit - len(found),
            )
        return found

    return page.load(query, place_of)


def changes_in_utc(changes: PassageChanges) -> PassageChanges:
    """The changes with their time in UTC. Raises: InvalidInput: a time without a zone."""
    if "occurred_at" not in changes:
        return changes
    moment = utc("occurred_at", changes["occurred_at"])
    if moment is None:
        raise InvalidInput("occurred_at is None: give a datetime with a zone")
    return {**changes, "occurred_at": moment}


def from_outside(new: NewPassage) -> NewPassage:
    """The passage with its time in UTC, and the user or key who stores it in its source. Raises: InvalidInput: no
    passage; a time without a zone."""
    if not isinstance(new, NewPassage):
        raise InvalidInput(f"{new!r:.80} is no passage: give a text or a NewPassage")
    principal = current_principal.get()
    author = principal.user_id or principal.key_id
    source = {**new.source, "author_id": author} if author else new.source
    return replace(new, occurred_at=utc("occurred_at", new.occurred_at), source=source)
