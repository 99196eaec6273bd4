"""From a query to spans: phrases are found, joined with what stands around them ("early", "since", "from X to Y"), and
only then given their times."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import date, datetime, timedelta
from itertools import islice

from perdure.search.query.dates.periods import EARLIEST, LATEST, Clock, Period, Resolve, nth_of
from perdure.search.query.dates.phrases import Phrase, Rule

__all__ = ["SPANS_MAX", "Span", "spans"]

SPANS_MAX = 8
"""Of one query, the first ones: a text with more dates is a log, not a question."""

_MATCHES_MAX = 32  # of one rule
_AROUND = 48  # characters looked at on either side of a phrase


@dataclass(frozen=True, slots=True)
class Span:
    """A stretch of time that a query names.

    Args:
        start, end: UTC, `end` not included; EARLIEST and LATEST where the query leaves a side open ("since March").
        text: the words, as they stand in the query, with what belongs to them: "since March".
        first, last: characters of the query, from 0, `last` not included: `query[first:last] == text`.
    """

    start: datetime
    end: datetime
    text: str
    first: int
    last: int


def spans(text: str, *, now: datetime, timezone: str = "UTC") -> tuple[Span, ...]:
    """The dates and spans named in `text`, in the order of the text, at most `SPANS_MAX`; () for most texts.

    English, Chinese, Japanese, Korean; the plain cases of German, French and Spanish. Weeks begin on Monday. What has
    no year ("in March", "on Monday") is the latest that has begun at `now`. Never raises: what the calendar doesn't
    have is left out. Takes time in proportion to the length of the text.

    Args:
        now: the clock that "yesterday" is counted from; without an offset it is UTC.
        timezone: IANA name; decides where days begin.
    """
    folded = _folded(text)
    phrases = _phrases(folded)
    if not phrases:
        return ()
    clock = Clock.at(now, timezone)
    named = []
    for phrase in _related(folded, _parts(folded, phrases)):
        period = _times(phrase.resolve, clock)
        if period is not None:
            named.append(Span(*period, text[phrase.first : phrase.last], phrase.first, phrase.last))
    return tuple(named[:SPANS_MAX])


# Character by character, so that places in the text stay: wide forms as narrow ones, one apostrophe, one dash.
_FOLDS = {code: code - 0xFEE0 for code in range(0xFF01, 0xFF5F)} | {0x3000: 0x20} | {0x2019: 0x27, 0x2018: 0x27}
_FOLDS |= dict.fromkeys((0x2010, 0x2011, 0x2012, 0x2013, 0x2014, 0x2015, 0x2212, 0x301C), 0x2D) | {
    0x7E: 0x2D,
    0xFF5E: 0x2D,
}


def _folded(text: str) -> str:
    lower = text.lower()
    if text.isascii():
        return lower
    if len(lower) != len(text):
        lower = "".join(low if len(low := character.lower()) == 1 else character for character in text)
    return lower.translate(_FOLDS)


_WORD = re.compile(r"[^\W\d_]+")
_DIGIT = re.compile("[0-9]")
_ASCII_LETTERS = bytes(byte if chr(byte).isascii() and chr(byte).isalpha() else 32 for byte in range(256))


def _words(folded: str) -> list[str]:
    return folded.encode().translate(_ASCII_LETTERS).decode().split() if folded.isascii() else _WORD.findall(folded)


@functools.cache
def _rules() -> tuple[list[Rule], frozenset[str], re.Pattern[str], list[Rule]]:
    """(rules by heads, all their heads, hints of the rest, the rest); compiled when the first text is looked at."""
    from perdure.search.query.dates import dates, eastern, english, european

    headed = [*dates.rules(), *english.rules(), *european.rules()]
    return headed, frozenset().union(*(rule.heads for rule in headed)), eastern.HINTS, eastern.rules()


def _phrases(folded: str) -> list[Phrase]:
    """Those that don't overlap, in order; of two that do the one that begins first, then the longer one."""
    headed, heads, hints, others = _rules()
    words = set(_words(folded))
    if _DIGIT.search(folded):
        words.add("0")
    chosen = [] if heads.isdisjoint(words) else [rule for rule in headed if not rule.heads.isdisjoint(words)]
    if not folded.isascii() and hints.search(folded):
        chosen += others
    found = [
        phrase
        for rule in chosen
        for match in islice(rule.pattern.finditer(folded), _MATCHES_MAX)
        if (phrase := rule.phrase(match)) is not None
    ]
    found.sort(key=lambda phrase: (phrase.first, -phrase.last))
    apart: list[Phrase] = []
    for phrase in found:
        if not apart or phrase.first >= apart[-1].last:
            apart.append(phrase)
    return apart


def _spaced(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern.replace(" ", r"\s{1,3}"))


_ARTICLE = "(?:(?:the|den|dem|der|des|die|das|la|le|les|el|los) |l')?"
_PART_BEFORE = _spaced(
    r"(?<!\w)(?:the )?(?:"
    r"(?P<early>early(?: in| on)?|(?:beginning|start) of|anfang|début(?: de)?|principios de)"
    r"|(?P<mid>mid|middle of|mitte|mi|mediados de)"
    r"|(?P<late>late(?: in)?|end of|ende|fin(?: de)?|finales de)"
    r"|(?P<half1>first half of)|(?P<half2>second half of)"
    r"|(?P<n>first|second|third|fourth|last|1st|2nd|3rd|4th) (?P<of>week|day) (?:of|in)"
    rf"|(?P<week>week of))(?: |-){_ARTICLE}$"
)
_PART_AFTER = re.compile(
    r"\s{0,2}(?:の|年|年の)?(?:(?P<early>初め?|はじめ|上旬|头|頭|초(?!등))|(?P<mid>中旬|半ば|중순)|(?P<late>下旬|底|末|하순|말))"
)
_RELATION_BEFORE = _spaced(
    r"(?<!\w)(?:"
    r"(?P<since>since|ever since|starting(?: in| on| from)?|seit|depuis|dès|desde)"
    r"|(?P<after>after|later than|nach|après|después del?|despues del?)"
    r"|(?P<before>before|prior to|earlier than|vor|avant|antes del?)"
    r"|(?P<until>until|till|up to|up until|by|through|bis(?: zu[mr])?|jusqu'(?:à|en|au)|hasta)"
    r"|(?P<between>between|zwischen|entre)"
    r"|(?P<range>from|von|vom|de|du)"
    r"|(?P<inside>in|on|during|over|throughout|within|at|around|back in|in the month of"
    r"|im|am|während|en|au|pendant|durante)"
    r"|(?P<other>for|of|für|pour|para|por)"
    rf")(?: {_ARTICLE}|(?<=')){_ARTICLE}$"
)
_ARTICLE_BEFORE = _spaced(rf"(?<!\w){_ARTICLE}$")
_EASTERN_BEFORE = re.compile(r"(?:(?P<until>截至|截止到?|到)|(?P<range>自从|自從|从|從|自)|(?P<inside>在|于|於))\s?$")
_RELATION_AFTER = re.compile(
    r"(?:\s{0,2}(?P<since>以来|以來|以降|以后|以後|之后|之後|起|开始|開始|からずっと|から|이후|부터|이래)"
    r"|\s{0,2}(?P<before>以前|之前|より前|の前|前|이전|전(?:에)?(?!\w))"
    r"|\s{0,2}(?P<until>まで|까지|为止|為止)"
    r"|\s{1,3}(?P<onward>on|onwards?)(?!\w))"
)
_JOINED = _spaced(
    r"\s{0,3},?\s{0,3}(?:-\s{0,3}"
    rf"|(?:to|through|thru|till|until|up to|bis(?: zu[mr])?|au|à|al?|hasta|jusqu'à) {_ARTICLE}"
    r"|到|至|から|부터\s{0,2})"
)
_JOINED_BY_AND = _spaced(rf",?(?: (?:and|und|et|y) {_ARTICLE}|\s{{0,2}}(?:和|与|與|跟|と|와|과)\s{{0,2}})")
_LISTED = _spaced(r",?\s{0,3}(?:and|or|und|oder|et|ou|y|o|和|或|と|또는)?\s{0,3}(?:in )?")
_END_OF_RANGE = re.compile(r"\s{0,2}(?P<between>之间|之間|の間|間|사이)|\s{0,2}(?:まで|까지|为止|為止)")

_OPENING = ("range", "between", "inside", "since")  # may stand before the first end of a range


def _parts(folded: str, phrases: list[Phrase]) -> list[Phrase]:
    """The phrases with their "early", "end of", 底, and without those that a date after them says more exactly."""
    found: list[Phrase] = []
    for index, phrase in enumerate(phrases):
        after = phrases[index + 1] if index + 1 < len(phrases) else None
        if (
            phrase.weekday
            and after is not None
            and re.fullmatch(r"\W{0,3}(?:the\s)?", folded[phrase.last : after.first])
        ):
            phrases[index + 1] = replace(after, first=phrase.first)
            continue
        floor = found[-1].last if found else 0
        if before := _PART_BEFORE.search(folded, max(floor, phrase.first - _AROUND), phrase.first):
            groups = {name: value for name, value in before.groupdict().items() if value}
            part = next(iter(groups))
            if part == "n":
                numbers = {"first": 1, "second": 2, "third": 3, "fourth": 4, "last": -1}
                number = numbers[groups["n"]] if groups["n"] in numbers else int(groups["n"][0])
                part = f"{groups['of']}{number}"
            if part in ("day2", "day3", "day4"):
                part = "early"
            phrase = replace(phrase, first=before.start(), resolve=nth_of(phrase.resolve, part), needs="nothing")
        elif not folded.isascii() and (behind := _PART_AFTER.match(folded, phrase.last)):
            part = behind.lastgroup or "early"
            phrase = replace(phrase, last=behind.end(), resolve=nth_of(phrase.resolve, part))
        found.append(phrase)
    return found


def _related(folded: str, phrases: list[Phrase]) -> Iterator[Phrase]:
    """The phrases with their "since", "before", "in", two of them joined where they are the ends of a range."""
    floor, index = 0, 0
    while index < len(phrases):
        phrase = phrases[index]
        after = phrases[index + 1] if index + 1 < len(phrases) else None
        relation, first = _before(folded, phrase, floor)
        index += 1
        opened = relation in _OPENING
        if (
            after is not None
            and (opened or phrase.needs == "nothing")
            and (last := _range_end(folded, phrase, after, relation))
        ):
            floor, index = last, index + 1
            yield Phrase(first if opened else phrase.first, last, _between(phrase, after))
            continue
        behind = _RELATION_AFTER.match(folded, phrase.last)
        last = phrase.last
        if behind is not None:
            said = behind.lastgroup or ""
            if said == "onward":
                said = "since" if relation in ("range", "inside", "since") else ""
            if said:
                relation, last = said, behind.end()
                first = first if relation == "since" else min(first, phrase.first)
        if not _has_what_it_needs(phrase, relation):
            continue
        if relation in ("range", "between", "other"):
            relation, first = "", phrase.first
        if after is not None and _LISTED.fullmatch(folded[last : min(after.first, last + _AROUND)]):
            if after.needs != "partner":
                phrases[index] = replace(after, needs="nothing")
            if phrase.floating and not after.floating:  # "in May and June 2022"
                phrase = replace(phrase, resolve=_not_after(phrase.resolve, after.resolve))
        floor = last
        yield replace(phrase, first=first, last=last, resolve=_bounded(phrase.resolve, relation))


def _has_what_it_needs(phrase: Phrase, relation: str) -> bool:
    match phrase.needs:
        case "preposition":
            return relation not in ("", "range", "between", "other")
        case "any preposition":
            return relation not in ("", "range", "between")
        case "partner":
            return False
    return True


def _not_after(resolve: Resolve, other: Resolve) -> Resolve:
    return lambda clock: resolve(clock.on(_day(other(clock)[0])))


def _before(folded: str, phrase: Phrase, floor: int) -> tuple[str, int]:
    """(what is said right before the phrase, where it begins); ("", its own beginning) for nothing."""
    begin = max(floor, phrase.first - _AROUND)
    for pattern in (_RELATION_BEFORE, _EASTERN_BEFORE):
        if found := pattern.search(folded, begin, phrase.first):
            return found.lastgroup or "", found.start()
    return "", phrase.first


def _range_end(folded: str, phrase: Phrase, after: Phrase, relation: str) -> int:
    """Where the range of the two ends; 0 if they are none."""
    between = folded[phrase.last : after.first]
    if len(between) > _AROUND:
        return 0
    end = _END_OF_RANGE.match(folded, after.last)
    if _JOINED.fullmatch(between):
        return end.end() if end else after.last
    if _JOINED_BY_AND.fullmatch(between) and (relation == "between" or (end and end["between"])):
        return end.end() if end else after.last
    return 0


def _between(phrase: Phrase, after: Phrase) -> Resolve:
    """From the beginning of one to the end of the other. What floats follows the other end: in "March to May 2023" both
    are of 2023, and "Monday to Wednesday" are days of one week."""

    def resolve(clock: Clock) -> Period:
        if after.floating and not phrase.floating:
            first = phrase.resolve(clock)
            second = after.resolve(clock.on(_day(first[0]) + timedelta(days=364)))
            if second[0] < first[0] or after.weekday:
                second = after.resolve(clock.on(_day(first[0]) + timedelta(days=6)))
        else:
            second = after.resolve(clock)
            first = phrase.resolve(clock.on(_day(second[0])) if phrase.floating else clock)
        edges = [clock.moment(edge) for edge in (*first, *second)]
        return min(edges), max(edges)

    return resolve


def _day(edge: date) -> date:
    return edge.date() if isinstance(edge, datetime) else edge


def _bounded(resolve: Resolve, relation: str) -> Resolve:
    def bounded(clock: Clock) -> Period:
        begin, end = resolve(clock)
        match relation:
            case "since":
                return begin, LATEST
            case "after":
                return end, LATEST
            case "before":
                return EARLIEST, begin
            case "until":
                return EARLIEST, end
        return begin, end

    return bounded if relation in ("since", "after", "before", "until") else resolve


def _times(resolve: Resolve, clock: Clock) -> tuple[datetime, datetime] | None:
    """The period in UTC; None for one that isn't in the calendar, or is none, as a day that clocks skipped."""
    try:
        begin, end = resolve(clock)
        start, stop = clock.moment(begin), clock.moment(end)
    except (OverflowError, ValueError):
        return None
    return (start, stop) if start < stop else None
