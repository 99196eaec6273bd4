"""The lines of a block, and the edits that bring facts into it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from perdure.providers.extractive.facts import REMEMBER, Fact
from perdure.providers.extractive.sentences import sentences_in

MAX_LINE_CHARS = 700

_LINE = re.compile(r"[\s*•-]*([^:：]{1,60})[:：]\s*(.+?)\s*")


@dataclass(frozen=True, slots=True)
class Edit:
    """One call of an edit tool: `old` is replaced by `new`, or, when `old` is None, `new` is a line to append."""

    old: str | None
    new: str


def note_on(line: str) -> Fact | None:
    """The fact a line of a block holds; None for free text, which is somebody's own wording and not ours to replace."""
    if len(line) > MAX_LINE_CHARS or (match := _LINE.fullmatch(line)) is None:
        return None
    key, value = match[1].strip(), match[2]
    return Fact(key, value) if key == REMEMBER or len(sentences_in(value)) < 2 else None


def holds(value: str, fact: Fact) -> bool:
    """Whether a block's value has this fact, letter case aside."""
    lines = (note.line if (note := note_on(line)) else line for line in value.split("\n"))
    return fact.line.casefold() in map(str.casefold, lines)


def plan_edits(value: str, facts: Sequence[Fact]) -> tuple[list[Edit], str]:
    """The edits for one answer, in order, and the value they will leave.

    The replace tools refuse text that stands in the value twice. Then the whole value is replaced, by an answer of
    its own: if an edit before it were refused, it would not find its text.
    """
    edits: list[Edit] = []
    for fact in facts:
        if holds(value, fact):
            continue
        lines = value.split("\n") if value else []
        at = next((at for at, note in enumerate(map(note_on, lines)) if note and note.slot == fact.slot), None)
        if at is None:
            edits.append(Edit(None, fact.line))
            value = "\n".join([*lines, fact.line])
            continue
        corrected = "\n".join([*lines[:at], fact.line, *lines[at + 1 :]])
        if value.count(lines[at]) == 1:
            edits.append(Edit(lines[at], fact.line))
        elif edits:
            continue  # the next answer makes it
        else:
            return [Edit(value, corrected)], corrected
        value = corrected
    return edits, value
