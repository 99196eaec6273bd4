"""The grammar of dates: rules of the languages as patterns, and the meaning of each match as a function of a clock."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from itertools import islice
from typing import Literal, cast

from perdure.core.text.dates import calendar
from perdure.core.text.dates.calendar import Period, Resolve
from perdure.core.text.tables import read_table


@dataclass(frozen=True, slots=True, eq=False)
class Language:
    """Tables and rules of one language.

    Args:
        tables: category -> word -> value, both as text.
        rules: (kind, values of groups that the pattern leaves out, pattern).
        signs: for a language without spaces, characters of which one is in each of its dates.
        digits: pattern of a number that is no word.
    """

    tables: Mapping[str, Mapping[str, str]]
    rules: tuple[tuple[str, Mapping[str, str], str], ...]
    signs: frozenset[str]
    digits: str


_DATA = read_table(__file__, "languages.toml")
_SHARED, _NAMES = _DATA.pop("shared"), _DATA.pop("names")


def _load() -> dict[str, Language]:
    """Build the languages of the file. Returns: name -> language."""
    languages = {}
    for name, entry in _DATA.items():
        text = entry["rules"]
        for part, lines in _SHARED.items():
            text = text.replace(f"@{part}\n", lines)
        lines = ((head.split(), pattern) for head, pattern in (line.split(" | ", 1) for line in text.splitlines()))
        rules = tuple((kind, dict(value.split("=") for value in values), pattern) for (kind, *values), pattern in lines)
        tables = {category: _table(rows) for category, rows in entry.get("tables", {}).items()}
        languages[name] = Language(tables, rules, frozenset(entry.get("signs", "")), entry.get("digits", "[0-9]{1,4}"))
    return languages


def _table(text: str) -> dict[str, str]:
    """Parse "value: words; ..." to word -> value; "5.. words" numbers them from 5 on, `a/b` alike; `_` is a space."""
    found: dict[str, str] = {}
    for row in " ".join(text.split()).split("; "):
        value, _, words = row.rpartition(": ")
        if ".. " in row:
            first, words = row.split(".. ")
            slots = enumerate(words.split(), int(first))
            found |= {word: str(number) for number, slot in slots for word in slot.split("/")}
        else:
            found |= dict.fromkeys(words.split(), value)
    return {word.replace("_", " "): value for word, value in found.items()}


LANGUAGES = tuple(_load().values())
"""The languages, and first the digits that all of them use."""


MATCHES_MAX = 32  # of one rule

Needs = Literal["nothing", "any preposition", "preposition", "partner"]
"""What must stand with a phrase to make it a date: "Christmas" any preposition, also "for"; "may" one of time, as in
"since may", or the other end of a range; "now" is one only as the end of a range."""

_NAME = re.compile(r"\{(~?)([a-z_]+)(?::([^}]+))?\}")
_HEADS = ("days", "weekday_short", "weekday", "month", "season", "feast", "quarter", "now", "units")
"""Categories of which a word is in each match of a rule that names them; the first one counts."""

_LETTERS = r"0-9a-z_\u00c0-\u024f\u0400-\u04ff"
_DIGITS = {digit: index % 10 for index, digit in enumerate("〇一二三四五六七八九零")} | {"两": 2, "兩": 2, "○": 0}
_WORD = re.compile(r"[^\W\d_]+")
_BEFORE_WORD = re.compile(r"([\w']{1,20})\s{1,3}$")
_AFTER_WORD = re.compile(r"\s{1,3}([^\W\d_]{1,20})")
_compiled = functools.cache(re.compile)


@dataclass(frozen=True, slots=True)
class Phrase:
    """A date or period in a query.

    Args:
        first, last: its characters [`first`, `last`) in the query.
        resolve: what it means at a given clock.
        needs: what must stand with it to make it a date.
        floating: it means the latest of several, so that the other end of a range can move it.
        weekday: the name of a day, which says no more where a date follows.
    """

    first: int
    last: int
    resolve: Resolve
    needs: Needs = "nothing"
    floating: bool = False
    weekday: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class DateRule:
    """A pattern for dates, tried when one of `heads` is among the query's words and characters.

    Args:
        kind: the method of `_Match` that reads a match.
        values: group -> its text, for groups that the pattern leaves out.
        heads: words or characters; "0" stands for any digit.
        source: the regular expression.
    """

    kind: str
    language: Language
    values: Mapping[str, str]
    heads: frozenset[str]
    source: str

    def phrases(self, text: str) -> Iterator[Phrase]:
        """Yield the phrases that this rule finds in `text`, which is folded as `spans` does it; the method of `_Match`
        with the name of the rule's kind reads each match. The pattern is compiled at its first use."""
        for match in islice(_compiled(self.source).finditer(text), MATCHES_MAX):
            if phrase := getattr(_Match(match, self), self.kind)():
                yield phrase


class _Match:
    """A match of a rule. The method named by the rule's kind returns its phrase; None if it is no date."""

    def __init__(self, match: re.Match[str], rule: DateRule) -> None:
        self._match, self._tables = match, rule.language.tables
        self._spaces = not rule.language.signs
        self._groups = {**rule.values, **{name: text for name, text in match.groupdict().items() if text}}

    def days(self) -> Phrase | None:
        """Return the phrase of a word for days, such as "yesterday"."""
        if self._groups["days"] == "hier":  # it means here in German
            near = self._match.string[: self._match.end() + 100][-200:]
            if _every("french").isdisjoint(_WORD.findall(near)):
                return None
        shift, _, word_part = self._value("days").partition(" ")
        later, part = timedelta(days=int(shift)), self._value("parts") or word_part
        return self._phrase(lambda clock: calendar.day_part(clock, clock.today + later, part))

    def unit(self) -> Phrase:
        """Return the phrase of a calendar unit, such as "last week"."""
        name, shift, day = self._value("units"), self._shift(), self._number("d")
        if day is None:
            return self._phrase(lambda clock: calendar.unit(clock, name, shift))
        return self._phrase(
            lambda clock: calendar.days(calendar.day_within(calendar.unit(clock, name, shift), day - 1))
        )

    def ago(self) -> Phrase | None:
        """Return the phrase of a count of units back or ahead."""
        least, most, name = self._count()
        if name == "year" and least >= 1000:  # 2020年前 is before that year
            return None
        return self._phrase(lambda clock: (calendar.unit(clock, name, -most)[0], calendar.unit(clock, name, -least)[1]))

    def rolling(self) -> Phrase:
        """Return the phrase of "the last 3 weeks"."""
        least, most, name = self._count()
        return self._phrase(lambda clock: calendar.rolling(clock, most if most > 0 else least, name))

    def weekday(self) -> Phrase:
        """Return the phrase of a weekday, such as "next Monday" or "Monday of last week"."""
        number, shift, week = self._number("weekday", "weekday_short") or 0, self._shift(), self._number("week")
        if "units" in self._groups:
            shift, week = None, shift or 0
        part = self._value("parts")
        if week is not None:
            return self._phrase(
                lambda clock: calendar.day_part(
                    clock, calendar.day_within(calendar.unit(clock, "week", week), number), part
                )
            )
        return self._phrase(
            lambda clock: calendar.day_part(clock, calendar.weekday(clock, number, shift), part),
            floating=shift is None,
            weekday=True,
        )

    def date(self) -> Phrase | None:
        """Return the phrase of a day, month, quarter, season, feast or year, as far as the match says."""
        groups, shift, year_shift, year = self._groups, self._shift(), self._number("years"), self._number("y")
        if short := self._number("short"):
            year = short + (2000 if short < 70 else 1900)
        alone = year is None and shift is None and year_shift is None
        needs: Needs = "preposition" if alone and self._spaces else "nothing"
        of_year: Callable[[int], Period] = functools.partial(calendar.months, number=1, count=12)
        if "season" in groups:
            of_year = functools.partial(calendar.months, number=3 + 3 * (self._number("season") or 0), count=3)
        elif "quarter" in groups:
            of_year = functools.partial(calendar.months, number=3 * (self._number("quarter") or 1) - 2, count=3)
            if alone and groups["quarter"].startswith("last"):
                return None
        elif "feast" in groups:
            of_year = calendar.FEASTS[self._value("feast")]
            needs = "any preposition" if needs == "preposition" else needs
        elif "month" in groups or "m" in groups:
            number, day = self._number("month", "m") or 0, self._number("d")
            if day is not None and groups.get("s", "-") != "-" and self._match.start("y") > self._match.start("m"):
                # 3/5/2023 has the month first, 3.5.2023 the day; where one can't be a month it is the day.
                number, day = (day, number) if (groups["s"] == "." and day <= 12) or number > 12 else (number, day)
            if not 1 <= number <= 12:
                return None
            of_year = functools.partial(calendar.months, number=number)
            if day is not None:
                first, last = self._number("first") or day, self._number("last") or day
                if not 1 <= first <= last <= 31:
                    return None
                of_year = functools.partial(calendar.days_of_month, number=number, first=first, last=last)
            before, after = self._words_around()
            if day is None and before == "on":  # "on mars"
                return None
            if needs == "preposition":
                needs = self._month_needs(day, after)
        return self._phrase(
            lambda clock: calendar.yearly(clock, of_year, shift, year_shift, year), needs, floating=alone
        )

    def _month_needs(self, day: int | None, after: str) -> Needs:
        """Return what a month without a year needs: "may" a preposition, "may 3 people" too, but not "may 3rd" or
        "may 3?". `day`: the day that follows it, if any; `after`: the word after the match."""
        name = self._groups.get("month", "")
        if day is None:
            return "preposition" if name in _every("doubtful") else "nothing"
        ordinal = "first" in self._groups or self._match[0].endswith(("st", "nd", "rd", "th"))
        return "preposition" if name in _every("ordinary") and after and not ordinal else "nothing"

    def years(self) -> Phrase | None:
        """Return the phrase of years in digits; None if they count or number something."""
        first, last, decade = self._number("y") or 0, self._number("y2"), self._number("decade")
        needs: Needs = "nothing"
        if decade is not None:
            first = decade + (1900 if decade < 100 else 0)
            last = first + 9
        elif last is None and "word" not in self._groups:
            before, after = self._words_around()
            if after in _every("counted") or before in _every("numbered"):
                return None
            # "2000 elephants" counts, "the 2022 elections" dates.
            plural = len(after) > 3 and after.endswith("s") and not after.endswith(("ss", "us", "is"))
            needs = "preposition" if plural and before not in _every("possessive") else needs
        count = (last or first) - first + 1
        return self._phrase(lambda clock: calendar.months(first, 1, 12 * count), needs) if count > 0 else None

    def _phrase(
        self, resolve: Resolve, needs: Needs = "nothing", *, floating: bool = False, weekday: bool = False
    ) -> Phrase:
        """Return the phrase of the whole match; what the rule itself needs comes before `needs`."""
        needs = cast(Needs, self._groups.get("needs", needs))
        return Phrase(*self._match.span(), resolve, needs, floating, weekday)

    def _value(self, category: str) -> str:
        """Return the table value of the group's word, or the value that the rule gives; "" without the group."""
        text = " ".join(self._groups.get(category, "").split())
        return self._tables.get(category, {}).get(text, text)

    def _number(self, *categories: str) -> int | None:
        """Return the value of the first of these groups that matched, as a number; None: none did."""
        values = (value for category in categories if (value := self._value(category)))
        return next(map(_parse_number, values), None)

    def _shift(self) -> int | None:
        """Return -1 for last, 0 for this, 1 for next; None without such a word."""
        return self._number("shift", "after")

    def _count(self) -> tuple[int, int, str]:
        """Return (least, most, unit) of a count: (3, 3, "day"); (2, 5, "week") for a few weeks; ahead is negative."""
        value, unit = self._value("counted_days") or self._value("numbers"), self._value("units") or "day"
        ends = [*_parse_range(value)]
        if first := self._groups.get("least"):  # "two or three"
            ends += _parse_range(self._tables.get("numbers", {}).get(" ".join(first.split()), first))
        least, most = min(ends), max(ends)
        return (-most, -least, unit) if "ahead" in self._groups else (least, most, unit)

    def _words_around(self) -> tuple[str, str]:
        """Return the words before and after the match, "" for none."""
        text, (first, last) = self._match.string, self._match.span()
        before = _BEFORE_WORD.search(text, max(0, first - 24), first)
        after = _AFTER_WORD.match(text, last)
        return before[1] if before else "", after[1] if after else ""


def _parse_number(text: str) -> int:
    """Parse a number in digits or Chinese signs: 十五 is 15, 二〇二三 is 2023, 一百二十 is 120."""
    if text.isascii():
        return int(text)
    if not any(character in "十百" for character in text):
        return int("".join(str(_DIGITS[character]) for character in text))
    total, digit = 0, 0
    for character in text:
        if character in "十百":
            total, digit = total + (digit or 1) * (10 if character == "十" else 100), 0
        else:
            digit = _DIGITS[character]
    return total + digit


def _parse_range(text: str) -> tuple[int, int]:
    """Parse a count: "3" is (3, 3), "2-5" (2, 5). Two digits in a row mean about: 三四 (3, 4), 二三十 (20, 30)."""
    least, _, most = text.partition("-")
    if (pair := _PAIR.fullmatch(text)) and _DIGITS[pair[3]] == _DIGITS[pair[2]] + 1:
        least, most = (pair[1] + digit + pair[4] for digit in pair.group(2, 3))
    return _parse_number(least), _parse_number(most or least)


_PAIR = re.compile(r"((?:.*[十百])?)([一二两兩三四五六七八九])([二两兩三四五六七八九])([十百]?)")


@functools.cache
def _every(category: str) -> frozenset[str]:
    """Return the words of a category in all languages."""
    return frozenset(word for language in LANGUAGES for word in language.tables.get(category, ()))


@functools.cache
def rules() -> tuple[DateRule, ...]:
    """Build the rules of all languages."""
    return tuple(_rule(language, *row) for language in LANGUAGES for row in language.rules)


def _rule(language: Language, kind: str, values: Mapping[str, str], pattern: str) -> DateRule:
    """Return the rule of a row in `Language.rules`, with names in the pattern replaced by words."""
    for name, expansion in _NAMES["spaceless" if language.signs else "spaced"].items():
        pattern = pattern.replace(name, expansion)
    source = _NAME.sub(lambda name: _words_of(language, *name.groups()), pattern)
    if language.signs:
        return DateRule(kind, language, values, language.signs, source)
    category = next((name for name in _HEADS if "{" + name in pattern), "")
    headed = language.tables.get(category, ()) if category or not language.tables else (pattern,)
    heads = {max(_WORD.findall(word), key=len) for word in headed} or {"0"}
    spaced = source.replace(" ", r"\s{1,3}")
    # Whole words; scripts without spaces may stand next to them.
    bounded = rf"(?<![{_LETTERS}.,:/$€£¥#@+])(?<![0-9]-)(?:{spaced})(?![{_LETTERS}€%]|[.,:/-][0-9])"
    return DateRule(kind, language, values, frozenset(heads), bounded)


def _words_of(language: Language, plain: str, category: str, chosen: str | None) -> str:
    """Return the words of the table `category` as a group of a pattern, without a name if `plain` is not empty; only
    words with values in `chosen`, which spaces separate, None: all."""
    table = language.tables.get("numbers" if category == "least" else category, {})
    words = alternatives(word for word, value in table.items() if chosen is None or value in chosen.split())
    if category in ("numbers", "least"):
        digits = language.digits if category == "numbers" else "[0-9]{1,2}|[一二两兩三四五六七八九十]{1,3}"
        words = f"{digits}|{words}"
    return f"(?:{words})" if plain else f"(?P<{category}>{words})"


def alternatives(words: Iterable[str]) -> str:
    """Return words as alternatives of a pattern, the longest first; for no words a pattern that never matches."""
    return "|".join(sorted(words, key=len, reverse=True)) or "(?!)"
