"""Facts that people state about themselves, as keyed lines of a block: "I live in Turin" is `Lives in: Turin`.

A sentence is cut into clauses, and each clause is held against the patterns of `FACTS`. One that asks, supposes or
quotes tells nothing.
"""

from __future__ import annotations

import functools
import re
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from perdure.providers.extractive.language import (
    Patterns,
    Sentence,
    fill_pattern,
    is_question,
    load_table,
    one_line,
    pattern,
    sentences_in,
    stem,
)

MAX_VALUE_CHARS = 600
LIKES, DISLIKES, REMEMBER = "Likes", "Dislikes", "Remember"
NAMED: Final = frozenset({"Lives in", "From", "Works at", "Works as"})
"""Keys of facts whose value is the name of a place or an employer, or a job."""
NAMES: Final = frozenset({"Name", "My nickname", "我的昵称"})

_FORM = Patterns("facts")
_FACTS = load_table("facts")
FACTS: Final = tuple((key, pattern(fill_pattern(form, _FACTS["parts"]))) for key, form in _FACTS["facts"])
"""Key -> pattern of one clause; the first that matches counts."""


@dataclass(frozen=True, slots=True)
class BlockFact:
    """One line of the block `human`."""

    key: str
    value: str

    @property
    def line(self) -> str:
        """The fact as a line of the block."""
        return f"{self.key}: {self.value}"

    @property
    def slot(self) -> tuple[str, str]:
        """What the fact is about. A block keeps one fact per slot; liking and disliking a thing share a slot."""
        if self.key in (LIKES, DISLIKES, REMEMBER):
            return REMEMBER if self.key == REMEMBER else LIKES, self.value.casefold()
        return " ".join(map(stem, self.key.split())), ""

    def is_ended_by(self, other: BlockFact) -> bool:
        """Whether this fact ends when the other one, of the same key, is said to be over; an empty value means any."""
        return self.key == other.key and (not other.value or self.value.casefold() == other.value.casefold())


def facts_in(text: str, *, greeted: bool = False) -> tuple[BlockFact, ...]:
    """The facts of a text, in order. Of two facts with one slot the later counts: people correct themselves. `greeted`:
    a greeting came before the text, so that "I'm Ada" gives a name."""
    facts: dict[tuple[str, str], BlockFact] = {}
    for sentence in sentences_in(text):
        greeted = greeted or _FORM["greets"].match(sentence.masked) is not None
        for fact in () if is_question(sentence) else _facts_of(_without_lead(sentence), greeted=greeted):
            facts.pop(fact.slot, None)
            facts[fact.slot] = fact
    return tuple(facts.values())


def _facts_of(sentence: Sentence, *, greeted: bool) -> Sequence[BlockFact]:
    """The facts of a statement. `greeted`: the text began with a greeting, so "I'm Ada" gives a name."""
    request = _FORM["remembers"].match(sentence.masked)
    if request is not None:
        sentence = sentence.cut(request.end(), len(sentence.masked.rstrip(" ?？")))
    facts: list[BlockFact] = []
    breaks = [] if _FORM["supposes"].match(sentence.masked) else [*_FORM["break"].finditer(sentence.masked), None]
    start, speaking = 0, False  # a clause without subject continues the one before: "I live in Turin and work at Fiat"
    for gap in breaks:
        clause = _without_lead(sentence.cut(start, gap.start() if gap else None))
        clause_facts = list(_facts_of_clause(clause, speaking=speaking, greeted=greeted))
        facts += clause_facts
        speaking = bool(clause_facts) or _FORM["opens_with_i"].match(clause.masked) is not None
        start = gap.end() if gap else start
    # "remember that I live in Turin" is better kept under its own key.
    if request is not None and not facts and _says_something(value := _tidy(sentence.text)):
        return [BlockFact(REMEMBER, value)]
    return facts


def _facts_of_clause(clause: Sentence, *, speaking: bool, greeted: bool) -> Iterator[BlockFact]:
    """The facts of one clause. One that lacks its subject has some only if it is `speaking`: the clause before was
    about the speaker. `greeted` as in `_facts_of`."""
    if greeted and (introduced := _FORM["introduces"].match(clause.masked)):
        if name := _name_of(introduced["v"]):
            yield BlockFact("Name", name)
        return
    for key, form in FACTS:
        match = form.match(clause.masked)
        if match is None or (match.groupdict(default=None).get("i", "") is None and not speaking):
            continue
        value, noun = clause.cut(*match.span("v")), ""
        if "{}" in key:
            noun = one_line(clause.cut(*match.span("k")).text)
        elif ending := _FORM["subordinate"].search(value.masked):
            value = value.cut(0, ending.start())
        tidy = _name_of(value.text, says_name=match[0].lower().startswith("my ")) if key in NAMES else _tidy(value.text)
        if key in NAMED:
            yield from _named_facts(key, tidy, capitals="I" in clause.text)
            return
        is_idle = _FORM["idle_value"].match(tidy) or (noun and _FORM["idle_noun"].search(noun))
        if _says_something(tidy) and not is_idle:
            items = _items(tidy) if key in (LIKES, DISLIKES) else [tidy]
            yield from (BlockFact(key.format(noun), item) for item in items)
        return


def _name_of(value: str, *, says_name: bool = False) -> str:
    """Return the name at the beginning of a value; empty: it may be something else. `says_name`: it follows "my name
    is", so one lower-case word is a name too."""
    value = _FORM["signs"].sub("", one_line(value)).strip(" *_\"'“”「」.!?…。！？~")
    if (found := _FORM["name_en"].match(value)) or (
        says_name and (found := re.match(r"(?P<v>[^\W\d_]{2,20})(?P<rest>)$", value))
    ):
        words = found["v"].rstrip(".,'").split()
        is_other = words[0].casefold() in phrases()["no_names"] or (value[0].islower() and found["rest"])
        return "" if is_other else " ".join(words)
    found = _FORM["name_zh"].match(value)
    if found is None or found["v"].startswith(phrases()["no_names_zh"]) or found["v"].endswith(phrases()["no_ends_zh"]):
        return ""
    return found["v"]


@functools.cache
def phrases() -> dict[str, Any]:
    """The lists of `idioms.toml`, each a tuple of words, and its patterns."""
    data = load_table("idioms")
    places = {key: tuple(words.split()) for key, words in data.pop("no_places").items()}
    forms = {key: pattern(form) for key, form in data.pop("no_forms").items()}
    names = {name: re.compile(form, re.VERBOSE) for name, form in data.pop("names").items()}
    words = {name: tuple(words.split()) for name, words in data.items()}
    return {**words, **names, "no_places": places, "no_forms": forms}


def _named_facts(key: str, value: str, *, capitals: bool) -> Iterator[BlockFact]:
    """The facts of a place, an employer or a job: "a nurse at Fiat" is two."""
    form, other = {"Works as": ("job_at", "Works at"), "Works at": ("at_job", "Works as")}.get(key, ("", ""))
    more = _FORM[form].search(value) if form else None
    if name := named(key, value[: more.start()] if more else value, capitals=capitals):
        if more and (of_other := named(other, more["v"], capitals=capitals)):
            yield BlockFact(other, of_other)
        yield BlockFact(key, name)


def named(key: str, value: str, *, capitals: bool = True) -> str:
    """Return the place, employer or job at the beginning of a value; empty: it may be something else. `capitals`: the
    writer uses capital letters, so a name must have one."""
    value, idioms = one_line(value), phrases()
    if _is_idiom(key, value):
        return ""
    if key == "Works as":
        return str(idioms["after_job"].sub("", value))
    if unnamed := _FORM["unnamed"].match(value):  # "a firm called Norvik", "a small flat in Turin"
        value = unnamed["name"] or (value.rpartition(" in ")[2] if " in " in value and key == "Lives in" else "")
    if found := _FORM["proper"].match(value):
        more = idioms["institution"].match(value, found.end())
        end = more.end() if more else found.end()
        rest, value = value[end:], value[:end]
        if rest[:1].isspace() and not idioms["after"].match(rest):  # "Berlin timezone", "Bob's house"
            return ""
    elif capitals and not (key == "Works at" and idioms["institution"].fullmatch(value.removeprefix("the"))):
        return ""
    else:
        value = idioms["after"].sub("", value)
    return "" if _is_idiom(key, value) else value


def _is_idiom(key: str, value: str) -> bool:
    """Whether a value makes the clause a phrase that is no fact: "at night" is no place of work."""
    if key == "Lives in" and (source := _FORM["from"].search(value)) and _is_idiom(key, source[1]):
        return True  # "moved to Hetzner from AWS"
    words, value = phrases()["no_places"].get(key, ()), value.lower() if value.isupper() else value
    first, form = _FORM["first_word"].match(value), phrases()["no_forms"].get(key)
    word = (first[1] or "") if first else ""
    whole = value.lower() if key == "Works at" else value
    return whole in words or (word.isascii() and word in words) or bool(form and form.fullmatch(value))


def _items(value: str) -> list[str]:
    """The items of a value that lists three or more; "fish and chips" and "Turin, Italy" are one item each."""
    items = [value]
    if "、" in value:
        items = re.split(r"、|[和与]|(?<![平高中初上下优同])等.{0,3}$", value)
    elif value.count(",") >= 2 or re.search(r",\s.*\s(?:and|or)\b|\sas\swell\sas\s", value):
        items = re.split(r",\s*(?:and\s+|or\s+)?|\s+(?:and|or|as\s+well\s+as)\s+", value)
    items = [item for item in map(_tidy, items) if _says_something(item) and not _FORM["filler"].fullmatch(item)]
    return [value] if any(len(item.split()) > 3 for item in items) else items


def _without_lead(sentence: Sentence) -> Sentence:
    """The sentence without "well", "hi" and similar words at its start."""
    lead = _FORM["lead"].match(sentence.masked)
    return sentence.cut(lead.end() if lead else 0)


def is_hypothetical(sentence: Sentence) -> bool:
    """Whether a sentence tells what might be."""
    return _FORM["supposes"].match(_without_lead(sentence).masked) is not None


def is_greeting(text: str) -> bool:
    """Whether a text begins with a greeting."""
    return _FORM["greets"].match(text) is not None


def _says_something(value: str) -> bool:
    """Whether a value is short enough to keep, and more than punctuation."""
    return len(value) <= MAX_VALUE_CHARS and any(
        char.isalnum() or unicodedata.category(char)[0] == "S" for char in value
    )


def _tidy(value: str) -> str:
    """The value on one line, without quotation marks, end marks and trailing words such as "now"."""
    value = _FORM["signs"].sub("", one_line(value)).rstrip(" .!?,:;…。！？，、：；~")
    value = _FORM["trailing"].sub("", value).rstrip(" ,，")
    return value[1:-1].strip() if len(value) > 2 and value[0] + value[-1] in ('""', "''", "“”", "「」") else value
