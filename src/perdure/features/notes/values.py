"""A note, the kinds of notes with their fields, and a note as Markdown."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from perdure.core.errors import InvalidInput, NotFound
from perdure.core.ids import PassageId
from perdure.core.passages import Passage
from perdure.core.text.reprs import short_repr
from perdure.core.text.tables import read_table
from perdure.domain.values import as_tags

TITLE_CHARS = 200
NOTE_CHARS = 20_000
_HEADING = re.compile(r"^(\\*)(#{1,2} )", re.MULTILINE)
_ESCAPED = re.compile(r"^\\(\\*#{1,2} )", re.MULTILINE)
_BLANK_LINES = re.compile(r"\A(?:[^\S\n]*\n)+")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")
_CONTROL_IN_BODY = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
NOTE_TAG = "note"
"""The tag of passages that are notes."""
MemoryLevel = Literal["project", "global"]
"""Whether something belongs to the memory of a project, or to the one behind all projects."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NoteKind:
    """One kind of note.

    Args:
        about: what such a note is for.
        review_days: after so many days without a change it is to be reviewed.
        fields: name -> what is written there; the first one is required.
    """

    name: str
    about: str
    review_days: int
    fields: Mapping[str, str]


@functools.cache
def note_kinds() -> Mapping[str, NoteKind]:
    """All kinds by name."""
    return {name: NoteKind(name=name, **table) for name, table in read_table(__file__, "kinds.toml").items()}


def find_kind(name: Any) -> NoteKind:
    """Return the kind of this name. Raises: InvalidInput: there is none."""
    kinds = note_kinds()
    if not isinstance(name, str) or name not in kinds:
        raise InvalidInput(f"kind is {name!r:.80}: give one of {', '.join(kinds)}")
    return kinds[name]


def check_title(title: Any) -> str:
    """Return the title without spaces around it. Raises: InvalidInput: no text, too long, with control characters."""
    if not isinstance(title, str) or not title.strip():
        raise InvalidInput(f"title is {title!r:.80}: give a line that says what the note is about")
    line: str = title.strip()
    if _CONTROL.search(line):
        raise InvalidInput(f"title is {line!r:.80}: it has line breaks or control characters, give one plain line")
    if len(line) > TITLE_CHARS:
        raise InvalidInput(f"title has {len(line):,} characters, the limit is {TITLE_CHARS}: put the rest in a field")
    return line


def check_note_fields(kind: NoteKind, fields: Any) -> dict[str, str]:
    """Return the fields with a text, in the order of the kind. Raises: InvalidInput: an unknown field, one that is no
    text, the required one is missing, too long together."""
    names = ", ".join(kind.fields)
    if not isinstance(fields, Mapping):
        raise InvalidInput(f"fields is {fields!r:.80}: give an object with some of {names}")
    for name, text in fields.items():
        if name not in kind.fields:
            raise InvalidInput(f"{name!r:.80} is not a field of a note of the kind {kind.name!r}: it has {names}")
        if not isinstance(text, str):
            raise InvalidInput(f"field {name!r} is {text!r:.80}: give a text")
        if found := _CONTROL_IN_BODY.search(text.replace("\r\n", "\n")):
            raise InvalidInput(f"field {name!r} has the control character {found[0]!r}: leave it out")
    required = next(iter(kind.fields))
    found_texts = {name: _trim(fields.get(name, "").replace("\r\n", "\n")) for name in kind.fields}
    if not found_texts[required]:
        raise InvalidInput(
            f"field {required!r} is empty: a note of the kind {kind.name!r} needs {kind.fields[required]}"
        )
    if (chars := sum(map(len, found_texts.values()))) > NOTE_CHARS:
        raise InvalidInput(f"the note has {chars:,} characters, the limit is {NOTE_CHARS:,}: write several notes")
    return {name: text for name, text in found_texts.items() if text}


def to_markdown(title: str, fields: Mapping[str, str]) -> str:
    """Write a note as Markdown: a heading with its title, then one section a field. Headings of the first two levels
    within a field get a backslash, so that `from_markdown` reads the fields back as they were."""
    sections = [f"# {title}"]
    for name, text in fields.items():
        sections += f"## {label_of(name)}", _HEADING.sub(r"\\\1\2", text)
    return "\n\n".join(sections)


def from_markdown(kind: NoteKind, text: str) -> tuple[str, dict[str, str]]:
    """Read (title, fields) of a note, which a person may have edited. Text without a heading, or under an unknown one,
    belongs to the field before it, or to the first."""
    title, fields = "", dict[str, list[str]]()
    names = {label_of(name).casefold(): name for name in kind.fields}
    current = next(iter(kind.fields))
    for line in text.replace("\r\n", "\n").split("\n"):
        if line.startswith("# ") and not title and not fields:
            title = line[2:].strip()
        elif line.startswith("## ") and (name := names.get(line[3:].strip().casefold())) is not None:
            current = name
        else:
            fields.setdefault(current, []).append(line)
    read = {name: _trim(_ESCAPED.sub(r"\1", "\n".join(lines))) for name, lines in fields.items()}
    return title, {name: read[name] for name in kind.fields if read.get(name)}


def _trim(text: str) -> str:
    """A text without blank lines at its start and white space at its end; its first line keeps its indentation."""
    return _BLANK_LINES.sub("", text.rstrip(), count=1)


def label_of(name: str) -> str:
    """Return a field's name as a heading: `trade_offs` as `Trade offs`."""
    return name.replace("_", " ").capitalize()


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
        raise NotFound("note", passage.id, hint="that passage is not a note")
    return note


def check_note_tags(kind: NoteKind, tags: Sequence[str]) -> Sequence[str]:
    """Return a writer's own tags for a note of a kind. Raises: InvalidInput: one is the name of another kind."""
    own = [tag for given in as_tags(tags) if (tag := given.strip()) not in (NOTE_TAG, kind.name)]
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
