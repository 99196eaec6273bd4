"""The structured notes of an agent: write, find, review. No part of Letta's API."""

from __future__ import annotations

from typing import Annotated

from fastapi import Query
from pydantic import Field

from perdure.core.ids import PassageId
from perdure.features.notes.values import TITLE_CHARS, Note, NoteKind, note_kinds
from perdure.library.parts.checks import LIMIT_MAX, NUMBER_MAX
from perdure.search.ranking.hits import HITS_MAX
from perdure.server.wire.base import WireRequest
from perdure.server.wire.fields import FILLED, ItemsByName, PassageIdIn, Tags, keywords
from perdure.server.wire.http import Router, ThisAgent
from perdure.server.wire.shapes import WireShape, computed

_Title = Annotated[str, keywords(pattern=FILLED, maxLength=TITLE_CHARS)]
_Fields = ItemsByName[str]
router = Router(tags=["notes"])
_Kind = Annotated[Annotated[str, keywords(enum=[*note_kinds()])] | None, Query(description="Only those of this kind.")]
_Archived = Annotated[bool, Query(description="Those that are archived, in place of the others.")]
_Limit = Annotated[int, Query(ge=1, le=LIMIT_MAX, description="At most this many items.")]
_After = Annotated[PassageIdIn | None, Query(description="The id of the last note of the page before.")]


class NoteIn(WireRequest):
    """A note to write. `fields` are those of its kind, of which the first is required."""

    kind: Annotated[str, keywords(enum=[*note_kinds()])]
    title: _Title
    fields: _Fields
    tags: Tags = Field(default_factory=list)


class NoteChangesIn(WireRequest):
    """Changes of a note. A field that is missing stays, an empty one goes."""

    title: _Title | None = None
    fields: _Fields | None = None


class NoteShape(WireShape, of=Note, fields="id kind title fields tags is_archived created_at changed_at text"):
    """A note; `text` is the whole of it as Markdown."""

    fields: dict[str, str] = computed(lambda note: dict(note.fields))
    tags: list[str] = computed(lambda note: list(note.tags))


class CorrectedNote(NoteShape):
    """A note as it was written; `correction` is the number by which `undo` takes that back."""

    correction: int


class FoundNoteShape(NoteShape):
    """A note that a search found, with its score."""

    score: float


class DeletedNote(WireShape):
    """A note that was deleted; `correction` is the number by which `undo` brings it back."""

    id: PassageId
    correction: int


class NoteKindShape(WireShape, of=NoteKind, fields="name about review_days fields"):
    """A kind of notes; `fields` are its fields, each with what is written there."""

    fields: dict[str, str] = computed(lambda kind: dict(kind.fields))


@router.get("/v1/agents/{agent_id}/notes")
async def list_notes(
    agent: ThisAgent, kind: _Kind = None, archived: _Archived = False, limit: _Limit = 50, after: _After = None
) -> list[NoteShape]:
    """List the notes of an agent, newest first."""
    notes = await agent.notes.list(kind=kind, archived=archived, limit=limit, after=after)
    return [NoteShape.make(note) for note in notes]


@router.get("/v1/agents/{agent_id}/notes/search")
async def search_notes(
    agent: ThisAgent,
    query: Annotated[str, Query(description="What to look for; empty: the newest.")],
    kind: _Kind = None,
    archived: _Archived = False,
    limit: Annotated[int, Query(ge=1, le=HITS_MAX)] = 10,
) -> list[FoundNoteShape]:
    """Search titles and whole texts of notes, best first."""
    hits = await agent.notes.search(query, kind=kind, archived=archived, limit=limit)
    return [FoundNoteShape.make(hit.note, score=hit.score) for hit in hits]


@router.get("/v1/agents/{agent_id}/notes/review")
async def review_notes(
    agent: ThisAgent,
    days: Annotated[int | None, Query(ge=0, le=NUMBER_MAX, description="By default as each kind has it.")] = None,
    limit: _Limit = 50,
) -> list[NoteShape]:
    """List the notes that nobody changed for long, the oldest first."""
    return [NoteShape.make(note) for note in await agent.notes.review(days=days, limit=limit)]


@router.get("/v1/agents/{agent_id}/notes/kinds")
async def list_note_kinds(agent: ThisAgent) -> list[NoteKindShape]:
    """List the kinds of notes and their fields."""
    await agent.notes.count()  # an unknown agent has no page of kinds either
    return [NoteKindShape.make(kind) for kind in note_kinds().values()]


@router.post("/v1/agents/{agent_id}/notes")
async def create_note(agent: ThisAgent, body: NoteIn) -> CorrectedNote:
    """Write a note."""
    note, correction = await agent.notes.add(body.kind, body.title, body.fields, tags=body.tags)
    return CorrectedNote.make(note, correction=correction.number)


@router.get("/v1/agents/{agent_id}/notes/{note_id}")
async def retrieve_note(agent: ThisAgent, note_id: PassageIdIn) -> NoteShape:
    """Get a note."""
    return NoteShape.make(await agent.notes.get(note_id))


@router.patch("/v1/agents/{agent_id}/notes/{note_id}")
async def modify_note(agent: ThisAgent, note_id: PassageIdIn, body: NoteChangesIn) -> CorrectedNote:
    """Change the title or some fields of a note."""
    note, correction = await agent.notes.edit(note_id, title=body.title, fields=body.fields)
    return CorrectedNote.make(note, correction=correction.number)


@router.delete("/v1/agents/{agent_id}/notes/{note_id}")
async def delete_note(agent: ThisAgent, note_id: PassageIdIn) -> DeletedNote:
    """Delete a note."""
    correction = await agent.notes.delete(note_id)
    return DeletedNote.make(correction, id=note_id, correction=correction.number)


@router.post("/v1/agents/{agent_id}/notes/{note_id}/archive")
async def archive_note(agent: ThisAgent, note_id: PassageIdIn) -> NoteShape:
    """Have a note found only by those who ask for archived ones."""
    return NoteShape.make(await agent.notes.archive(note_id))


@router.post("/v1/agents/{agent_id}/notes/{note_id}/restore")
async def restore_note(agent: ThisAgent, note_id: PassageIdIn) -> NoteShape:
    """Bring an archived note back into lists and searches."""
    return NoteShape.make(await agent.notes.restore(note_id))


@router.post("/v1/agents/{agent_id}/notes/{note_id}/keep")
async def keep_note(agent: ThisAgent, note_id: PassageIdIn) -> NoteShape:
    """Confirm that a note still holds: its review starts over."""
    return NoteShape.make(await agent.notes.keep(note_id))
