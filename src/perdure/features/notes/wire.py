"""Notes on the wire. No part of Letta's API."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from perdure.core.ids import PassageId
from perdure.features.notes.kinds import TITLE_CHARS, NoteKind, note_kinds
from perdure.features.notes.values import Note
from perdure.server.wire.base import WireRequest
from perdure.server.wire.fields import FILLED, ItemsByName, Tags, keywords
from perdure.server.wire.shapes import WireShape, computed

_Title = Annotated[str, keywords(pattern=FILLED, maxLength=TITLE_CHARS)]
_Fields = ItemsByName[str]


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
