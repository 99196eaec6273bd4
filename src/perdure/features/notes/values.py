"""A note."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from perdure.core.errors import InvalidInput, NotFound
from perdure.core.ids import PassageId
from perdure.core.passages import Passage
from perdure.core.text.reprs import short_repr
from perdure.domain.values import as_tags
from perdure.features.notes.kinds import TITLE_CHARS, NoteKind, from_markdown, note_kinds

NOTE_TAG = "note"
"""The tag of passages that are notes."""

MemoryLevel = Literal["project", "global"]
"""Whether something belongs to the memory of a project, or to the one behind all projects."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """A structured note, which is a passage of its agent's archive.

    Args:
        id: of the passage.
        kind: the name of its `NoteKind`.
        fields: name -> text, in the order of the kind.
        text: title and fields as Markdown, as the passage has them.
        tags: those that its writer gave it.
        is_archived: whether only a search that asks for archived notes finds it.
        changed_at: when its text was written last, or a review kept it.
    """

    __repr__ = short_repr("id", "kind", "title")

    id: PassageId
    kind: str
    title: str
    fields: Mapping[str, str]
    text: str
    tags: tuple[str, ...] = ()
    is_archived: bool = False
    created_at: datetime
    changed_at: datetime

    def is_stale(self, at: datetime, days: int | None = None) -> bool:
        """Whether it is to be reviewed: nobody changed it for so many days, by default as many as its kind has."""
        return (at - self.changed_at).days >= (note_kinds()[self.kind].review_days if days is None else days)


def note_of(passage: Passage, kind_name: str | None = None) -> Note | None:
    """Return the note that a passage is; None: it is none, or none of the kind of this name."""
    kind = note_kinds().get(str(passage.metadata.get("kind")))
    if NOTE_TAG not in passage.tags or kind is None or kind_name not in (None, kind.name):
        return None
    title, fields = from_markdown(kind, passage.text)
    return Note(
        id=passage.id,
        kind=kind.name,
        title=title or passage.text.strip().split("\n", 1)[0].strip("# \r")[:TITLE_CHARS],  # without its heading
        fields=fields,
        text=passage.text,
        tags=tuple(tag for tag in passage.tags if tag not in (NOTE_TAG, kind.name)),
        is_archived=passage.state == "archived",
        created_at=passage.created_at,
        changed_at=_time_of(passage.metadata.get("changed_at")) or passage.created_at,
    )


def get_note(passage: Passage) -> Note:
    """Return the note that a passage is. Raises: NotFound: it is none."""
    if (note := note_of(passage)) is None:
        raise NotFound("note", passage.id, hint="that passage is no note")
    return note


def check_note_tags(kind: NoteKind, tags: Sequence[str]) -> Sequence[str]:
    """Return a writer's own tags for a note of a kind. Raises: InvalidInput: one is the name of another kind."""
    own = [tag for one in as_tags(tags) if (tag := one.strip()) not in (NOTE_TAG, kind.name)]
    if other := next((tag for tag in own if tag in note_kinds()), ""):
        raise InvalidInput(
            f"tag {other!r} is the name of a kind of notes, and this one is of {kind.name!r}: leave it out"
        )
    return own


def _time_of(value: object) -> datetime | None:
    """The time that a passage's metadata hold as a text; None: they hold none with a zone. Anybody may write them."""
    try:
        at = datetime.fromisoformat(value) if isinstance(value, str) else None
    except ValueError:
        return None
    return None if at is None or at.tzinfo is None else at
