"""The notes of an agent: written, found, put away, reviewed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from perdure.core.errors import InvalidInput, NotFound
from perdure.core.forgetting.corrections import Correction
from perdure.core.ids import PassageId, is_id
from perdure.core.passages import SEARCHED_STATES, Passage, PassageFilter, PassageState
from perdure.domain.archives.passages import NewPassage, get_passage
from perdure.features.notes.units import FOUND_MAX, add_note, count_notes, edit_note, metadata_of, put_away
from perdure.features.notes.values import NOTE_TAG, Note, find_kind, get_note, note_of
from perdure.library.memory.passages import AsyncArchival, from_outside
from perdure.library.parts.checks import Page, check_limit, check_text
from perdure.library.parts.part import AsyncPart, reads
from perdure.search.ranking.hits import HITS_MAX
from perdure.storage.tx import Tx

T = TypeVar("T")

PREFIX_DIGITS = 4
"""So much of an id names a note, if no other one begins so."""
PAGE_LEAST = 100
"""Passages that are read at once, at least, where others are among them."""


@dataclass(frozen=True, slots=True)
class FoundNote:
    """A note that a search found, with its score from 0 to 1."""

    note: Note
    score: float


class AsyncNotes(AsyncPart):
    """The notes of one agent.

    Each is a passage of its archive, so that search, sources, forgetting, copies and agent files hold for it.
    """

    @property
    def _archival(self) -> AsyncArchival:
        return AsyncArchival(self._app, self._id)

    async def add(
        self, kind: str, title: str, fields: Mapping[str, str], *, tags: Sequence[str] = ()
    ) -> tuple[Note, Correction]:
        """Write a note; return it, and the correction that `undo` takes back.

        Args:
            kind: error, decision, plan, handoff, intel, explain, doc or snippet.
            title: one line, up to 200 characters.
            fields: name -> text of the fields of this kind; the first one is required. 20,000 characters together.
            tags: more tags; none that is the name of another kind.
        Raises: InvalidInput: a value that can't be used, or the agent has 500 notes; NotFound: no such agent.
        """
        ids, now = self._ports.ids, self._ports.clock.now()
        outside = from_outside(NewPassage(text=""))  # the transaction runs in a thread that does not know who asks
        return await self._write(
            lambda tx: add_note(tx, self._id, kind, title, fields, tags=tags, passage=outside, ids=ids, at=now)
        )

    async def edit(
        self,
        note_id: PassageId,
        *,
        title: str | None = None,
        fields: Mapping[str, str] | None = None,
        archived: bool | None = None,
    ) -> tuple[Note, Correction]:
        """Change the title or some fields of a note; an empty text removes a field. `undo` takes it back.

        Args:
            archived: put the note away, or bring it back, in the same transaction; `undo` leaves that as it is.
        Raises: InvalidInput: a value that can't be used, or the agent has 500 notes; NotFound.
        """
        if fields is not None and not isinstance(fields, Mapping):
            raise InvalidInput(f"fields is {fields!r:.80}: give an object from names of fields to texts")
        check_text("note_id", note_id)
        now = self._ports.clock.now()
        return await self._write(
            lambda tx: edit_note(tx, self._id, note_id, title=title, fields=fields, archived=archived, at=now)
        )

    async def get(self, note_id: PassageId) -> Note:
        """The note of this id. Raises: NotFound: there is no such passage of the agent, or it is no note."""
        return get_note(await self._archival.passage(note_id))

    async def find(self, text: str) -> Note:
        """Return the note whose id begins with the text (at least four digits), or that has this title. Raises:
        NotFound, InvalidInput: several do."""
        if is_id("passage", text):
            return await self.get(PassageId(text))
        known = await self.list(limit=FOUND_MAX, archived=None) if text.strip() else []
        found = [note for note in known if note.title == text]
        start = f"passage-{text.removeprefix('passage-')}"
        if not found and len(start) >= len("passage-") + PREFIX_DIGITS:
            found = [note for note in known if note.id.startswith(start)]
        if len(found) > 1:
            what = "title" if found[0].title == text else "beginning of the id"
            raise InvalidInput(f"{text!r:.80} is the {what} of {len(found)} notes: give more of the id")
        if not found:
            raise NotFound("note", text, hint="`perdure note list` shows those that there are")
        return found[0]

    async def list(
        self, *, kind: str | None = None, archived: bool | None = False, limit: int = 50, after: str | None = None
    ) -> list[Note]:
        """A page of the notes, newest first.

        Args:
            kind: only those of this kind.
            archived: only those that are archived, or that are not; None: both.
            after: the id of the last note of the page before.
        Raises: InvalidInput: an unknown kind, a limit below 1 or above 10,000; NotFound: there is no note `after`.
        """
        check_limit(limit)
        where = PassageFilter(tags=_tags(kind), tag_match="all", states=_states(archived))
        page = Page(limit, ascending=False, after=after)
        return list(await self._select(page, where, lambda passage: note_of(passage, kind)))

    async def list_other_passages(self, limit: int) -> Sequence[Passage]:
        """The newest passages that are no notes. Raises: InvalidInput: a limit below 1 or above 10,000."""
        check_limit(limit)
        page = Page(limit, ascending=False)
        return await self._select(page, None, lambda passage: passage if note_of(passage) is None else None)

    async def _select(
        self, page: Page, where: PassageFilter | None, pick: Callable[[Passage], T | None]
    ) -> Sequence[T]:
        """Return `pick(passage)` for a page of passages; further ones replace those whose result is None."""
        found, limit = list[T](), page.limit
        page = replace(page, limit=max(limit, PAGE_LEAST))
        while len(found) < limit:
            passages = await self._archival.list_passages(page, where=where)
            found += [picked for passage in passages if (picked := pick(passage)) is not None]
            if len(passages) < page.limit:
                break
            page = replace(page, after=passages[-1].id)
        return found[:limit]

    async def search(
        self, query: str, *, kind: str | None = None, archived: bool | None = False, limit: int = 10
    ) -> Sequence[FoundNote]:
        """Return the notes that match best, best first; without a query the newest. Raises: as `list`."""
        check_limit(limit)
        tags, states, found = _tags(kind), _states(archived), list[FoundNote]()
        for offset in range(0, HITS_MAX, limit):
            hits = await self._archival.search_archive(
                query, tags=tags, tag_match="all", states=states, limit=limit, offset=offset
            )
            found += [FoundNote(note, hit.score) for hit in hits if (note := note_of(hit.passage, kind)) is not None]
            if len(hits) < limit or len(found) >= limit:
                break
        return found[:limit]

    @reads
    def count(self, tx: Tx) -> int:
        """How many notes there are that are not archived. Raises: NotFound: no such agent."""
        return count_notes(tx, self._id)

    async def archive(self, note_id: PassageId) -> Note:
        """Have a note found only by searches that ask for archived ones; return it. Raises: NotFound."""
        return await self._move(note_id, archived=True)

    async def restore(self, note_id: PassageId) -> Note:
        """Have an archived note found again; return it. Raises: NotFound; InvalidInput: the agent has 500 notes."""
        return await self._move(note_id, archived=False)

    async def _move(self, note_id: PassageId, *, archived: bool) -> Note:
        """Put a note into the archive, or take it out."""
        check_text("note_id", note_id)
        now = self._ports.clock.now()

        def write(tx: Tx) -> Note:
            """Move the note."""
            passage = get_passage(tx, self._id, note_id)
            get_note(passage)  # another passage stays where it is
            return get_note(put_away(tx, self._id, passage, archived, at=now))

        return await self._write(write)

    async def delete(self, note_id: PassageId) -> Correction:
        """Remove a note; `undo` brings it back, also beyond the limit. Raises: NotFound."""
        await self.get(note_id)
        return await self._archival.delete_passages([note_id])

    async def keep(self, note_id: PassageId) -> Note:
        """Note that a review found a note still true: it is fresh again. Raises: NotFound."""
        passage = await self._archival.passage(note_id)
        metadata = {**passage.metadata, **metadata_of(get_note(passage).kind, self._ports.clock.now())}
        return get_note(await self._archival.update_passage(note_id, metadata=metadata))

    async def review(self, *, kind: str | None = None, days: int | None = None, limit: int = 50) -> Sequence[Note]:
        """Return notes that nobody has changed for long, oldest first: for as long as their kind sets (plans and
        handoffs shorter than decisions), or for `days`. Raises: InvalidInput: an unknown kind, a limit below 1."""
        check_limit(limit)
        if days is not None and (type(days) is not int or days < 0):
            raise InvalidInput(f"days is {days!r:.80}: give a whole number from 0")
        now = self._ports.clock.now()
        notes = sorted(await self.list(kind=kind, limit=FOUND_MAX), key=lambda note: note.changed_at)
        return [one for one in notes if one.is_stale(now, days)][:limit]

    async def _write(self, unit: Callable[[Tx], T]) -> T:
        """Run a unit that changes notes, notify background readers of the memory, and return the result."""
        done = await self._ports.store.write(unit)
        self._ports.unread.note((self._id, 0))
        return done


def _tags(kind: str | None) -> tuple[str, ...]:
    """The tags of notes of a kind, or of all. Raises: InvalidInput: an unknown kind."""
    return (NOTE_TAG,) if kind is None else (NOTE_TAG, find_kind(kind).name)


def _states(archived: bool | None) -> tuple[PassageState, ...]:
    """The states of passages that `archived` of a list or search means."""
    if archived is None:
        return (*SEARCHED_STATES, "archived")
    return ("archived",) if archived else SEARCHED_STATES
