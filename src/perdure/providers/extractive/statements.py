"""Statements of a text: who or what, in which relation, to what, since and until when, and whether it still is so.

A clause is brought into the plain form of `facts`: "Eva no longer works at Fiat" is "I work at Fiat", about Eva
and over.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Final, Literal

from perdure.core.text.dates import EARLIEST, LATEST, spans
from perdure.providers.extractive.facts import (
    DISLIKES,
    LIKES,
    NAMED,
    BlockFact,
    facts_in,
    is_greeting,
    is_hypothetical,
    named,
    phrases,
)
from perdure.providers.extractive.language import (
    CJK,
    KIN,
    Patterns,
    Sentence,
    is_question,
    load_table,
    one_line,
    sentences_in,
)

Mode = Literal["is", "was", "not", "ends", "never"]
"""`was`: it was so, and is no more. `not` and `ends`: it is not so, and ends what is known; with "no more" and the like
`not` is `was`. `never`: it never was so."""

RELATIONS: Final = {
    "Age": ("HAS_AGE", "Concept"),
    "Lives in": ("LIVES_IN", "Location"),
    "From": ("COMES_FROM", "Location"),
    "Works as": ("WORKS_AS", "Concept"),
    "Works at": ("WORKS_AT", "Organization"),
    LIKES: ("LIKES", "Preference"),
    DISLIKES: ("DISLIKES", "Preference"),
}
"""Key of a fact -> relation and type of the object."""

NAME, BIRTHDAY = "HAS_NAME", "HAS_BIRTHDAY"
KEYS: Final = {relation: key for key, (relation, _) in RELATIONS.items()} | {NAME: "Name"}
"""Relation of a statement -> key of its line in a block."""

_TABLES = load_table("forms")
PETS: Final = frozenset(_TABLES["pets"].split())

_words = "|".join(sorted((*KIN, *PETS), key=len, reverse=True))
_EN_WORDS = "|".join(word for word in _words.split("|") if word.isascii())
_ZH_WORDS = "|".join(word for word in _words.split("|") if not word.isascii())
_PREPOSITIONS: Final = {
    **{"in": ("LIVES_IN",), "at": ("WORKS_AT",), "from": ("COMES_FROM",), "as": ("WORKS_AS",)},
    **{"在": ("LIVES_IN", "WORKS_AT"), "住在": ("LIVES_IN",)},
}
_FORMS: Final[Sequence[tuple[re.Pattern[str], str, Mode]]] = tuple(
    (re.compile(form.replace(" ", r"\s+"), re.IGNORECASE), plain, mode) for form, plain, mode in _TABLES["forms"]
)
_OF_SPEAKER: Final = re.compile(r"\b(?:I|we|my|me)\b", re.IGNORECASE)
"""Each English form has one of these words, each Chinese one has 我; most clauses have neither."""
_OVER: Final = tuple(
    (re.compile(form.replace(" ", r"\s+") + r"[\s.!。！]*", re.IGNORECASE), relation)
    for form, relation in _TABLES["over"]
)
_NO_SUBJECT = r"\s*(?:(?:and|but|also|now|我说错了|不对)[\s,，]+)*"
_BEGINS = rf"{_NO_SUBJECT}{{}}(?=\s|[{CJK}])"  # of a clause that begins with a name, after words that don't count
_FORM = Patterns("statements", NO_SUBJECT=_NO_SUBJECT, KIN_EN=_EN_WORDS, KIN_ZH=_ZH_WORDS)
_THIRD_EN = tuple(
    (re.compile(rf"I\s+(?:also\s+|now\s+)?{form}\b"), f"I {plain}") for form, plain in _TABLES["third"].items()
)
ASIDE_SIGNS = 100
OBJECT_WORDS, OBJECT_SIGNS = 7, 40
"""The longest name of an object, in words and in characters."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Statement:
    """What one clause says.

    Attributes:
        subject: a name; empty: the speaker.
        relation: such as `LIVES_IN`; of `HAS_NAME` the object is a name of the speaker.
        object: empty: whatever it is ("I don't live there any more"). `kind` is its type, such as "Person".
        word: the noun of a relative or pet, such as "sister"; empty for all else.
        old: the object that this one is put in the place of, by "I meant".
        valid_at, invalid_at: as the clause says; None: it says nothing.
    """

    relation: str
    object: str
    kind: str = "Concept"
    subject: str = ""
    mode: Mode = "is"
    valid_at: datetime | None = None
    invalid_at: datetime | None = None
    word: str = ""
    old: str = ""


def statements_in(text: str, *, now: datetime, people: Sequence[str] = (), before: str = "") -> Sequence[Statement]:
    """Find the statements of a text, said at `now`, in order, about the speaker, their relatives and pets, and known
    `people`. `before`: what the same person said before it, which the text may correct."""
    found: list[Statement] = []
    earlier: list[Sequence[Statement]] = [statements_in(before, now=now, people=people)] if before else []
    named, spoken_of = list(people), dict[str, None]()
    greeted = False
    for sentence, aside in itertools.chain.from_iterable(map(_asides, sentences_in(text))):
        greeted = greeted or is_greeting(sentence.masked)
        if is_question(sentence) or is_hypothetical(sentence) or not sentence.masked.strip(" \n\ue000"):
            continue
        if correction := aside or _FORM["corrects"].match(sentence.masked):
            if corrected := _correction(sentence, correction, earlier, now):
                earlier.append([corrected])
                found.append(corrected)
            continue
        statements_told: list[Statement] = []
        for clause in _clauses(sentence):
            statements = list(_statements_of(clause, now, named, greeted))
            if len(spoken_of) == 1 and (pronoun := _FORM["pronoun"].match(clause.masked)):
                # "She left Fiat" ends what the text has said of the only person in it; else "she" may be anybody.
                rest, they = _about(clause.cut(pronoun.end())), next(iter(spoken_of))
                is_over = _FORM["no_more"].search(clause.masked)  # "she doesn't like tea any more"
                statements = [
                    plain_statement
                    for plain_statement in _plain_statements(rest, now, they, greeted)
                    if plain_statement.mode != "is" or (is_over and plain_statement.relation == "DISLIKES")
                ]
            named += [statement.object for statement in statements if statement.word]
            spoken_of |= dict.fromkeys(one.object if one.word else one.subject for one in statements)
            spoken_of.pop("", None)
            statements_told += statements
        earlier.append(statements_told)
        found += statements_told
    return found


def _asides(sentence: Sentence) -> Sequence[tuple[Sentence, re.Match[str] | None]]:
    """Cut a sentence before what corrects it ("I live in Turin, no, in Milan"): (part, the correction's match) each."""
    for gap in _FORM["aside"].finditer(sentence.masked):
        rest = sentence.cut(gap.end())
        aside = _FORM["corrects"].match(rest.masked) or _FORM["aside_no"].match(rest.masked)
        if aside and len(rest.text) <= ASIDE_SIGNS:
            return [(sentence.cut(0, gap.start()), None), (rest, aside)]
    return [(sentence, None)]


def _correction(
    sentence: Sentence, match: re.Match[str], earlier: Sequence[Sequence[Statement]], now: datetime
) -> Statement | None:
    """Return an earlier statement as a correction changes it; None: it fits none, or several. `match`: the new value,
    and maybe the old one or a preposition; `earlier`: the statements of each sentence."""
    said = {name.partition("_")[0]: name for name, value in match.groupdict().items() if value}
    value, old = sentence.cut(*match.span(said["v"])).text, _tidy(match[said["old"]]) if "old" in said else ""
    relations = _PREPOSITIONS.get(match[said["at"]].lower()) if "at" in said else None
    if value.isdecimal():
        relations = ("HAS_AGE",)
    elif said["v"] != "v" and spans(sentence.masked, now=now):
        return None  # "No, in March" corrects no place
    valid = [
        [one for one in of_one if one.mode == "is" and one.relation in KEYS and not one.word] for of_one in earlier
    ]
    if relations or old:
        fitting = [one for of_one in valid for one in of_one if not relations or one.relation in relations][-1:]
        if old:
            fitting = [one for of_one in valid for one in of_one if one.object.casefold() == old.casefold()][-1:]
    else:
        fitting = next(filter(None, reversed(valid)), [])
    if len(fitting) != 1:
        return None
    (one,) = fitting
    years = {"HAS_AGE": " years old"}.get(one.relation, "") if value.isdecimal() else ""
    value = named(KEYS[one.relation], value) if KEYS[one.relation] in NAMED else _tidy(value) + years
    if not value or value == one.object:
        return None
    return replace(one, object=value, old=one.object, valid_at=None, invalid_at=None)


def _clauses(sentence: Sentence) -> Iterator[Sentence]:
    """Cut a sentence before each new subject."""
    start = 0
    for gap in [*_FORM["clauses"].finditer(sentence.masked), None]:
        clause = sentence.cut(start, gap.start() if gap else None)
        if clause.text.strip():
            yield clause
        start = gap.end() if gap else start


def _statements_of(clause: Sentence, now: datetime, people: Sequence[str], greeted: bool) -> Iterator[Statement]:
    """The statements of a clause about the speaker, a relative or pet that it names, or one of `people`."""
    if birthday := _FORM["birthday"].search(clause.masked):
        if date := _birthday(clause.text[birthday.end() :], now):
            yield Statement(relation=BIRTHDAY, object=date, kind="Event")
        return
    subject, rest = "", clause
    if relative := _relative(clause):
        statement, start, end = relative
        yield from _plain_statements(clause.cut(0, start), now, "", greeted)  # "I live in Milan with my wife Eva"
        yield statement
        subject, rest = statement.object, _about(clause.cut(end))
    elif person := next((name for name in people if re.match(_BEGINS.format(re.escape(name)), clause.masked)), None):
        lead = clause.masked.index(person)
        subject, rest = person, _about(clause.cut(lead + len(person)))
    if rest.text.strip():
        yield from _plain_statements(rest, now, subject, greeted)


def _birthday(text: str, now: datetime) -> str:
    """Return the first date of a text as every year has it, such as "3 May"; empty: it has none."""
    # The same words mean another day later if they count from the day on which they are said: "tomorrow".
    first, later = (next(iter(spans(text, now=at)), None) for at in (now, now + timedelta(days=45)))
    if first is None or later is None:
        return ""
    day, later_day = (one.start.astimezone(now.tzinfo) for one in (first, later))
    if (day.month, day.day) == (later_day.month, later_day.day):
        return re.sub(r"^(?:on|in)\s+", "", first.text).rstrip(" .,。，")
    if first.end - first.start > timedelta(days=2):  # "next week"
        return ""
    form = "{0.month}月{0.day}日" if re.search(f"[{CJK}]", text) else "{0.day} {0:%B}"
    return form.format(day)


def _relative(clause: Sentence) -> tuple[Statement, int, int] | None:
    """Return the relative or pet that a clause names, and where that begins and ends; None: it names none."""
    for form in (_FORM["relative_en"], _FORM["has_en"], _FORM["relative_zh"], _FORM["pet_zh"]):
        if match := form.search(clause.masked):
            name = match["name"] or match.groupdict().get("other")
            word = match["kin"].lower()
            if not name or "\ue000" in name:
                continue
            if match.groupdict().get("is") and name.split()[0].lower() in phrases()["no_names"]:
                continue  # "my mother is Chinese"
            relation, kind = ("HAS_PET", "Object") if word in PETS else (f"{KIN[word]}_OF", "Person")
            return Statement(relation=relation, object=name, kind=kind, word=word), match.start(), match.end()
    return None


def _about(rest: Sentence) -> Sentence:
    """Return the rest of a clause after its subject in the first person: "works at Fiat" becomes "I work at Fiat"."""
    body = rest.text.lstrip(" ,，")
    subject = "我" if re.match(f"[{CJK}]", body) else "I "
    text = subject + re.sub(r"^(?:who\s+|she\s+|he\s+|[他她它])", "", body)
    for form, plain in _THIRD_EN:
        text = form.sub(plain, text)
    return Sentence(text, text)


def _plain_statements(clause: Sentence, now: datetime, subject: str, greeted: bool) -> Iterator[Statement]:
    """Find the statements of a clause in the first person, with its times, as statements about `subject`."""
    forget = _FORM["forgets"].match(clause.masked)
    text, start, end, is_stretch = _without_times(clause.cut(forget.end()) if forget else clause, now)
    if relation := next((relation for form, relation in _OVER if form.fullmatch(text)), ""):
        yield Statement(relation=relation, object="", subject=subject, mode="ends", invalid_at=start)
        return
    text, mode = _plain_form(text)
    if mode == "is" and ((start and start > now) or (not is_stretch and _FORM["once"].search(clause.masked))):
        return  # "from 2030", "I have lived in Rome"
    if forget:
        text, mode = re.sub(r"(?:的事情?|这件?事)?[吧啊。！\s]*$", "", text), "never"
    if mode == "not" and (_FORM["no_more"].search(clause.masked) or _FORM["ended_zh"].search(clause.masked)):
        mode = "was"
    moves, leaves = _FORM["moves"].search(clause.masked), _FORM["leaves"].search(clause.masked)
    if mode == "is" and end and end <= now and not moves and re.search(f"[{CJK}]", clause.masked):
        mode = "was"  # Chinese has no tense: 我去年住在上海
    elif not is_stretch:
        if leaves:
            start, end = None, start
        elif mode == "is":
            start, end = start if moves else None, None
    if mode == "is" and end is not None and end <= now:
        mode = "was"
    # "I left Turin": which of the two it is, only what is known tells.
    is_either = leaves and mode == "was" and not _FORM["job"].search(clause.masked)
    as_home = re.sub("我在(.+?)工作", r"我住在\1", re.sub(r"\bI work at\b", "I live in", text))
    for plain in (as_home, text) if is_either else (text,):
        for fact in facts_in(_FORM["idle_words"].sub("", plain), greeted=greeted):
            for statement in _of_fact(fact):
                mode = "not" if is_either else mode
                yield replace(statement, subject=subject, mode=mode, valid_at=start, invalid_at=end)


def _plain_form(text: str) -> tuple[str, Mode]:
    """Return (a clause in the form that `facts_in` reads, whether it is still true)."""
    tried = (_OF_SPEAKER.search(text) is not None, "我" in text)
    for form, plain, mode in _FORMS:
        if not tried["我" in form.pattern]:
            continue
        text, count = form.subn(plain, text, count=1)
        if count:
            return text, mode
    return text, "is"


def _without_times(clause: Sentence, now: datetime) -> tuple[str, datetime | None, datetime | None, bool]:
    """Return a clause without its times, their start and end, and whether these are bounds ("since 2019")."""
    text, start, end, is_stretch = clause.text, None, None, False
    for span in reversed(spans(clause.masked, now=now)):
        words = text[span.first : span.last]
        rest = text[span.last - (len(words) - len(words.rstrip(" .,。，！!"))) :]
        rest = re.sub(r"^(?:为止|起|开始|以来)", "", rest)
        text = f"{_FORM['trailing_words'].sub('', text[: span.first].rstrip())} {rest}"
        start = span.start.astimezone(UTC) if span.start > EARLIEST else start
        end = span.end.astimezone(UTC) if span.end < LATEST else end
        is_stretch |= span.start <= EARLIEST or span.end >= LATEST or _FORM["stretch"].match(span.text) is not None
    return re.sub(rf"(?<=[{CJK}]) +(?=[{CJK}])", "", one_line(text)), start, end, is_stretch


def _of_fact(fact: BlockFact) -> Iterator[Statement]:
    """Return the statements of a fact in plain form."""
    if fact.key == "Name":
        if len(fact.value.split()) <= 4 and len(fact.value) <= OBJECT_SIGNS:
            yield Statement(relation=NAME, object=fact.value, kind="Person")
        return
    relation, kind = RELATIONS.get(fact.key, ("", ""))
    value = _tidy(fact.value)
    if relation == "HAS_AGE":
        value += "岁" if re.search(f"[{CJK}]", value) or not value.isascii() else " years old"
    value = _FORM["article"].sub("", value, count=1) if relation == "WORKS_AS" else value
    if relation and value and len(value.split()) <= OBJECT_WORDS and len(value) <= OBJECT_SIGNS:
        yield Statement(relation=relation, object=value, kind=kind)


def _tidy(value: str) -> str:
    """Return a value without what follows a name."""
    value = _FORM["tail_en"].sub("", one_line(value))
    return _FORM["trailing_words"].sub("", value.strip(" .,!;:，。！；：")).rstrip(" 了过")
