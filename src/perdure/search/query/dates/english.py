"""English: words for days and units, counts of units, weekdays, seasons, feasts, quarters."""

from __future__ import annotations

import re
from datetime import timedelta
from functools import partial

from perdure.search.query.dates.periods import (
    Clock,
    Period,
    Resolve,
    Unit,
    Which,
    ago,
    day,
    day_part,
    feast,
    quarter_of_year,
    relative,
    rolling,
    season_of_year,
    weekday,
)
from perdure.search.query.dates.phrases import OF_YEAR, WHICH, Phrase, Rule, any_of, rule, said_year

__all__ = ["rules"]

_UNITS: dict[str, Unit] = {
    "minute": "minute",
    "min": "minute",
    "hour": "hour",
    "day": "day",
    "week": "week",
    "weekend": "weekend",
    "month": "month",
    "quarter": "quarter",
    "year": "year",
    "decade": "decade",
}
_PLURAL = {f"{name}s": unit for name, unit in _UNITS.items()} | _UNITS
_UNIT = "(?P<unit>weekend|minute|min|hour|day|week|month|quarter|year|decade)"
_NUMBERS = {"a": 1, "an": 1, "one": 1, "two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "seven": 7, "eight": 8} | {
    "nine": 9,
    "ten": 10,
    "eleven": 11,
    "twelve": 12,
    "fourteen": 14,
    "fifteen": 15,
    "twenty": 20,
    "thirty": 30,
    "forty": 40,
    "fifty": 50,
    "sixty": 60,
    "ninety": 90,
}
_ABOUT = {"couple": (1, 3), "few": (2, 5), "several": (3, 7)}
_NUMBER = rf"(?:(?:a )?(?P<about>couple|few|several)(?: of)?|(?P<n>[0-9]{{1,4}}|{any_of(_NUMBERS)}))"
_DAYS = {
    name: at for at, name in enumerate(["monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"])
}
_SHORT_DAYS = {"mon": 0, "tue": 1, "tues": 1, "wed": 2, "thu": 3, "thur": 3, "thurs": 3, "fri": 4, "sat": 5, "sun": 6}
_PART = "(?: (?P<part>morning|afternoon|evening|night))?"
_SAID_DAYS = {
    "day before yesterday": -2,
    "yesterday": -1,
    "today": 0,
    "tomorrow": 1,
    "day after tomorrow": 2,
}
_SEASONS = {"spring": 0, "summer": 1, "autumn": 2, "fall": 2, "winter": 3}
_FEASTS = {
    "christmas eve": "christmas eve",
    "christmas day": "christmas day",
    "christmas": "christmas",
    "xmas": "christmas",
    "new year's eve": "new year's eve",
    "new years eve": "new year's eve",
    "new year's day": "new year",
    "new year's": "new year",
    "valentine's day": "valentine's day",
    "valentine's": "valentine's day",
    "halloween": "halloween",
    "thanksgiving": "thanksgiving",
    "easter": "easter",
    "chinese new year": "spring festival",
    "lunar new year": "spring festival",
}
_ORDINALS = {"first": 1, "second": 2, "third": 3, "fourth": 4, "1st": 1, "2nd": 2, "3rd": 3, "4th": 4, "last": 4}


def rules() -> list[Rule]:
    heads = frozenset
    named = "|".join(_DAYS)
    return [
        rule(
            heads(("yesterday", "today", "tomorrow")),
            rf"(?:the )?(?P<said>day before yesterday|yesterday|today|day after tomorrow|tomorrow){_PART}",
            _said_day,
        ),
        rule(heads(("night", "tonight")), "last night|tonight", _night),
        rule(
            heads(("morning", "afternoon", "evening")),
            "(?P<which>this|earlier this) (?P<part>morning|afternoon|evening)",
            lambda found: _phrase(found, day_part(relative("day", 0), found["part"])),
        ),
        rule(
            heads(("week", "month", "year", "quarter", "weekend", "decade", "day", "hour")),
            r"(?:the |earlier |later )?(?P<which>this|current|last|previous|past|next|coming|following) "
            r"(?P<unit>weekend|week|month|year|quarter|decade|hour|day)",
            _unit,
        ),
        rule(heads(("weekend",)), "the weekend", lambda found: _phrase(found, _weekend)),
        rule(
            heads(("week", "month", "year", "weekend")),
            "(?:the )?(?P<unit>weekend|week|month|year) before last",
            lambda found: _phrase(found, relative(_UNITS[found["unit"]], -2)),
        ),
        rule(heads(_PLURAL), rf"{_NUMBER} {_UNIT}s? (?P<way>ago|from now)", _ago),
        rule(heads(_PLURAL), rf"(?:the )?(?P<which>last|past|previous|next|coming) {_NUMBER} {_UNIT}s?", _rolling),
        rule(
            heads(_DAYS),
            rf"(?:(?P<which>last|past|this|next|coming) )?(?P<day>{named})"
            rf"(?:(?: of)? (?P<week>last|this|next) week)?{_PART}",
            _weekday,
        ),
        rule(heads(_DAYS), rf"(?P<week>last|this|next) week(?:'s)?,?(?: on)? (?P<day>{named}){_PART}", _weekday),
        rule(heads(_SHORT_DAYS), rf"(?P<which>last|past|next) (?P<day>{'|'.join(_SHORT_DAYS)})[.]?{_PART}", _weekday),
        rule(
            heads(_SEASONS),
            rf"(?:(?P<which>last|past|this|next) )?(?P<season>spring|summer|autumn|fall|winter){OF_YEAR}",
            _season,
        ),
        rule(
            heads(("christmas", "xmas", "new", "years", "valentine", "halloween", "thanksgiving", "easter")),
            rf"(?:(?P<which>last|past|this|next) )?(?P<feast>{'|'.join(_FEASTS)}){OF_YEAR}",
            _feast,
        ),
        rule(heads("0"), rf"q(?P<number>[1-4]){OF_YEAR}", _quarter),
        rule(heads(("quarter",)), rf"(?:the )?(?P<number>{'|'.join(_ORDINALS)}) quarter{OF_YEAR}", _quarter),
        rule(heads(("day",)), "(?:the )?other day", lambda found: _phrase(found, _other_day)),
        rule(
            heads(("month",)),
            "(?:the )?(?P<day>[0-3]?[0-9])(?:st|nd|rd|th)? of (?P<which>last|this|next) month",
            _day_of_month,
        ),
        rule(heads(("now",)), "now", lambda found: Phrase(*found.span(), relative("day", 0), "partner")),
    ]


def _phrase(found: re.Match[str], resolve: Resolve) -> Phrase:
    return Phrase(*found.span(), resolve)


def _words(text: str) -> str:
    return " ".join(text.split())


def _said_day(found: re.Match[str]) -> Phrase:
    return _phrase(found, day_part(relative("day", _SAID_DAYS[_words(found["said"])]), found["part"] or ""))


def _night(found: re.Match[str]) -> Phrase:
    return _phrase(found, day_part(relative("day", 0 if found[0] == "tonight" else -1), "night"))


def _unit(found: re.Match[str]) -> Phrase | None:
    unit, which = _UNITS[found["unit"]], found["which"]
    if unit in ("day", "hour"):
        return _phrase(found, rolling(1, unit)) if which == "past" or (which == "last" and unit == "hour") else None
    if which == "past" and unit != "weekend":
        return _phrase(found, rolling(1, unit))
    later = {"this": 0, "current": 0, "last": -1, "previous": -1, "past": -1}.get(which, 1)
    return _phrase(found, relative(unit, later))


def _weekend(clock: Clock) -> Period:
    return relative("weekend", 0 if clock.today.weekday() >= 5 else -1)(clock)


def _other_day(clock: Clock) -> Period:
    return day(clock.today - timedelta(days=7), 7)


def _count(found: re.Match[str]) -> tuple[int, int]:
    if found["about"]:
        return _ABOUT[found["about"]]
    number = _NUMBERS[found["n"]] if found["n"] in _NUMBERS else int(found["n"])
    return number, number


def _ago(found: re.Match[str]) -> Phrase:
    least, most = _count(found)
    if found["way"] != "ago":
        least, most = -most, -least
    return _phrase(found, ago(least, most, _UNITS[found["unit"]]))


def _rolling(found: re.Match[str]) -> Phrase:
    _, most = _count(found)
    return _phrase(found, rolling(-most if found["which"] in ("next", "coming") else most, _UNITS[found["unit"]]))


def _weekday(found: re.Match[str]) -> Phrase | None:
    groups = found.groupdict()
    if found.string[max(0, found.start() - 6) : found.start()].split()[-1:] in (["every"], ["each"]):
        return None
    number = _DAYS.get(found["day"], _SHORT_DAYS.get(found["day"], 0))
    said = groups.get("which")
    which: Which = "next" if said == "coming" else WHICH.get(said, "")
    resolve = weekday(number, which)
    if groups.get("week"):
        resolve = partial(_day_of_week, number, {"last": -1, "this": 0, "next": 1}[found["week"]])
    alone = not which and not groups.get("week")
    return Phrase(
        *found.span(), day_part(resolve, found["part"] or ""), "nothing", alone, weekday=not groups.get("week")
    )


def _day_of_week(number: int, later: int, clock: Clock) -> Period:
    monday, _ = relative("week", later)(clock)
    return day(monday + timedelta(days=number))


def _season(found: re.Match[str]) -> Phrase:
    said = said_year(found)
    resolve = season_of_year(_SEASONS[found["season"]], *said)
    return Phrase(*found.span(), resolve, "preposition" if said.nothing else "nothing", said.nothing)


def _feast(found: re.Match[str]) -> Phrase:
    said = said_year(found)
    resolve = feast(_FEASTS[_words(found["feast"])], *said)
    return Phrase(*found.span(), resolve, "any preposition" if said.nothing else "nothing", said.nothing)


def _quarter(found: re.Match[str]) -> Phrase | None:
    said = said_year(found)
    if said.nothing and found["number"] == "last":
        return None
    number = _ORDINALS[found["number"]] if found["number"] in _ORDINALS else int(found["number"])
    return Phrase(
        *found.span(), quarter_of_year(number, *said), "preposition" if said.nothing else "nothing", said.nothing
    )


def _day_of_month(found: re.Match[str]) -> Phrase | None:
    number, later = int(found["day"]), {"last": -1, "this": 0, "next": 1}[found["which"]]

    def resolve(clock: Clock) -> Period:
        begin, _ = relative("month", later)(clock)
        return day(begin.replace(day=number))

    return _phrase(found, resolve)
