"""The notes of an agent: written, found, put away, reviewed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from perdure.core.errors import InvalidInput, NotFound
from perdure.core.forgetting.corrections import Correction
from perdure.core.ids import PassageId, is_id
from perdure.core.passages import SEARCHED_STATES, Passage, PassageFilter, PassageState
from perdure.domain.archives.passages import NewPassage, PassageChanges
from perdure.features.notes.kinds import check_note_fields, check_title, find_kind, to_markdown
from perdure.features.notes.values import NOTE_TAG, Note, check_note_tags, get_note, note_of
from perdure.library.memory.passages import AsyncArchival
from perdure.library.parts.checks import Page, check_limit
from perdure.library.parts.part import AsyncPart
from perdure.search.ranking.hits import HITS_MAX

NOTES_MAX = 500
"""The most notes of an agent that are not archived."""
FOUND_MAX = 10_000


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
        await self._check_room()
        known = find_kind(kind)
        text = to_markdown(check_title(title), check_note_fields(known, fields))
        own_tags = check_note_tags(known, tags)
        new = NewPassage(text=text, tags=(NOTE_TAG, known.name, *own_tags), metadata=self._metadata(known.name))
        passage, correction = await self._archival.insert_passage(new)
        return get_note(passage), correction

    async def edit(
        self, note_id: PassageId, *, title: str | None = None, fields: Mapping[str, str] | None = None
    ) -> tuple[Note, Correction]:
        """Change the title or some fields of a note; an empty text removes a field. `undo` takes it back.

        Raises: InvalidInput: a value that can't be used; NotFound.
        """
        if fields is not None and not isinstance(fields, Mapping):
            raise InvalidInput(f"fields is {fields!r:.80}: give an object from names of fields to texts")

        def change(passage: Passage) -> PassageChanges:
            note = get_note(passage)
            merged = check_note_fields(find_kind(note.kind), {**note.fields, **(fields or {})})
            text = to_markdown(check_title(note.title if title is None else title), merged)
            return {"text": text, "metadata": {**passage.metadata, **self._metadata(note.kind)}}

        correction = await self._archival.edit_passage(note_id, change)
        return await self.get(note_id), correction

    async def get(self, note_id: PassageId) -> Note:
        """The note of this id. Raises: NotFound: there is no such passage of the agent, or it is no note."""
        return get_note(await self._archival.passage(note_id))

    async def find(self, text: str) -> Note:
        """The note whose id begins with a text, or that has this title. Raises: NotFound, InvalidInput: several do."""
        if is_id("passage", text):
            return await self.get(PassageId(text))
        known = await self.list(limit=FOUND_MAX, archived=None) if text.strip() else []
        starts = [note for note in known if note.id.startswith(text) or note.id.partition("-")[2].startswith(text)]
        found = [note for note in known if note.title == text] or starts
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
        notes, page = list[Note](), Page(limit, ascending=False, after=after)
        while len(notes) < limit:  # other passages may have the tags too
            passages = await self._archival.list_passages(page, where=where)
            notes += _notes_of(passages, kind)
            if len(passages) < limit:
                break
            page = replace(page, after=passages[-1].id)
        return notes[:limit]

    async def search(
        self, query: str, *, kind: str | None = None, archived: bool | None = False, limit: int = 10
    ) -> Sequence[FoundNote]:
        """The notes whose title or fields best match a query, best first; for an empty query the newest.

        Raises: InvalidInput: as `list`.
        """
        check_limit(limit)
        tags, states, found = _tags(kind), _states(archived), list[FoundNote]()
        for offset in range(0, HITS_MAX, limit):
            hits = await self._archival.search_archive(
                query, tags=tags, tag_match="all", states=states, limit=limit, offset=offset
            )
            found += [FoundNote(note, hit.score) for hit in hits for note in _notes_of([hit.passage], kind)]
            if len(hits) < limit or len(found) >= limit:
                break
        return found[:limit]

    async def count(self) -> int:
        """How many notes there are that are not archived."""
        return len(await self.list(limit=FOUND_MAX))

    async def archive(self, note_id: PassageId) -> Note:
        """Have a note found only by searches that ask for archived ones; return it. Raises: NotFound."""
        await self.get(note_id)
        return get_note(await self._archival.shelve_passage(note_id))

    async def restore(self, note_id: PassageId) -> Note:
        """Have an archived note found again; return it. Raises: NotFound; InvalidInput: the agent has 500 notes."""
        if (await self.get(note_id)).is_archived:
            await self._check_room()
        return get_note(await self._archival.restore_passage(note_id))

    async def delete(self, note_id: PassageId) -> Correction:
        """Remove a note; `undo` brings it back. Raises: NotFound."""
        await self.get(note_id)
        return await self._archival.delete_passages([note_id])

    async def keep(self, note_id: PassageId) -> Note:
        """Note that a review found a note still true: it is fresh again. Raises: NotFound."""
        passage = await self._archival.passage(note_id)
        metadata = {**passage.metadata, **self._metadata(get_note(passage).kind)}
        return get_note(await self._archival.update_passage(note_id, metadata=metadata))

    async def review(self, *, days: int | None = None, limit: int = 50) -> Sequence[Note]:
        """The notes that nobody changed for long, the oldest first: for as many days as their kind has, plans and
        handoffs sooner than decisions; or all that are at least `days` old. Raises: InvalidInput: a limit below 1."""
        check_limit(limit)
        if days is not None and (type(days) is not int or days < 0):
            raise InvalidInput(f"days is {days!r:.80}: give a whole number from 0")
        now = self._ports.clock.now()
        notes = [
            note
            for note in await self.list(limit=FOUND_MAX)
            if (note.is_stale(now) if days is None else (now - note.changed_at).days >= days)
        ]
        return sorted(notes, key=lambda note: note.changed_at)[:limit]

    async def _check_room(self) -> None:
        """Raise if there can be no further note. Raises: InvalidInput: the agent has 500; NotFound: no such agent."""
        if await self._archival.count_passages(tags=(NOTE_TAG,), states=SEARCHED_STATES) < NOTES_MAX:
            return  # counting is quicker than reading
        if (count := await self.count()) >= NOTES_MAX:
            raise InvalidInput(
                f"there are {count} notes, the limit is {NOTES_MAX}: archive some that are no longer needed"
                " (`perdure note review` lists the oldest)"
            )

    def _metadata(self, kind: str) -> Mapping[str, Any]:
        """What the passage of a note that is written now has beside its text."""
        return {"kind": kind, "changed_at": self._ports.clock.now().isoformat()}


def _tags(kind: str | None) -> tuple[str, ...]:
    """The tags of notes of a kind, or of all. Raises: InvalidInput: an unknown kind."""
    return (NOTE_TAG,) if kind is None else (NOTE_TAG, find_kind(kind).name)


def _notes_of(passages: Sequence[Passage], kind: str | None) -> Sequence[Note]:
    """The notes of a kind, or of any, among some passages."""
    notes = [note for one in passages if (note := note_of(one)) is not None]
    return [note for note in notes if kind in (None, note.kind)]


def _states(archived: bool | None) -> tuple[PassageState, ...]:
    """The states of passages that `archived` of a list or search means."""
    if archived is None:
        return (*SEARCHED_STATES, "archived")
    return ("archived",) if archived else SEARCHED_STATES
