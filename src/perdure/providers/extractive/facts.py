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
    CJK,
    Sentence,
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
"""Keys of facts whose value is the name of something else, or a job."""
NAMES: Final = frozenset({"Name", "My nickname", "我的昵称"})

_TABLES = load_table("forms")

_LEAD = pattern(_TABLES["lead"])
_SIGNS = re.compile(r"(?<=[\w.!])\s+[^\w\s]+$")
_GREETS = pattern(r"\s*(?:hi|hello|hey)\b")
_INTRODUCES = re.compile(
    r"(?i:I'm|I\s+am|this\s+is)\s+(?P<v>[A-Z][\w'-]*(?:\s[A-Z][\w'.-]*){0,3})(?=[\s.!,]*$|\s+(?:from|and)\b)"
)
# One to four words that begin with a capital, and what may follow a name.
_CAPITAL = rf"(?!I\b)(?![{CJK}])[^\W\d_a-z](?:(?![{CJK}])[\w'.-])*"
_NAME_EN = re.compile(
    rf"(?P<v>{_CAPITAL}(?:\s+(?:(?:van|von|der|den|de|del|della|di|da|dos|la|le|bin|ibn|al|el|y)\s+){{0,2}}{_CAPITAL}){{0,3}})"
    r"(?P<rest>(?=[\s.!,;:)(–—-]*$)|\s*[,;(–—]|\s+(?:by|btw|and|but|or|from|though|too|now|actually|if|as|for|here|please|so|not|I|my)\b)"
)
_NAME_ZH = re.compile(
    rf"(?P<v>[{CJK}]{{2,4}}|[{CJK}]{{1,6}}·[{CJK}·]{{1,8}})\s*(?:(?:[，,。！!]|\s(?:by|btw|and|but|from)\b).*)?$",
    re.DOTALL,
)
# A name of a place or an employer: words with a capital or of Chinese, and small words between them.
_WORD = r"(?:(?:St|Mt|Ft|Dr|Mr|[A-Z])\.|(?:[^\W\da-z_]|\d|[a-z](?=[A-Z])|[\w-]+\.[a-z]{2,4}\b)(?:[\w'.&/+-]*[\w+])?)"
_SMALL = (
    r"(?:(?:of|the|de|del|della|di|da|do|dos|du|la|le|les|el|al|am|an|der|den|upon|von|van|sur|for|y|und|&)\s+){0,2}"
)
_PROPER = re.compile(
    rf"(?:[Tt]he\s+)?{_WORD}(?:\s+{_SMALL}{_WORD})*(?:(?:\s+and|,)\s+{_WORD}(?:\s+{_WORD})*(?=[\s.]*$))?"
)
_UNNAMED = re.compile(
    r"(?:(?:an?|my|our)\s+(?=[a-z])|(?:一[家个间所]|某))(?:.*?(?:\b(?:called|named)\s+|叫做?|名叫|名为)(?P<name>.+?)(?:的.*)?$)?"
)
_JOB_AT = re.compile(r"\s+(?:at|for)\s+(?P<v>.+)$")
_FROM = re.compile(r"\sfrom\s+(\S.*)$")
_AT_JOB = re.compile(r"\s+as\s+(?P<v>.+)$")
_FIRST_WORD = re.compile(r"(?:(?:an?|the|my|our|your|his|her|their|some)\s+)?([^\W\d_]+|\d+)?", re.IGNORECASE)
_REMEMBERS = pattern(
    r"""(?:(?:can|could|would|will)\s+you\s+(?:please\s+)?)?(?:remember|don't\s+forget|note|keep\s+in\s+mind)
        (?:\s+that\b)?(?!\s+(?:when|how|me)\b)(?:\s*[:,]\s*|\s+)
    | (?:请|帮我|你|要|一定)*(?:记住|記住|记得|記得|记下|别忘了)[\s：:，,]*"""
)
_SUPPOSES = pattern(_TABLES["supposes"])
_OPENS_WITH_I = pattern(r"I\b|I'|我")
# Between two statements of one sentence.
_AND = r"(?:and|but|so|while|though|because|since|then|also)\s+"
_BREAK = pattern(
    rf"""(?: [,–—]\s*(?:{_AND}){{0,4}} | \s+(?:{_AND}){{1,4}})
        (?= I\s | I'm\s | I've\s | my\s | (?:please\s+|just\s+)*call\s+me\s | (?:also\s+|now\s+|really\s+)*
            (?:live\s+in|work\s+(?:at|as|for)|like|love|hate|dislike|enjoy|don't\s+like|come\s+from|am\s)\s?)
    | [，,；]\s*(?=[我叫住来喜讨不也还很在今现最请但而]|\d{{1,3}}[岁歲])"""
)
_SUBORDINATE = pattern(r",?\s+(?:but|because|although|though|since|if|unless)\s | ， | ,(?=\s*(?:if|when|which)\b)")
_TRAILING = pattern(
    r"(?:[\s,]+(?:right\s+now|now|too|as\s+well|any\s*more|there|here|these\s+days|nowadays|at\s+the\s+moment|instead|very\s+much|so\s+much|a\s+lot|really|currently|though|please|again))+$|[了啊呀哦啦]+$"
)

_FACTS = load_table("facts")
FACTS: Final = tuple(
    (key, pattern(functools.reduce(lambda text, part: text.replace(*part), _FACTS["parts"].items(), form)))
    for key, form in _FACTS["facts"]
)
"""Key -> pattern of one clause; the first that matches counts."""

_IDLE_NOUN = pattern(_TABLES["idle_noun"])
_IDLE_VALUE = pattern(_TABLES["idle_value"])


@dataclass(frozen=True, slots=True)
class Fact:
    """One line of the block `human`."""

    key: str
    value: str

    @property
    def line(self) -> str:
        """The fact as it stands in the block."""
        return f"{self.key}: {self.value}"

    @property
    def slot(self) -> tuple[str, str]:
        """What the fact is about. A block keeps one fact per slot; liking and disliking a thing share a slot."""
        if self.key in (LIKES, DISLIKES, REMEMBER):
            return REMEMBER if self.key == REMEMBER else LIKES, self.value.casefold()
        return " ".join(map(stem, self.key.split())), ""

    def is_ended_by(self, other: Fact) -> bool:
        """Whether it holds no more when the other one does not; one without a value stands for any."""
        return self.key == other.key and (not other.value or self.value.casefold() == other.value.casefold())


def facts_in(text: str, *, greeted: bool = False) -> tuple[Fact, ...]:
    """The facts of a text, in order. Of two facts with one slot the later counts: people correct themselves.

    Args:
        greeted: a greeting came before the text, so that "I'm Ada" gives a name.
    """
    facts: dict[tuple[str, str], Fact] = {}
    for sentence in sentences_in(text):
        greeted = greeted or _GREETS.match(sentence.masked) is not None
        for fact in () if is_question(sentence) else _facts_of(_without_lead(sentence), greeted=greeted):
            facts.pop(fact.slot, None)
            facts[fact.slot] = fact
    return tuple(facts.values())


def _facts_of(sentence: Sentence, *, greeted: bool) -> Sequence[Fact]:
    """The facts of a sentence that is not a question.

    Args:
        greeted: the text began with a greeting, so that "I'm Ada" gives a name.
    """
    request = _REMEMBERS.match(sentence.masked)
    if request is not None:
        sentence = sentence.cut(request.end(), len(sentence.masked.rstrip(" ?？")))
    facts: list[Fact] = []
    breaks = [] if _SUPPOSES.match(sentence.masked) else [*_BREAK.finditer(sentence.masked), None]
    start, speaking = 0, False  # a clause without subject continues the one before: "I live in Turin and work at Fiat"
    for gap in breaks:
        clause = _without_lead(sentence.cut(start, gap.start() if gap else None))
        clause_facts = list(_facts_of_clause(clause, speaking=speaking, greeted=greeted))
        facts += clause_facts
        speaking = bool(clause_facts) or _OPENS_WITH_I.match(clause.masked) is not None
        start = gap.end() if gap else start
    # "remember that I live in Turin" is better kept under its own key.
    if request is not None and not facts and _says_something(value := _tidy(sentence.text)):
        return [Fact(REMEMBER, value)]
    return facts


def _facts_of_clause(clause: Sentence, *, speaking: bool, greeted: bool) -> Iterator[Fact]:
    """The facts of one clause; one that lacks its subject has some only after another of the same `speaking` person."""
    if greeted and (introduced := _INTRODUCES.match(clause.masked)):
        if name := _name_of(introduced["v"]):
            yield Fact("Name", name)
        return
    for key, form in FACTS:
        match = form.match(clause.masked)
        if match is None or (match.groupdict(default=None).get("i", "") is None and not speaking):
            continue
        value, noun = clause.cut(*match.span("v")), ""
        if "{}" in key:
            noun = one_line(clause.cut(*match.span("k")).text)
        elif ending := _SUBORDINATE.search(value.masked):
            value = value.cut(0, ending.start())
        tidy = _name_of(value.text, says_name=match[0].lower().startswith("my ")) if key in NAMES else _tidy(value.text)
        if key in NAMED:
            yield from _named_facts(key, tidy, capitals="I" in clause.text)
            return
        if _says_something(tidy) and not _IDLE_VALUE.match(tidy) and not (noun and _IDLE_NOUN.search(noun)):
            items = _items(tidy) if key in (LIKES, DISLIKES) else [tidy]
            yield from (Fact(key.format(noun), item) for item in items)
        return


def _name_of(value: str, *, says_name: bool = False) -> str:
    """The name that a value begins with; empty: it may be something else.

    Args:
        says_name: "my name is" came before it, so that one word in lower case is a name, too.
    """
    value = _SIGNS.sub("", one_line(value)).strip(" *_\"'“”「」.!?…。！？~")
    if (found := _NAME_EN.match(value)) or (
        says_name and (found := re.match(r"(?P<v>[^\W\d_]{2,20})(?P<rest>)$", value))
    ):
        words = found["v"].rstrip(".,'").split()
        return (
            ""
            if words[0].casefold() in phrases()["no_names"] or (value[0].islower() and found["rest"])
            else " ".join(words)
        )
    found = _NAME_ZH.match(value)
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


def _named_facts(key: str, value: str, *, capitals: bool) -> Iterator[Fact]:
    """The facts of a place, an employer or a job: "a nurse at Fiat" is two."""
    form, other = {"Works as": (_JOB_AT, "Works at"), "Works at": (_AT_JOB, "Works as")}.get(key, (None, ""))
    more = form.search(value) if form else None
    if name := named(key, value[: more.start()] if more else value, capitals=capitals):
        if more and (of_other := named(other, more["v"], capitals=capitals)):
            yield Fact(other, of_other)
        yield Fact(key, name)


def named(key: str, value: str, *, capitals: bool = True) -> str:
    """The place, employer or job that a value begins with, without what follows it; empty: it may be something else.

    Args:
        capitals: the one who wrote it writes capitals, so that a name has one.
    """
    value, idioms = one_line(value), phrases()
    if _is_idiom(key, value):
        return ""
    if key == "Works as":
        return str(idioms["after_job"].sub("", value))
    if unnamed := _UNNAMED.match(value):  # "a firm called Norvik", "a small flat in Turin"
        value = unnamed["name"] or (value.rpartition(" in ")[2] if " in " in value and key == "Lives in" else "")
    if found := _PROPER.match(value):
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
    if key == "Lives in" and (source := _FROM.search(value)) and _is_idiom(key, source[1]):
        return True  # "moved to Hetzner from AWS"
    words, value = phrases()["no_places"].get(key, ()), value.lower() if value.isupper() else value
    first, form = _FIRST_WORD.match(value), phrases()["no_forms"].get(key)
    word = (first[1] or "") if first else ""
    whole = value.lower() if key == "Works at" else value
    return whole in words or (word.isascii() and word in words) or bool(form and form.fullmatch(value))


def _items(value: str) -> list[str]:
    """The items of a value that lists three or more; "fish and chips" and "Turin, Italy" are one item each."""
    items = [value]
    if "、" in value:
        items = re.split(r"、|[和与]", value)
    elif value.count(",") >= 2 or re.search(r",\s.*\s(?:and|or)\s", value):
        items = re.split(r",\s*(?:and\s+|or\s+)?|\s+(?:and|or)\s+", value)
    items = [item for item in map(_tidy, items) if _says_something(item)]
    return [value] if any(len(item.split()) > 3 for item in items) else items


def _without_lead(sentence: Sentence) -> Sentence:
    """The sentence without "well", "hi" and similar words at its start."""
    lead = _LEAD.match(sentence.masked)
    return sentence.cut(lead.end() if lead else 0)


def supposes(sentence: Sentence) -> bool:
    """Whether a sentence tells what might be."""
    return _SUPPOSES.match(_without_lead(sentence).masked) is not None


def greets(text: str) -> bool:
    """Whether a text begins with a greeting."""
    return _GREETS.match(text) is not None


def _says_something(value: str) -> bool:
    """Whether a value is short enough to keep, and more than punctuation."""
    return len(value) <= MAX_VALUE_CHARS and any(
        char.isalnum() or unicodedata.category(char)[0] == "S" for char in value
    )


def _tidy(value: str) -> str:
    """The value on one line, without quotation marks, end marks and trailing words such as "now"."""
    value = _SIGNS.sub("", one_line(value)).rstrip(" .!?,:;…。！？，、：；~")
    value = _TRAILING.sub("", value).rstrip(" ,，")
    return value[1:-1].strip() if len(value) > 2 and value[0] + value[-1] in ('""', "''", "“”", "「」") else value
