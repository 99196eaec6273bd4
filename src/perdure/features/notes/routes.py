"""The structured notes of an agent: write, find, review. No part of Letta's API."""

from __future__ import annotations

from typing import Annotated

from fastapi import Query

from perdure.features.notes import wire
from perdure.features.notes.kinds import note_kinds
from perdure.library.parts.checks import LIMIT_MAX, NUMBER_MAX
from perdure.search.ranking.hits import HITS_MAX
from perdure.server.wire.fields import PassageIdIn, keywords
from perdure.server.wire.http import Router, ThisAgent

router = Router(tags=["notes"])

_Kind = Annotated[Annotated[str, keywords(enum=[*note_kinds()])] | None, Query(description="Only those of this kind.")]
_Archived = Annotated[bool, Query(description="Those that are archived, in place of the others.")]
_Limit = Annotated[int, Query(ge=1, le=LIMIT_MAX, description="At most this many items.")]
_After = Annotated[PassageIdIn | None, Query(description="The id of the last note of the page before.")]


@router.get("/v1/agents/{agent_id}/notes")
async def list_notes(
    agent: ThisAgent, kind: _Kind = None, archived: _Archived = False, limit: _Limit = 50, after: _After = None
) -> list[wire.NoteShape]:
    """List the notes of an agent, newest first."""
    notes = await agent.notes.list(kind=kind, archived=archived, limit=limit, after=after)
    return [wire.NoteShape.make(note) for note in notes]


@router.get("/v1/agents/{agent_id}/notes/search")
async def search_notes(
    agent: ThisAgent,
    query: Annotated[str, Query(description="What to look for; empty: the newest.")],
    kind: _Kind = None,
    archived: _Archived = False,
    limit: Annotated[int, Query(ge=1, le=HITS_MAX)] = 10,
) -> list[wire.FoundNoteShape]:
    """Search titles and whole texts of notes, best first."""
    hits = await agent.notes.search(query, kind=kind, archived=archived, limit=limit)
    return [wire.FoundNoteShape.make(hit.note, score=hit.score) for hit in hits]


@router.get("/v1/agents/{agent_id}/notes/review")
async def review_notes(
    agent: ThisAgent,
    days: Annotated[int | None, Query(ge=0, le=NUMBER_MAX, description="By default as each kind has it.")] = None,
    limit: _Limit = 50,
) -> list[wire.NoteShape]:
    """List the notes that nobody changed for long, the oldest first."""
    return [wire.NoteShape.make(note) for note in await agent.notes.review(days=days, limit=limit)]


@router.get("/v1/agents/{agent_id}/notes/kinds")
async def list_note_kinds(agent: ThisAgent) -> list[wire.NoteKindShape]:
    """List the kinds of notes and their fields."""
    await agent.notes.count()  # an unknown agent has no page of kinds either
    return [wire.NoteKindShape.make(kind) for kind in note_kinds().values()]


@router.post("/v1/agents/{agent_id}/notes")
async def create_note(agent: ThisAgent, body: wire.NoteIn) -> wire.CorrectedNote:
    """Write a note."""
    note, correction = await agent.notes.add(body.kind, body.title, body.fields, tags=body.tags)
    return wire.CorrectedNote.make(note, correction=correction.number)


@router.get("/v1/agents/{agent_id}/notes/{note_id}")
async def retrieve_note(agent: ThisAgent, note_id: PassageIdIn) -> wire.NoteShape:
    """Get a note."""
    return wire.NoteShape.make(await agent.notes.get(note_id))


@router.patch("/v1/agents/{agent_id}/notes/{note_id}")
async def modify_note(agent: ThisAgent, note_id: PassageIdIn, body: wire.NoteChangesIn) -> wire.CorrectedNote:
    """Change the title or some fields of a note."""
    note, correction = await agent.notes.edit(note_id, title=body.title, fields=body.fields)
    return wire.CorrectedNote.make(note, correction=correction.number)


@router.delete("/v1/agents/{agent_id}/notes/{note_id}")
async def delete_note(agent: ThisAgent, note_id: PassageIdIn) -> wire.DeletedNote:
    """Delete a note."""
    correction = await agent.notes.delete(note_id)
    return wire.DeletedNote.make(correction, id=note_id, correction=correction.number)


@router.post("/v1/agents/{agent_id}/notes/{note_id}/archive")
async def archive_note(agent: ThisAgent, note_id: PassageIdIn) -> wire.NoteShape:
    """Have a note found only by those who ask for archived ones."""
    return wire.NoteShape.make(await agent.notes.archive(note_id))


@router.post("/v1/agents/{agent_id}/notes/{note_id}/restore")
async def restore_note(agent: ThisAgent, note_id: PassageIdIn) -> wire.NoteShape:
    """Have an archived note found again."""
    return wire.NoteShape.make(await agent.notes.restore(note_id))


@router.post("/v1/agents/{agent_id}/notes/{note_id}/keep")
async def keep_note(agent: ThisAgent, note_id: PassageIdIn) -> wire.NoteShape:
    """Say that a note still holds: its review begins anew."""
    return wire.NoteShape.make(await agent.notes.keep(note_id))
