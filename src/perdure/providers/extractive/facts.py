"""What people tell of themselves, as keyed lines: "I live in Turin" is `Lives in: Turin`.

A sentence is cut into clauses, and each clause is held against the `patterns`. One that asks, supposes or quotes tells
nothing.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass

from perdure.providers.extractive import patterns
from perdure.providers.extractive.patterns import DISLIKES, LIKES, REMEMBER
from perdure.providers.extractive.questions import is_question, stem
from perdure.providers.extractive.sentences import Sentence, one_line, sentences_in

__all__ = ["DISLIKES", "LIKES", "REMEMBER", "Fact", "facts_in", "slot_of"]

MAX_VALUE_CHARS = 600

_SHORT_KEYS = frozenset({"Lives in", "From", "Works at", "Works as", LIKES, DISLIKES})


@dataclass(frozen=True, slots=True)
class Fact:
    """One line of the block `human`."""

    key: str
    value: str

    @property
    def line(self) -> str:
        return f"{self.key}: {self.value}"

    @property
    def slot(self) -> tuple[str, str]:
        return slot_of(self.key, self.value)


def slot_of(key: str, value: str) -> tuple[str, str]:
    """What a fact is about: two facts of one slot can't both stand. Liking and disliking a thing share a slot."""
    if key in (LIKES, DISLIKES):
        return "taste", value.casefold()
    if key == REMEMBER:
        return key, value.casefold()
    return " ".join(map(stem, key.split())), ""


def facts_in(text: str) -> tuple[Fact, ...]:
    """The facts of a text, in order. Of two about one slot the later stands: people correct themselves."""
    facts: dict[tuple[str, str], Fact] = {}
    greeted = False
    for sentence in sentences_in(text):
        greeted = greeted or patterns.GREETS.match(sentence.masked) is not None
        for fact in _facts_of(sentence, greeted=greeted):
            facts.pop(fact.slot, None)
            facts[fact.slot] = fact
    return tuple(facts.values())


def _facts_of(sentence: Sentence, *, greeted: bool) -> Iterator[Fact]:
    if is_question(sentence):
        return
    lead = patterns.LEAD.match(sentence.masked)
    sentence = sentence.cut(lead.end() if lead else 0)
    asked = patterns.REMEMBERS.match(sentence.masked)
    if asked is None:
        yield from _told_in(sentence, greeted=greeted)
        return
    sentence = sentence.cut(asked.end(), len(sentence.masked.rstrip(" ?？")))
    told = list(_told_in(sentence, greeted=greeted))
    value = _tidy(sentence.text)
    if told:  # "remember that I live in Turin": better kept under its own key
        yield from told
    elif _says_something(value) and len(value) <= MAX_VALUE_CHARS and value not in ("me", "我"):
        yield Fact(REMEMBER, value)


def _told_in(sentence: Sentence, *, greeted: bool) -> Iterator[Fact]:
    """The facts of the clauses of one statement."""
    if patterns.SUPPOSES.match(sentence.masked):
        return
    speaking = False  # a clause without subject continues the one before: "I live in Turin and work at Fiat"
    for clause in _clauses(sentence):
        found = list(_facts_of_clause(clause, carried=speaking, greeted=greeted))
        yield from found
        speaking = bool(found) or patterns.OPENS_WITH_I.match(clause.masked) is not None


def _clauses(sentence: Sentence) -> Iterator[Sentence]:
    start = 0
    for gap in patterns.BREAK.finditer(sentence.masked):
        yield sentence.cut(start, gap.start())
        start = gap.end()
    yield sentence.cut(start)


def _facts_of_clause(clause: Sentence, *, carried: bool, greeted: bool) -> Iterator[Fact]:
    lead = patterns.LEAD.match(clause.masked)
    clause = clause.cut(lead.end() if lead else 0)
    if greeted and (introduced := patterns.INTRODUCES.match(clause.masked)):
        yield Fact("Name", introduced["v"])
        return
    for key, pattern in patterns.FACTS:
        match = pattern.match(clause.masked)
        if match is None or (match.groupdict().get("i", "") is None and not carried):
            continue
        value = clause.cut(*match.span("v"))
        if key in _SHORT_KEYS and (ending := patterns.SUBORDINATE.search(value.masked)):
            value = value.cut(0, ending.start())
        noun = clause.cut(*match.span("k")).text if "{}" in key else ""
        fact = Fact(key.format(one_line(noun)), _tidy(value.text))
        if _is_sound(key, noun, fact.value):
            yield from _split_list(fact)
        return


def _split_list(fact: Fact) -> Iterator[Fact]:
    """A list of three and more short things as one fact each; "fish and chips" and "Turin, Italy" stay whole."""
    items = [fact.value]
    if fact.key in (LIKES, DISLIKES):
        if "、" in fact.value:
            items = re.split(r"、|[和与]", fact.value)
        elif fact.value.count(",") >= 2 or re.search(r",\s.*\s(?:and|or)\s", fact.value):
            items = re.split(r",\s*(?:and\s+|or\s+)?|\s+(?:and|or)\s+", fact.value)
    items = [tidy for item in items if _says_something(tidy := _tidy(item))]
    if len(items) > 1 and any(len(item.split()) > 3 for item in items):
        items = [fact.value]
    yield from (Fact(fact.key, item) for item in items)


def _is_sound(key: str, noun: str, value: str) -> bool:
    if not _says_something(value) or len(value) > MAX_VALUE_CHARS or patterns.NEGATES.match(value):
        return False
    if "{}" in key and (patterns.IDLE_NOUN.search(noun) or patterns.IDLE_VALUE.match(value)):
        return False
    return key not in patterns.IDLE_VALUES or patterns.IDLE_VALUES[key].match(value) is None


def _says_something(value: str) -> bool:
    return any(char.isalnum() or unicodedata.category(char)[0] == "S" for char in value)


def _tidy(value: str) -> str:
    value = one_line(value).rstrip(" .!?,:;…。！？，、：；~～")
    value = patterns.TRAILING.sub("", value).rstrip(" ,，")
    return value[1:-1].strip() if len(value) > 2 and value[0] + value[-1] in ('""', "''", "“”", "«»", "「」") else value
