"""Notes, facts and passages as lines of an answer."""

from __future__ import annotations

import re
from collections.abc import Sequence

from perdure.context.sections.expand import Budget, largest
from perdure.core.messages import Message
from perdure.core.passages import Passage
from perdure.features.facts.values.facts import Fact
from perdure.features.notes.kinds import note_kinds
from perdure.features.notes.values import NOTE_TAG, MemoryLevel, Note

LINE_CHARS = 300


def line_of(text: str) -> str:
    """Return the beginning of a text on one line."""
    line = " ".join(text.split())
    return line if len(line) <= LINE_CHARS else f"{line[: LINE_CHARS - 1]}…"


def line_around(text: str, match: re.Match[str]) -> str:
    """Return the part of a text around a match on one line."""
    start = max(0, match.start() - LINE_CHARS // 3)
    return f"{'…' if start else ''}{line_of(text[start:])}"


def tags_text(tags: Sequence[str]) -> str:
    """Return the tags that a writer gave a passage as an end of its line; those of notes are their kind."""
    own = [tag for tag in tags if NOTE_TAG not in tags or tag not in (NOTE_TAG, *note_kinds())]
    return f" [{line_of(', '.join(own))}]" if own else ""


def note_text(note: Note) -> str:
    """Return a whole note below a heading with its id."""
    return f"## {note.kind}, {note.changed_at:%Y-%m-%d} ({note.id})\n{note.text}"


def note_line(note: Note, level: MemoryLevel) -> str:
    """Return a note's id, kind, date, title, tags and level."""
    return f"{note.id} {note.kind} {note.changed_at:%Y-%m-%d} {note.title}{tags_text(note.tags)} ({level})"


def passage_line(passage: Passage, level: MemoryLevel) -> str:
    """Return a passage's date, text, tags, id and level."""
    tags = tags_text(passage.tags)
    return f"{passage.occurred_at:%Y-%m-%d} {line_of(passage.text)}{tags} ({passage.id}, {level})"


def message_line(message: Message, text: str) -> str:
    """Return a message's id, time and role, and a part of its text."""
    return f"{message.id} {message.created_at:%Y-%m-%d %H:%M} {message.role}: {line_of(text)}"


def fact_line(fact: Fact) -> str:
    """Return a fact's id and text, and since and until when it is true."""
    since = f" since {fact.valid_at:%Y-%m-%d}" if fact.valid_at else ""
    until = f" until {fact.invalid_at:%Y-%m-%d}" if fact.invalid_at else ""
    return f"{fact.id} {line_of(fact.text)}{since}{until}"


def fit_parts(parts: Sequence[str], budget: Budget, separator: str = "\n") -> str:
    """Return as many parts of the beginning as fit, with a last line that says how many were left out."""
    if budget.fits(whole := separator.join(parts)):
        return whole

    def shorter(count: int) -> str:
        return separator.join([*parts[:count], f"[{count} of {len(parts)} are shown: there is no room for more]"])

    if count := largest(len(parts) - 1, lambda count: budget.fits(shorter(count))):
        return shorter(count)
    return budget.cut(whole)
