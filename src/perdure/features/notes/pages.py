"""The notes of an agent: found by their whole text, written, changed field by field, put away and reviewed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from urllib.parse import urlencode

from starlette.requests import Request

from perdure.core.errors import InvalidInput, NotFound
from perdure.core.forgetting.corrections import Correction
from perdure.core.ids import PassageId, is_id
from perdure.core.text.reprs import attributes
from perdure.features.notes.service import AsyncNotes
from perdure.features.notes.units import NOTES_MAX
from perdure.features.notes.values import NOTE_CHARS, TITLE_CHARS, Note, NoteKind, find_kind, label_of, note_kinds
from perdure.library.perdure import AsyncPerdure
from perdure.ui.pages.home import agent_frame, correction_notice
from perdure.ui.render import Data, Notice, Pages, after_of, agent_id_of, agent_of, field_of, form_of, is_number

NOTES_SHOWN = 50
VIEWS: Mapping[str, str] = {"": "All", "review": "Due for review", "archived": "Archived"}
"""Which notes are shown -> its name on the page."""
FILTERS = ("q", "kind", "view")

pages = Pages()


@pages.get("/agents/{agent_id}/notes", "notes.html", is_live=True)
async def notes(request: Request, library: AsyncPerdure) -> Data:
    """A page of the notes that match the filters, newest first, or with `q` the best search results; with `new` also
    the form for that kind of note."""
    query = request.query_params
    agent = await library.all_agents.resolve(agent_id_of(request))
    used = {name: query[name].strip() for name in FILTERS if query.get(name, "").strip()}
    found, problem, new = list[Note](), None, None
    try:
        found = await _find(library.agent_of(agent.id).notes, used, query.get("after"))
        new = find_kind(query["new"]) if query.get("new") else None
    except (InvalidInput, NotFound) as error:
        problem = str(error)
    is_page = "q" not in used and used.get("view") != "review"
    last = after_of(found, NOTES_SHOWN) if is_page else None
    now = library.app.ports.clock.now()
    return agent_frame(agent, "Notes", "notes") | {
        "notes": [note_shape(note, now) for note in found],
        "problem": problem,
        "filters": {name: used.get(name, "") for name in FILTERS},
        "views": [
            {"name": name, "label": label, "query": urlencode(used | {"view": name})} for name, label in VIEWS.items()
        ],
        "kinds": [attributes(kind, "name", "about") for kind in note_kinds().values()],
        "new": None if new is None else {"kind": new.name, "about": new.about, "fields": _field_shapes(new, {})},
        "title_chars": TITLE_CHARS,
        "note_chars": NOTE_CHARS,
        "more": None if last is None else urlencode(used | {"after": last}),
    }


async def _find(notes: AsyncNotes, used: Mapping[str, str], after: str | None) -> list[Note]:
    """The notes that the filters of the page select. Raises: InvalidInput, NotFound."""
    text, kind, view = used.get("q", ""), used.get("kind"), used.get("view", "")
    if view not in VIEWS:
        raise InvalidInput(f"view is {view!r:.40}: choose one of {', '.join(filter(None, VIEWS))}")
    archived = view == "archived"
    if view != "review" and not text:
        return await notes.list(kind=kind, archived=archived, limit=NOTES_SHOWN, after=after)
    due = await notes.review(kind=kind, limit=NOTES_MAX) if view == "review" else ()
    if not text:
        return list(due[:NOTES_SHOWN])
    hits = await notes.search(text, kind=kind, archived=archived, limit=NOTES_SHOWN)
    return [hit.note for hit in hits if view != "review" or hit.note in due]


def note_shape(note: Note, now: datetime) -> Data:
    """A note as the page shows it, with all fields of its kind."""
    own = attributes(note, "id", "kind", "title", "tags", "is_archived", "created_at", "changed_at")
    return own | {
        "is_stale": not note.is_archived and note.is_stale(now),
        "fields": _field_shapes(note_kinds()[note.kind], note.fields),
    }


def _field_shapes(kind: NoteKind, texts: Mapping[str, str]) -> Sequence[Data]:
    """The fields of a kind, each with its name for people, what is written there, and its text."""
    return [
        {"name": name, "label": label_of(name), "about": about, "text": texts.get(name, ""), "is_required": not place}
        for place, (name, about) in enumerate(kind.fields.items())
    ]


@pages.post("/agents/{agent_id}/notes", shows=notes)
async def add_note(request: Request, library: AsyncPerdure) -> Notice:
    """Write a note."""
    form = await form_of(request)
    kind = find_kind(form.get("kind"))
    tags = [tag for tag in map(str.strip, form.get("tags", "").split(",")) if tag]
    fields = {name: form[name] for name in kind.fields if form.get(name)}
    note, correction = await agent_of(request, library).notes.add(kind.name, field_of(form, "title"), fields, tags=tags)
    return _corrected(request, f"“{note.title}” was written.", correction)


@pages.post("/agents/{agent_id}/notes/undo", shows=notes)
async def undo(request: Request, library: AsyncPerdure) -> Notice:
    """Take back what an action of this page did; `number` is that of its correction."""
    number = (await form_of(request)).get("number", "")
    if not is_number(number):
        raise InvalidInput(f"{number!r:.40} is not a correction's number")
    await agent_of(request, library).undo(int(number))
    return Notice("Undone.")


@pages.post("/agents/{agent_id}/notes/{note_id}", shows=notes)
async def edit_note(request: Request, library: AsyncPerdure) -> Notice:
    """Change the title and the fields of a note."""
    form, own = await form_of(request), agent_of(request, library).notes
    note = await own.get(_note_id_of(request))
    fields = {name: form[name] for name in note_kinds()[note.kind].fields if name in form}
    note, correction = await own.edit(note.id, title=field_of(form, "title"), fields=fields)
    return _corrected(request, f"“{note.title}” was changed.", correction)


@pages.post("/agents/{agent_id}/notes/{note_id}/delete", shows=notes)
async def delete_note(request: Request, library: AsyncPerdure) -> Notice:
    """Delete a note."""
    own, note_id = agent_of(request, library).notes, _note_id_of(request)
    title = (await own.get(note_id)).title
    return _corrected(request, f"“{title}” was deleted.", await own.delete(note_id))


@pages.post("/agents/{agent_id}/notes/{note_id}/archive", shows=notes)
async def archive_note(request: Request, library: AsyncPerdure) -> Notice:
    """Put a note away."""
    note = await agent_of(request, library).notes.archive(_note_id_of(request))
    return Notice(f"“{note.title}” is archived.", undo=_path(request, note.id, "restore"))


@pages.post("/agents/{agent_id}/notes/{note_id}/restore", shows=notes)
async def restore_note(request: Request, library: AsyncPerdure) -> Notice:
    """Bring an archived note back into lists and searches."""
    note = await agent_of(request, library).notes.restore(_note_id_of(request))
    return Notice(f"“{note.title}” is found again.", undo=_path(request, note.id, "archive"))


@pages.post("/agents/{agent_id}/notes/{note_id}/keep", shows=notes)
async def keep_note(request: Request, library: AsyncPerdure) -> Notice:
    """Say that a note still holds."""
    note = await agent_of(request, library).notes.keep(_note_id_of(request))
    return Notice(f"“{note.title}” is still valid: its review period starts again.")


def _note_id_of(request: Request) -> PassageId:
    """The note of the path. Raises: InvalidInput."""
    value: str = request.path_params["note_id"]
    if not is_id("passage", value):
        example = "passage-123e4567-e89b-42d3-a456-426614174000"
        raise InvalidInput(f"{value!r:.80} is not a note's id: one looks like {example}")
    return PassageId(value)


def _path(request: Request, *rest: str) -> str:
    """The path of an action of this page, with the filters that are shown."""
    query = f"?{request.query_params}" if request.query_params else ""
    return "/".join((f"/agents/{agent_id_of(request)}/notes", *rest)) + query


def _corrected(request: Request, text: str, correction: Correction) -> Notice:
    """The notice of what a correction did, with the action of this page that takes it back."""
    notice = correction_notice(text, agent_id_of(request), correction.number)
    return notice if notice.undo is None else replace(notice, undo=_path(request, "undo"))
