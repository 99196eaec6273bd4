"""`perdure note`: write, find and review notes of a project."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, TypeVar

from perdure.cli.commands.run import Limit, Yes, agent_option, argument, command, flag, for_work, option

if for_work(__name__):
    from rich.text import Text

    from perdure.cli.session.work import confirm, read_pairs, read_text
    from perdure.cli.views.json import fields as fields_of
    from perdure.cli.views.view import Output, local_time, new_table, plural, short_id, visible
    from perdure.core.errors import InvalidInput
    from perdure.features.notes.projects import ProjectMemory, find_note
    from perdure.features.notes.service import AsyncNotes
    from perdure.features.notes.values import MemoryLevel, Note, find_kind, note_kinds
    from perdure.library.perdure import AsyncPerdure

T = TypeVar("T")
NoteId = Annotated[str, argument("Its id or the beginning of it, or its title.", "ID")]
Kind = Annotated[
    str | None, option("error, decision, plan, handoff, intel, explain, doc or snippet.", "KIND", name="--kind")
]
Fields = Annotated[
    list[str] | None, option("A field, such as cause='a full disk'; may be repeated.", "NAME=TEXT", name="--field")
]


@dataclass(frozen=True, slots=True, kw_only=True)
class NotePlace:
    """Whose notes a command uses: an agent's, a project's followed by the global ones, or only the global ones."""

    project: Annotated[str, option("The project's folder; by default this one.", "DIR")] = "."
    is_global: Annotated[bool, flag("--global", "Only the memory behind all projects.")] = False
    agent: Annotated[str | None, agent_option("The memory of this agent instead of the project's; name or id.")] = None


NO_NOTES = "There are no notes here yet: `perdure note add error TITLE 'What happened.'` writes one."


@command("note add")
async def add_note(
    view: Output,
    perdure: AsyncPerdure,
    kind: Annotated[str, argument("error, decision, plan, handoff, intel, explain, doc or snippet.", "KIND")],
    title: Annotated[str, argument("One line.", "TITLE")],
    where: NotePlace,
    text: Annotated[str | None, argument("The first field of the kind; - is stdin.", "TEXT")] = None,
    field: Fields = None,
    tag: Annotated[list[str] | None, option("A tag; may be repeated.", "TAG", name="--tag")] = None,
) -> None:
    """Write a note."""
    values = read_pairs("--field", field, "NAME=TEXT")
    known = find_kind(kind)
    if text is not None:
        values = {next(iter(known.fields)): read_text(text) if text == "-" else text, **values}
    memory = _open_memory(perdure, where)
    owner = await memory.open()
    note, correction = await owner.notes.add(kind, title, values, tags=tag or ())
    (await memory.edits()).clear()
    view.show(note_shape(note), Text(f"{note.id}  {visible(note.title)}"))
    view.hint(f"Kept for {owner.name!r}; `perdure undo {owner.id} {correction.number}` takes it back.")


@command("note list", none=NO_NOTES)
async def list_notes(
    view: Output,
    perdure: AsyncPerdure,
    where: NotePlace,
    kind: Kind = None,
    archived: Annotated[bool, flag("--archived", "Those that are archived.")] = False,
    limit: Limit = 50,
) -> None:
    """List the notes of the project and those behind it, newest first."""
    found = await _of_each(perdure, where, lambda notes: notes.list(kind=kind, archived=archived, limit=limit))
    _show_notes(view, sorted(found, key=lambda one: one[1].changed_at, reverse=True)[:limit])


@command("note search", none=NO_NOTES)
async def search_notes(
    view: Output,
    perdure: AsyncPerdure,
    query: Annotated[str, argument("What is looked for.", "TEXT")],
    where: NotePlace,
    kind: Kind = None,
    archived: Annotated[bool, flag("--archived", "Those that are archived.")] = False,
    limit: Limit = 10,
) -> None:
    """Search titles and whole texts of notes, best first."""
    hits = await _of_each(perdure, where, lambda notes: notes.search(query, kind=kind, archived=archived, limit=limit))
    best = sorted(hits, key=lambda one: -one[1].score)[:limit]
    _show_notes(view, [(level, hit.note) for level, hit in best], none="No note was found.")


@command("note show", finds="note")
async def show_note(view: Output, perdure: AsyncPerdure, note: NoteId, where: NotePlace) -> None:
    """Print a note as Markdown."""
    _, found = await _find_note(perdure, note, where)
    view.show_long(note_shape(found), visible(found.text))


@command("note edit", finds="note")
async def edit_note(
    view: Output,
    perdure: AsyncPerdure,
    note: NoteId,
    where: NotePlace,
    title: Annotated[str | None, option("Another title.", "TITLE")] = None,
    field: Fields = None,
) -> None:
    """Change the title or fields of a note; an empty value removes a field."""
    if title is None and not field:
        raise InvalidInput("there is nothing to change: give --title TITLE or --field NAME=TEXT")
    notes, found = await _find_note(perdure, note, where)
    changed, correction = await notes.edit(found.id, title=title, fields=read_pairs("--field", field, "NAME=TEXT"))
    view.show(note_shape(changed), visible(changed.text))
    view.hint(f"`perdure undo {correction.agent_id} {correction.number}` takes it back.")


@command("note archive", finds="note")
async def archive_note(view: Output, perdure: AsyncPerdure, note: NoteId, where: NotePlace) -> None:
    """Put a note away: only `--archived` finds it."""
    notes, found = await _find_note(perdure, note, where)
    view.show(note_shape(await notes.archive(found.id)), Text(f"{visible(found.title)} is archived."))
    view.hint(f"`perdure note restore {short_id(found.id)}` brings it back.")


@command("note restore", finds="note")
async def restore_note(view: Output, perdure: AsyncPerdure, note: NoteId, where: NotePlace) -> None:
    """Bring an archived note back into lists and searches."""
    notes, found = await _find_note(perdure, note, where)
    view.show(note_shape(await notes.restore(found.id)), Text(f"{visible(found.title)} is found again."))


@command("note delete", finds="note")
async def delete_note(view: Output, perdure: AsyncPerdure, note: NoteId, where: NotePlace, yes: Yes = False) -> None:
    """Delete a note."""
    notes, found = await _find_note(perdure, note, where)
    what = f"note {visible(found.title)!r}"
    question = f"N{what[1:]} will be gone until it is undone. Delete?"
    confirm(view, question, action=f"delete the {what}", yes=yes)
    correction = await notes.delete(found.id)
    view.show({"deleted": found.id})
    view.hint(f"Deleted {what}. `perdure undo {correction.agent_id} {correction.number}` brings it back.")


@command("note review", none=NO_NOTES)
async def review_notes(
    view: Output,
    perdure: AsyncPerdure,
    where: NotePlace,
    days: Annotated[
        int | None, option("At least this old; by default each kind has its own age.", "DAYS", min=0)
    ] = None,
    limit: Limit = 50,
) -> None:
    """List notes that have not changed for long, the oldest first."""
    found = await _of_each(perdure, where, lambda notes: notes.review(days=days, limit=limit))
    _show_notes(view, sorted(found, key=lambda one: one[1].changed_at)[:limit], none="No note is due for a review.")
    if found:
        view.hint("`perdure note keep ID` says that one still holds, `perdure note archive ID` puts it away.")


@command("note keep", finds="note")
async def keep_note(view: Output, perdure: AsyncPerdure, note: NoteId, where: NotePlace) -> None:
    """Confirm that a note still holds: its review starts over."""
    notes, found = await _find_note(perdure, note, where)
    view.show(note_shape(await notes.keep(found.id)), Text(f"{visible(found.title)} still holds."))


@command("note kinds")
async def list_kinds(view: Output) -> None:
    """List the kinds of notes and their fields."""
    table, shapes = new_table("kind", "for", "fields"), list[object]()
    for kind in note_kinds().values():
        table.add_row(kind.name, kind.about, ", ".join(kind.fields))
        shapes.append(fields_of(kind, "name", "about", "review_days") | {"fields": dict(kind.fields)})
    view.show(shapes, table)


def note_shape(note: Note) -> dict[str, object]:
    """A note as JSON."""
    names = ("id", "kind", "title", "tags", "is_archived", "created_at", "changed_at", "text")
    return {**fields_of(note, *names), "fields": dict(note.fields)}


def _show_notes(view: Output, notes: Sequence[tuple[MemoryLevel, Note]], *, none: str = NO_NOTES) -> None:
    """Show notes as a table, each with the level whose memory it is of."""
    table = new_table("note", "level", "kind", "title", "changed", styles=dict.fromkeys(("level", "changed"), "dim"))
    for level, note in notes:
        table.add_row(*map(visible, (short_id(note.id), level, note.kind, note.title, local_time(note.changed_at))))
    view.show([{**note_shape(note), "level": level} for level, note in notes], table if notes else none)
    if notes:
        view.hint(f"{plural(len(notes), 'note')}; `perdure note show ID` prints one.")


def _open_memory(perdure: AsyncPerdure, where: NotePlace) -> ProjectMemory:
    """The memory that a command is about. Raises: InvalidInput: there is no such folder, or two memories are named."""
    if where.is_global and where.agent is not None:
        raise InvalidInput(f"--global and --agent {where.agent!r:.80} don't go together: give one of them")
    return ProjectMemory(perdure) if where.is_global else ProjectMemory(perdure, where.project, agent=where.agent)


async def _of_each(
    perdure: AsyncPerdure, where: NotePlace, find: Callable[[AsyncNotes], Awaitable[Sequence[T]]]
) -> list[tuple[MemoryLevel, T]]:
    """Return the results of `find` in the notes of the project and of the global level, each with its level."""
    readers = await _open_memory(perdure, where).readers()
    return [(level, one) for level, owner in readers for one in await find(owner.notes)]


async def _find_note(perdure: AsyncPerdure, text: str, where: NotePlace) -> tuple[AsyncNotes, Note]:
    """Return the note that a text names, with the notes of its agent. Raises: NotFound, InvalidInput."""
    readers = await _open_memory(perdure, where).readers()
    _, owner, note = await find_note(readers, text, hint="`perdure note list` shows those that there are")
    return owner.notes, note
