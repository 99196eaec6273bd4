"""The passages of an archive, and those of an agent: found, changed, deleted."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import TypedDict, TypeVar, Unpack, get_args

from perdure.app import App
from perdure.core.errors import InvalidInput, NotFound
from perdure.core.forgetting.corrections import Correction, CorrectionItem
from perdure.core.ids import AgentId, ArchiveId, PassageId, is_id
from perdure.core.passages import PASSAGE_STATES, Passage, PassageFilter, PassageState, TagMatch
from perdure.core.sources import TRUSTED, TrustLabel
from perdure.domain.archives.passages import (
    NewPassage,
    PassageChanges,
    delete_passage,
    get_passage,
    insert_passage,
    list_passages,
    own_archive,
    page_of_text,
    restore_passage,
    shelve_passage,
    update_passage,
)
from perdure.domain.corrections import passage_item, record
from perdure.domain.provenance.context import writes_of_passages
from perdure.domain.values import as_tags, filter_tags
from perdure.library.memory.search import AsyncSearch
from perdure.library.parts.checks import (
    Page,
    check_choice,
    check_limit,
    check_number,
    check_text,
    current_principal,
    utc,
)
from perdure.library.parts.part import AsyncPart, reads, writes
from perdure.search.ranking.hits import Hits, PassageHit
from perdure.storage.tx import Tx

T = TypeVar("T")


class PassageConditions(TypedDict, total=False):
    """Which passages: with any or all of these tags, a time from `since` until `until`, one of these states."""

    tags: Sequence[str]
    tag_match: TagMatch
    since: datetime | None
    until: datetime | None
    states: Sequence[PassageState]


class AsyncPassages(AsyncPart):
    """The passages of an archive, or of the archive that an agent stores its texts in."""

    def __init__(self, app: App, owner_id: ArchiveId | AgentId | None) -> None:
        """`owner_id` is the id of the archive or agent; None: of no agent, for what needs none."""
        super().__init__(app, AgentId(owner_id) if owner_id is not None and not is_id("archive", owner_id) else None)
        self._owner_id = owner_id

    @property
    def id(self) -> ArchiveId | AgentId:
        """The id of the archive or agent whose passages they are."""
        return self._owner_id or self._id

    async def passages(
        self, *, limit: int = 100, after_seq: int = -1, **conditions: Unpack[PassageConditions]
    ) -> Sequence[Passage]:
        """A page of the passages, oldest first; `after_seq` is the number of the last one on the page before.

        Args:
            conditions: `tags` and `tag_match`: only passages that have "any" (the default) or "all" of the tags;
                `since` and `until`: only passages of this time; times with a zone, both included; `states`: only
                those that are "active", "faded" or "archived".
        Raises: InvalidInput: a time without a zone, an unknown `tag_match`, a limit below 1 or above 10,000; NotFound.
        """
        check_limit(limit)
        check_number("after_seq", after_seq)
        where = passage_filter(**conditions)
        return await self._ports.store.read(list_passages, self.id, where=where, limit=limit, after_seq=after_seq)

    @reads
    def passage(self, tx: Tx, passage_id: PassageId) -> Passage:
        """The passage of this id. Raises: NotFound, also for another owner's."""
        return self._own(tx, passage_id)

    def _own(self, tx: Tx, passage_id: PassageId) -> Passage:
        """The owner's passage of this id. Raises: InvalidInput; NotFound, also for another owner's."""
        check_text("passage_id", passage_id)
        return get_passage(tx, self.id, passage_id)

    @writes
    def update_passage(self, tx: Tx, passage_id: PassageId, **changes: Unpack[PassageChanges]) -> Passage:
        """Change `text`, `tags`, `metadata`, `source` or `occurred_at` of a passage and return it. Raises: NotFound,
        also for another owner's; InvalidInput: a value that can't be used, no such field."""
        return update_passage(tx, self._own(tx, passage_id), changes_in_utc(changes), at=self._ports.clock.now())

    @writes
    def restore_passage(self, tx: Tx, passage_id: PassageId) -> Passage:
        """Make a faded or archived passage active again; return it. Raises: NotFound, also for another owner's."""
        return restore_passage(tx, self._own(tx, passage_id), at=self._ports.clock.now())

    @writes
    def shelve_passage(self, tx: Tx, passage_id: PassageId) -> Passage:
        """Have a passage found only by searches that ask for archived ones, until it is restored; return it.

        Raises: NotFound, also for another owner's.
        """
        return shelve_passage(tx, self._own(tx, passage_id), at=self._ports.clock.now())

    @writes
    def delete_passage(self, tx: Tx, passage_id: PassageId) -> None:
        """Remove a passage. Raises: NotFound, also for another owner's."""
        delete_passage(tx, self._own(tx, passage_id), at=self._ports.clock.now())


class AsyncArchival(AsyncSearch, AsyncPassages):
    """The archival memory of an agent; `AsyncAgent` has these methods."""

    async def archive(self, text: str, *, tags: Sequence[str] = (), occurred_at: datetime | None = None) -> Passage:
        """Store a text as a passage of the agent's own archive.

        Args:
            occurred_at: when it happened, a time with a zone; by default now.
        Raises: InvalidInput: an empty or too long text, a time without a zone.
        """
        check_text("text", text)
        new = NewPassage(text=text, tags=as_tags(tags), occurred_at=occurred_at)
        return await self.archive_passage(new)

    async def archive_passage(self, new: NewPassage | str) -> Passage:
        """Store a text in the agent's own archive, which is created with its first text. Raises: as `archive`."""
        now, new = self._ports.clock.now(), from_outside(new)
        return await self._write(lambda tx: self._insert(tx, new, at=now))

    async def list_passages(
        self, page: Page, *, text: str | None = None, where: PassageFilter | None = None
    ) -> Sequence[Passage]:
        """A page over all archives of the agent, one after the other in the order in which they were attached.

        Raises: NotFound: there is no such agent; the page begins at none of its passages.
        """
        return await self._ports.store.read(_load_agent_page, self.id, page, text, where)

    @reads
    def count_passages(self, tx: Tx, **conditions: Unpack[PassageConditions]) -> int:
        """How many passages of the agent's archives meet these `PassageConditions`. Raises: InvalidInput; NotFound."""
        where = passage_filter(**conditions)
        tx.agents.model(self.id)
        return sum(len(tx.passages.seqs(archive.id, where=where)) for archive in tx.archives.list_by_agent(self.id))

    async def update_passage(self, passage_id: PassageId, **changes: Unpack[PassageChanges]) -> Passage:
        """Change `text`, `tags`, `metadata`, `source` or `occurred_at`; return it; `undo` takes it back.

        Raises: NotFound, also for another owner's; InvalidInput: a value that can't be used, no such field.
        """
        fields, now = changes_in_utc(changes), self._ports.clock.now()

        def write(tx: Tx) -> Passage:
            """Change the passage, and record the correction."""
            before = self._own(tx, passage_id)
            after = update_passage(tx, before, fields, at=now)
            if after != before:
                item = passage_item(before, after)
                record(tx, self.id, "passage", f"passage: {before.text}", [item], at=now)
            return after

        return await self._write(write)

    async def delete_passage(self, passage_id: PassageId) -> None:
        """Remove a passage; `undo` brings it back. Raises: NotFound, also for another owner's."""
        await self.delete_passages([passage_id])

    async def add_passage(self, new: NewPassage | str) -> Correction:
        """Store a text in the agent's own archive, as a correction. Raises: NotFound, InvalidInput."""
        _, correction = await self.insert_passage(new)
        return correction

    async def insert_passage(self, new: NewPassage | str) -> tuple[Passage, Correction]:
        """Store a text in the agent's own archive; return the passage, and the correction that `undo` takes back.

        Raises: NotFound, InvalidInput.
        """
        now, new = self._ports.clock.now(), from_outside(new)

        def write(tx: Tx) -> tuple[Passage, Correction]:
            """Insert the passage, and record the correction."""
            passage = self._insert(tx, new, at=now)
            what, item = f"new passage: {new.text}", passage_item(None, passage)
            return passage, record(tx, self.id, "passage", what, [item], at=now)

        return await self._write(write)

    def _insert(self, tx: Tx, new: NewPassage, *, at: datetime) -> Passage:
        """Store a text in the agent's own archive. Raises: NotFound, InvalidInput."""
        tx.agents.model(self.id)
        archive = own_archive(tx, self.id, ArchiveId(self._ports.ids.new("archive")), at=at)
        return insert_passage(tx, archive.id, new, ids=self._ports.ids, at=at)

    async def _write(self, unit: Callable[[Tx], T]) -> T:
        """Run a unit that changes the agent's memory, notify background readers, and return the result."""
        done = await self._ports.store.write(unit)
        self._ports.unread.note((self.id, 0))
        return done

    async def edit_passage(
        self, passage_id: PassageId, changes: PassageChanges | Callable[[Passage], PassageChanges]
    ) -> Correction:
        """Change a passage of the agent, as a correction.

        Args:
            changes: the new values; or a function of the passage that returns them, called in the same transaction.
        Raises: NotFound, InvalidInput; what the function raises.
        """
        now = self._ports.clock.now()

        def edit(tx: Tx, before: Passage) -> CorrectionItem:
            """Change the passage; return the item of the correction."""
            after = changes_in_utc(changes(before) if callable(changes) else changes)
            return passage_item(before, update_passage(tx, before, after, at=now))

        return await self._correct_passages([passage_id], edit)

    async def delete_passages(self, ids: Sequence[PassageId]) -> Correction:
        """Delete passages of the agent, as one correction. Raises: NotFound; InvalidInput: one belongs to a file."""
        now = self._ports.clock.now()

        def delete(tx: Tx, passage: Passage) -> CorrectionItem:
            """Delete the passage; return the item of the correction."""
            delete_passage(tx, passage, at=now)
            return passage_item(passage, None)

        return await self._correct_passages(ids, delete, verb="removed ")

    async def tag_passages(self, ids: Sequence[PassageId], tag: str) -> Correction:
        """Give passages of the agent one more tag, as one correction. Raises: NotFound, InvalidInput, TooMany."""
        check_text("tag", tag)
        now = self._ports.clock.now()

        def put(tx: Tx, passage: Passage) -> CorrectionItem:
            """Add the tag; return the item of the correction."""
            tags = tuple(dict.fromkeys((*passage.tags, tag)))
            return passage_item(passage, update_passage(tx, passage, {"tags": tags}, at=now))

        return await self._correct_passages(ids, put)

    async def _correct_passages(
        self, ids: Sequence[PassageId], correct: Callable[[Tx, Passage], CorrectionItem], verb: str = ""
    ) -> Correction:
        """Change passages by `correct`, as one correction, whose text begins with `verb`. Raises: NotFound."""
        now = self._ports.clock.now()

        def write(tx: Tx) -> Correction:
            """Change the passages, and record one correction."""
            passages = [self._own(tx, passage_id) for passage_id in dict.fromkeys(ids)]
            what = f"passage: {passages[0].text}" if len(passages) == 1 else f"{len(passages)} passages"
            return record(tx, self.id, "passage", f"{verb}{what}", [correct(tx, one) for one in passages], at=now)

        return await self._write(write)

    @reads
    def labels(self, tx: Tx, passages: Sequence[Passage]) -> Mapping[str, TrustLabel]:
        """Id -> label, of the passages whose sources are not trusted."""
        writes = writes_of_passages(tx, passages)
        return {id_: write.label for id_, write in writes.items() if write.label not in TRUSTED}

    async def search_archive(
        self,
        text: str,
        *,
        limit: int = 10,
        offset: int = 0,
        explain: bool = False,
        **conditions: Unpack[PassageConditions],
    ) -> Hits[PassageHit]:
        """The passages of the agent's archives and folders that best match, best first; for an empty text the newest
        ones. The `source` of a file's passage names file and lines. `ran` of the result says which arms of the search
        took part, and why others did not.

        Args:
            limit, offset: how many hits to return, and how many to skip before them; a search finds at most 1,000.
            explain: whether each hit says `why` it was found.
            conditions: `tags` and `tag_match`: only passages that have "any" (the default) or "all" of the tags;
                `since` and `until`: only passages of this time; times with a zone, both included; `states`: only
                those in these, of "active", "faded" and "archived"; by default the first two.
        Raises: InvalidInput: a time without a zone, an unknown `tag_match`, a limit below 1 or above 10,000.
        """
        where = passage_filter(**conditions)
        return await self.search_passages(text, where, limit=limit, offset=offset, explain=explain)


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
    """A page of an archive's passages with this text. Raises: NotFound: the archive, or the cursor's passage in it."""
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
    """A page of the passages of all archives of an agent, one archive after the other. Raises: NotFound."""
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
        """The first passages between two places, both excluded."""
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


def from_outside(new: NewPassage | str) -> NewPassage:
    """A new passage with its time in UTC, and in its source the user or key who stores it. Raises: InvalidInput: it is
    no passage, or has a time without a zone."""
    if isinstance(new, str):
        new = NewPassage(text=new)
    if not isinstance(new, NewPassage):
        raise InvalidInput(f"{new!r:.80} is not a passage: give a text or a NewPassage")
    principal = current_principal.get()
    author = principal.user_id or principal.key_id
    source = {**new.source, "author_id": author} if author else new.source
    return replace(new, occurred_at=utc("occurred_at", new.occurred_at), source=source)
