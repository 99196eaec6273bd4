"""From a query to spans: finds phrases, joins them with the words around them ("early", "since", "from X to Y"), and
only then resolves their times."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime, timedelta
from itertools import islice

from perdure.core.text.dates.calendar import EARLIEST, LATEST, Clock, Period, Resolve, part_of
from perdure.core.text.dates.grammar import LANGUAGES, Phrase, alternatives, rules

SPANS_MAX = 8
"""Of one query, the first ones: a text with more dates is a log, not a question."""

CACHED_CHARS = 20_000
"""Phrases of longer texts are found anew each time."""

_AROUND = 48  # characters that are read on either side of a phrase


@dataclass(frozen=True, slots=True)
class TimeSpan:
    """A stretch of time that a query names.

    Args:
        start, end: UTC, `end` not included; EARLIEST and LATEST where the query leaves a side open ("since March").
        text: the words, as they stand in the query, with what belongs to them: "since March".
        first, last: characters of the query, from 0, `last` not included: `query[first:last] == text`.
        floating: it is the latest of several that the words may mean: "on Monday", "in March".
    """

    start: datetime
    end: datetime
    text: str
    first: int
    last: int
    floating: bool = False


def spans(text: str, *, now: datetime, timezone: str | None = None) -> tuple[TimeSpan, ...]:
    """Find the dates and periods that `text` names, in the order of the text, at most `SPANS_MAX`.

    English, Chinese, Japanese, Korean; the plain cases of German, French, Spanish and Italian. Weeks begin on Monday.
    A date without a year ("in March", "on Monday") is the latest that has begun at `now`. Never raises: a date that the
    calendar doesn't have is left out. Takes time in proportion to the length of the text.

    Args:
        now: the clock that "yesterday" is counted from; without an offset it is UTC.
        timezone: IANA name; decides where days begin. None: the zone of `now`.
    """
    phrases = _phrases(text) if len(text) > CACHED_CHARS else _known_phrases(text)
    if not phrases:
        return ()
    clock = Clock.build(now, timezone)
    resolved = ((_resolve(each.resolve, clock), each.first, each.last, each.floating) for each in phrases)
    found = (TimeSpan(*period, text[at:to], at, to, floating) for period, at, to, floating in resolved if period)
    return tuple(islice(found, SPANS_MAX))


# Character by character, so that places in the text stay: wide forms as narrow ones, one apostrophe, one dash.
_FOLDS = {code: code - 0xFEE0 for code in range(0xFF01, 0xFF5F)} | {0x3000: 0x20, 0x2019: 0x27, 0x2018: 0x27}
_FOLDS |= dict.fromkeys((*range(0x2010, 0x2016), 0x2212, 0x301C, 0x7E, 0xFF5E), 0x2D)


def _fold(text: str) -> str:
    """Return a text in lower case with narrow signs, one apostrophe and one dash; places stay the same."""
    lower = text.lower()
    if text.isascii():
        return lower
    if len(lower) != len(text):
        lower = "".join(low if len(low := character.lower()) == 1 else character for character in text)
    return lower.translate(_FOLDS)


_WORD = re.compile(r"[^\W\d_]+")


def _phrases(text: str) -> Sequence[Phrase]:
    """Return the phrases of a text with the words around them, in order; a clock resolves their times later."""
    folded = _fold(text)
    heads = {*_WORD.findall(folded), *("0" if re.search("[0-9]", folded) else "")}
    if not folded.isascii():
        heads.update(folded)
    found = [phrase for rule in rules() if not heads.isdisjoint(rule.heads) for phrase in rule.phrases(folded)]
    found.sort(key=lambda phrase: (phrase.first, -phrase.last))
    apart: list[Phrase] = []  # of two that overlap, the one that begins first, then the longer one
    for phrase in found:
        if not apart or phrase.first >= apart[-1].last:
            apart.append(phrase)
    return tuple(_with_relations(folded, _with_portions(folded, apart))) if apart else ()


_known_phrases = functools.lru_cache(maxsize=16)(_phrases)
"""`_phrases` with the results of the last queries: a search of many agents asks for the same ones for each."""


def _words(category: str, *, spaces: bool | None = None, value: str | None = None) -> str:
    """Return words of a category as a pattern: of languages with or without `spaces`, with this value; None: all."""
    tables = (item.tables.get(category, {}) for item in LANGUAGES if spaces is None or spaces is not bool(item.signs))
    return alternatives({word for table in tables for word, found in table.items() if value in (None, found)})


def _groups(category: str, *, spaces: bool) -> str:
    """Return the words of a category, as `_words` does, in a group for each value, named after it."""
    tables = (item.tables.get(category, {}) for item in LANGUAGES if spaces is not bool(item.signs))
    values = dict.fromkeys(value for table in tables for value in table.values())
    return "|".join(f"(?P<{value}>{_words(category, spaces=spaces, value=value)})" for value in values)


@functools.cache
def patterns() -> dict[str, re.Pattern[str]]:
    """Return name -> pattern of the words before, after and between phrases."""
    article = f"(?:(?:{'|'.join(word for word in _words('article').split('|') if word[-1] != chr(39))}) |l')?"
    found = {
        "portion before": rf"(?<!\w)(?:the )?(?:{_groups('portion', spaces=True)}"
        rf"|(?P<nth>{alternatives(_ORDINALS)}) (?P<unit>week|day) (?:of|in))(?: |-){article}$",
        "portion after": rf"\s{{0,2}}(?:の|年|年の)?(?:{_groups('portion', spaces=False)})",
        "relation before": rf"(?<!\w)(?:{_groups('relation', spaces=True)})(?: {article}|(?<=')){article}$",
        "spaceless relation before": rf"(?:{_groups('relation', spaces=False)})\s?$",
        "relation after": rf"\s{{0,2}}(?:{_groups('relation_after', spaces=False)})"
        r"|\s{1,3}(?P<onward>on|onwards?)(?!\w)",
        "joined": rf"\s{{0,3}},?\s{{0,3}}(?:-\s{{0,3}}|(?:{_words('to', spaces=True)}) {article}"
        rf"|(?:{_words('to', spaces=False)})\s{{0,2}})",
        "joined by and": rf",?(?: (?:{_words('and', spaces=True)}) {article}"
        rf"|\s{{0,2}}(?:{_words('and', spaces=False)})\s{{0,2}})",
        "listed": rf",?\s{{0,3}}(?:{_words('and')}|{_words('or')})?\s{{0,3}}(?:in )?",
        "end": rf"\s{{0,2}}(?:{_groups('end', spaces=False)})",
    }
    return {name: re.compile(pattern.replace(" ", r"\s{1,3}")) for name, pattern in found.items()}


def _with_portions(folded: str, phrases: list[Phrase]) -> list[Phrase]:
    """Return the phrases of the text `folded`, each extended by "early", "end of" or 底, and without a weekday that
    repeats the date behind it. Changes `phrases`."""
    found: list[Phrase] = []
    for index, phrase in enumerate(phrases):
        after = phrases[index + 1] if index + 1 < len(phrases) else None
        if phrase.weekday and after and re.fullmatch(r"\W{0,3}(?:the\s)?", folded[phrase.last : after.first]):
            phrases[index + 1] = replace(after, first=phrase.first)
            continue
        floor = found[-1].last if found else 0
        begin = max(floor, phrase.first - _AROUND)
        if before := patterns()["portion before"].search(folded, begin, phrase.first):
            portion = before.lastgroup or "early"
            if before["nth"]:
                number = _ORDINALS[before["nth"]]
                portion = "early" if before["unit"] == "day" and number > 1 else f"{before['unit']}{number}"
            phrase = replace(phrase, first=before.start(), resolve=_part(phrase.resolve, portion), needs="nothing")
        elif not folded.isascii() and (behind := patterns()["portion after"].match(folded, phrase.last)):
            portion = behind.lastgroup or "early"
            phrase = replace(phrase, last=behind.end(), resolve=_part(phrase.resolve, portion))
        found.append(phrase)
    return found


def _part(resolve: Resolve, portion: str) -> Resolve:
    """Return a function like `resolve`, but for a part of the period; see `part_of`."""
    return lambda clock: part_of(resolve(clock), portion)


def _with_relations(folded: str, phrases: list[Phrase]) -> Iterator[Phrase]:
    """Yield the phrases of the text `folded`, each with its "since", "before", "in"; two are joined where they are the
    ends of a range. Changes `phrases`."""
    floor, index = 0, 0
    while index < len(phrases):
        phrase = phrases[index]
        after = phrases[index + 1] if index + 1 < len(phrases) else None
        relation, first = _relation_before(folded, phrase, floor)
        index += 1
        opening = relation in ("range", "between", "inside", "since")
        may_begin = after is not None and (opening or phrase.needs == "nothing")
        if after is not None and may_begin and (last := _range_end(folded, phrase, after, relation)):
            floor, index = last, index + 1
            floating = phrase.floating and after.floating
            yield Phrase(first if opening else phrase.first, last, _range(phrase, after), floating=floating)
            continue
        behind = patterns()["relation after"].match(folded, phrase.last)
        last = phrase.last
        if behind is not None:
            relation_after = behind.lastgroup or ""
            if relation_after == "onward":
                relation_after = "since" if relation in ("range", "inside", "since") else ""
            relation, last = (relation_after, behind.end()) if relation_after else (relation, last)
        if not _has_needed_words(phrase, relation):
            continue
        if relation in ("range", "between", "other"):
            relation, first = "", phrase.first
        if after is not None and patterns()["listed"].fullmatch(folded[last : min(after.first, last + _AROUND)]):
            if after.needs != "partner":
                phrases[index] = replace(after, needs="nothing")
            if phrase.floating and not after.floating:  # "in May and June 2022"
                phrase = replace(phrase, resolve=_not_after(phrase.resolve, after.resolve))
        floor = last
        yield replace(phrase, first=first, last=last, resolve=_open_side(phrase.resolve, relation))


def _has_needed_words(phrase: Phrase, relation: str) -> bool:
    """Return whether the relation before a phrase makes it a date: "may" alone is none, "in may" is.

    `relation` is the meaning of the word before it: "since", "before", ...; "" without one.
    """
    if phrase.needs == "preposition":
        return relation not in ("", "range", "between", "other")
    return phrase.needs == "nothing" or (phrase.needs == "any preposition" and relation not in ("", "range", "between"))


def _not_after(resolve: Resolve, other: Resolve) -> Resolve:
    """Return a function like `resolve` for the latest period that does not begin after that of `other`."""
    return lambda clock: resolve(clock.on(_day(other(clock)[0])))


def _relation_before(folded: str, phrase: Phrase, floor: int) -> tuple[str, int]:
    """Return (the relation right before the phrase, such as "since", its first character); without a relation ("",
    the phrase's first character). `floor`: the character before which nothing is read."""
    begin = max(floor, phrase.first - _AROUND)
    for name in ("relation before", "spaceless relation before"):
        if found := patterns()[name].search(folded, begin, phrase.first):
            return found.lastgroup or "", found.start()
    return "", phrase.first


def _range_end(folded: str, phrase: Phrase, after: Phrase, relation: str) -> int:
    """Return the character at which the range from `phrase`, behind `relation`, to `after` ends; 0: it is no range."""
    between = folded[phrase.last : after.first]
    if len(between) > _AROUND:
        return 0
    end = patterns()["end"].match(folded, after.last)
    within = relation == "between" or (end is not None and end.lastgroup == "between")
    if patterns()["joined"].fullmatch(between) or (within and patterns()["joined by and"].fullmatch(between)):
        return end.end() if end else after.last
    return 0


def _range(phrase: Phrase, after: Phrase) -> Resolve:
    """Return the function that resolves the period from the beginning of `phrase` to the end of `after`. An end without
    a year or week takes it from the other end: "March to May 2023", "Monday to Wednesday"."""

    def resolve(clock: Clock) -> Period:
        """The range at this clock; the end that floats is moved to the other one."""
        if after.floating and not phrase.floating:
            first = phrase.resolve(clock)
            second = after.resolve(clock.on(_day(first[0]) + timedelta(days=364)))
            if clock.moment(second[0]) < clock.moment(first[0]) or after.weekday:
                second = after.resolve(clock.on(_day(first[0]) + timedelta(days=6)))
        else:
            second = after.resolve(clock)
            first = phrase.resolve(clock.on(_day(second[0])) if phrase.floating else clock)
        edges = [clock.moment(edge) for edge in (*first, *second)]
        return min(edges), max(edges)

    return resolve


def _day(edge: date) -> date:
    """Return the day of a period's edge, which may be a moment."""
    return edge.date() if isinstance(edge, datetime) else edge


def _open_side(resolve: Resolve, relation: str) -> Resolve:
    """Return a function like `resolve` for the period open on one side, as "since", "after", "before", "until" say."""

    def resolve_open(clock: Clock) -> Period:
        """The period with one side open, at this clock."""
        begin, end = resolve(clock)
        open_side = {"since": (begin, LATEST), "after": (end, LATEST), "before": (EARLIEST, begin)}
        return open_side.get(relation, (EARLIEST, end))

    return resolve_open if relation in ("since", "after", "before", "until") else resolve


def _resolve(resolve: Resolve, clock: Clock) -> tuple[datetime, datetime] | None:
    """Return the period in UTC; None for one that isn't in the calendar, or is empty, as a day that clocks skipped."""
    try:
        begin, end = resolve(clock)
        start, stop = clock.moment(begin), clock.moment(end)
    except (OverflowError, ValueError):
        return None
    return (start, stop) if start < stop else None


_ORDINALS = {"first": 1, "1st": 1, "second": 2, "2nd": 2, "third": 3, "3rd": 3, "fourth": 4, "4th": 4, "last": -1}
