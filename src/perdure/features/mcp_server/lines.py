"""Notes, facts and passages as lines of an answer."""

from __future__ import annotations

from collections.abc import Sequence

from perdure.context.sections.expand import Budget, largest
from perdure.core.passages import Passage
from perdure.features.facts.values.facts import Fact
from perdure.features.notes.values import MemoryLevel, Note

LINE_CHARS = 300


def line_of(text: str) -> str:
    """Return the beginning of a text on one line."""
    line = " ".join(text.split())
    return line if len(line) <= LINE_CHARS else f"{line[: LINE_CHARS - 1]}…"


def note_text(note: Note) -> str:
    """Return a whole note below a heading with its id."""
    return f"## {note.kind}, {note.changed_at:%Y-%m-%d} ({note.id})\n{note.text}"


def note_line(note: Note, level: MemoryLevel) -> str:
    """Return a note's id, kind, date, title and level."""
    return f"{note.id} {note.kind} {note.changed_at:%Y-%m-%d} {note.title} ({level})"


def passage_line(passage: Passage, level: MemoryLevel) -> str:
    """Return a passage's date, text, id and level."""
    return f"{passage.occurred_at:%Y-%m-%d} {line_of(passage.text)} ({passage.id}, {level})"


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
