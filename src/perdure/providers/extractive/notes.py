"""The lines of a block, and the smallest edits that bring facts into it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from perdure.providers.extractive.facts import Fact, slot_of
from perdure.providers.extractive.patterns import DISLIKES, LIKES, REMEMBER
from perdure.providers.extractive.sentences import sentences_in

__all__ = ["Edit", "holds", "note_on", "plan_edits"]

MAX_LINE_CHARS = 700

_LINE = re.compile(r"[\s*•-]*([^:：]{1,60})[:：]\s*(.+?)\s*")
_KEYS = {key.casefold(): key for key in (LIKES, DISLIKES, REMEMBER)}


@dataclass(frozen=True, slots=True)
class Edit:
    """One call of an edit tool: `old` is replaced by `new`, or, when `old` is None, `new` is a line to append."""

    fact: Fact
    old: str | None
    new: str


def note_on(line: str) -> Fact | None:
    """The fact a line of a block holds; None for free text, which is somebody's own wording and not ours to replace."""
    if len(line) > MAX_LINE_CHARS or (match := _LINE.fullmatch(line)) is None:
        return None
    key, value = match.groups()
    key = _KEYS.get(key.strip().casefold(), key.strip())
    return Fact(key, value) if key == REMEMBER or len(sentences_in(value)) < 2 else None


def holds(value: str, fact: Fact) -> bool:
    """Whether a block's value has this fact, letter case aside."""
    lines = value.split("\n")
    if any(line.casefold() == fact.line.casefold() for line in lines):
        return True
    return any(note is not None and note.slot == fact.slot and _same(note, fact) for note in map(note_on, lines))


def plan_edits(value: str, facts: Sequence[Fact]) -> tuple[list[Edit], str]:
    """The edits for one answer, in order, and the value they will leave.

    An edit that would touch lines another edit of the answer touches waits for a later answer: if the first were
    refused, the second would not find its text.
    """
    edits: list[Edit] = []
    touched: set[int] = set()
    for fact in facts:
        if holds(value, fact):
            continue
        lines = value.split("\n") if value else []
        at = _line_of(lines, fact)
        if at is None:
            edits.append(Edit(fact, None, fact.line))
            touched.add(len(lines))
            value = "\n".join([*lines, fact.line])
            continue
        start, end = _unique_lines(value, lines, at)
        if not touched.isdisjoint(range(start, end)):
            continue
        touched.update(range(start, end))
        corrected = [*lines[:at], fact.line, *lines[at + 1 :]]
        edits.append(Edit(fact, "\n".join(lines[start:end]), "\n".join(corrected[start:end])))
        value = "\n".join(corrected)
    return edits, value


def _line_of(lines: Sequence[str], fact: Fact) -> int | None:
    """Which line this fact corrects."""
    for at, note in enumerate(map(note_on, lines)):
        if note is not None and slot_of(note.key, note.value) == fact.slot:
            return at
    return None


def _unique_lines(value: str, lines: Sequence[str], at: int) -> tuple[int, int]:
    """A small range of lines around `at` whose text stands in the value once: the replace tools refuse others."""
    start, end = at, at + 1
    while _count(value, "\n".join(lines[start:end])) > 1:  # ends: the whole value stands in itself once
        size = end - start
        end = min(len(lines), end + size)
        start = max(0, start if end > start + size else start - size)
    return start, end


def _count(value: str, text: str) -> int:
    """How often `text` stands in `value`, overlaps counted, two being enough."""
    first = value.find(text)
    return 1 if first < 0 or value.find(text, first + 1) < 0 else 2


def _same(note: Fact, fact: Fact) -> bool:
    tells_the_same = note.key == fact.key or note.key not in (LIKES, DISLIKES)
    return tells_the_same and note.value.casefold() == fact.value.casefold()
