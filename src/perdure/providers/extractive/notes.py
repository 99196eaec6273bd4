"""The lines of the block `human`: what of a text belongs there, what it ends, and the edits that bring both about.

Lines and facts of the memory graph come from one reading (`statements`), so that they say the same.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from perdure.providers.extractive.facts import DISLIKES, LIKES, REMEMBER, Fact, facts_in
from perdure.providers.extractive.language import sentences_in
from perdure.providers.extractive.statements import CORRECTION, OBJECT_SIGNS, OBJECT_WORDS, RELATIONS, statements_in

MAX_LINE_CHARS = 700

_LINE = re.compile(r"[\s*•-]*([^:：]{1,60})[:：]\s*(.+?)\s*")

KEYS = {relation: key for key, (relation, _) in RELATIONS.items()}
"""Relation of a statement -> key of its line."""
_ANY_TIME = datetime(2000, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Edit:
    """One call of an edit tool: `old` is replaced by `new`, or, when `old` is None, `new` is a line to append."""

    old: str | None
    new: str


@dataclass(frozen=True, slots=True)
class Notes:
    """What a text says for the block: facts that hold, and facts that hold no more."""

    facts: tuple[Fact, ...]
    ended: tuple[Fact, ...]


def notes_of(text: str) -> Notes:
    """Read the facts of a text, in order. Of two with one slot the later counts: people correct themselves."""
    plain = facts_in(text)
    held: dict[tuple[str, str], Fact] = {}
    ended: dict[Fact, None] = {}
    # A line has no time, so it doesn't matter when the text was written.
    for one in statements_in(text, now=_ANY_TIME):
        if one.relation == CORRECTION and held:
            slot, last = held.popitem()
            held[slot] = Fact(last.key, one.object)
        key = KEYS.get(one.relation)
        if key is None or one.subject:
            continue
        # A taste is more than its object: "tea with milk".
        tastes = [fact for fact in plain if key in (LIKES, DISLIKES) and fact.key == key]
        fact = Fact(key, one.object.removesuffix(" years old").removesuffix("岁"))
        fact = next((taste for taste in tastes if taste.value.startswith(one.object) and taste.slot not in held), fact)
        if one.mode == "is":
            ended.pop(fact, None)
            held.pop(fact.slot, None)
            held[fact.slot] = fact
        else:
            ended[fact] = None
            if held.get(fact.slot) == fact:
                del held[fact.slot]
    facts: dict[Fact, None] = {}
    for fact in plain:
        if fact.key not in RELATIONS or _is_long(fact.value):
            facts[fact] = None
        elif fact.slot in held:
            facts[held[fact.slot]] = None
    return Notes(tuple(facts | dict.fromkeys(held.values())), tuple(ended))


def _is_long(value: str) -> bool:
    """Whether a value is longer than the name of an entity: it stays as it was said."""
    return len(value) > OBJECT_SIGNS or len(value.split()) > OBJECT_WORDS


def parse_note(line: str) -> Fact | None:
    """The fact in a line of a block; None for free text, which is somebody's own wording and must stay."""
    if len(line) > MAX_LINE_CHARS or (match := _LINE.fullmatch(line)) is None:
        return None
    key, value = match[1].strip(), match[2]
    return Fact(key, value) if key == REMEMBER or len(sentences_in(value)) < 2 else None


def holds(value: str, fact: Fact) -> bool:
    """Whether a block's value has this fact, letter case aside."""
    lines = (note.line if (note := parse_note(line)) else line for line in value.split("\n"))
    return fact.line.casefold() in map(str.casefold, lines)


def plan_edits(value: str, facts: Sequence[Fact], ended: Sequence[Fact] = ()) -> tuple[list[Edit], str]:
    """Plan the edits for one answer, in order, and the value of the block after them. Lines that ended are removed.

    The replace tools refuse text that stands in the value twice. Then the whole value is replaced, by an answer of
    its own: if an edit before it were refused, it would not find its text.
    """
    edits: list[Edit] = []
    for fact in ended:
        lines = value.split("\n")
        for line in [line for line in lines if holds(line, fact)]:
            old = f"\n{line}" if line != lines[0] else f"{line}\n" if len(lines) > 1 else line
            if value.count(old) == 1:
                edits.append(Edit(old, ""))
                value = value.replace(old, "")
    for fact in facts:
        if holds(value, fact):
            continue
        lines = value.split("\n") if value else []
        notes = enumerate(map(parse_note, lines))
        place = next((place for place, note in notes if note and note.slot == fact.slot), None)
        if place is None:
            edits.append(Edit(None, fact.line))
            value = "\n".join([*lines, fact.line])
            continue
        corrected = "\n".join([*lines[:place], fact.line, *lines[place + 1 :]])
        if value.count(lines[place]) == 1:
            edits.append(Edit(lines[place], fact.line))
        elif edits:
            continue  # the next answer makes it
        else:
            return [Edit(value, corrected)], corrected
        value = corrected
    return edits, value
