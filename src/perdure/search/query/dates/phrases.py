"""Phrases: words that name a period, and the rules that find them; what the languages share."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple

from perdure.search.query.dates.periods import Resolve, Which

__all__ = ["OF_YEAR", "WHICH", "Needs", "Phrase", "Rule", "SaidYear", "any_of", "rule", "said_year", "words"]

Needs = Literal["nothing", "any preposition", "preposition", "partner"]
"""What must stand with a phrase to make it a date: "Christmas" any preposition, also "for"; "may" one of time, as in
"since may", or the other end of a range; "now" is one only as the end of a range."""


@dataclass(frozen=True, slots=True)
class Phrase:
    """Characters `first` to `last` of a query, and what they mean.

    Args:
        floating: it means the latest of several, so that the other end of a range can move it.
        weekday: the name of a day, which says no more where a date follows.
    """

    first: int
    last: int
    resolve: Resolve
    needs: Needs = "nothing"
    floating: bool = False
    weekday: bool = False


@dataclass(frozen=True, slots=True)
class Rule:
    """A pattern, tried when one of its heads is among the query's words; "0" stands for any digit."""

    heads: frozenset[str]
    source: str
    phrase: Callable[[re.Match[str]], Phrase | None]

    @property
    def pattern(self) -> re.Pattern[str]:
        """Compiled when first tried: all of them together take a tenth of a second."""
        return _compiled(self.source)


_compiled = functools.cache(re.compile)


def rule(heads: frozenset[str], pattern: str, phrase: Callable[[re.Match[str]], Phrase | None]) -> Rule:
    """In the pattern a space stands for one to three of any white space, and all repeats have bounds; it matches whole
    words. Scripts without spaces may stand next to it."""
    spaced = pattern.replace(" ", r"\s{1,3}")
    return Rule(heads, rf"(?<![{_LETTERS}.,:/$€£¥#@+])(?<![0-9]-)(?:{spaced})(?![{_LETTERS}€%]|[.,:/-][0-9])", phrase)


def words(text: str) -> frozenset[str]:
    return frozenset(text.split())


def any_of(names: Iterable[str]) -> str:
    """The alternatives of a pattern, longest first."""
    return "|".join(sorted(names, key=len, reverse=True))


_LETTERS = r"0-9a-z_\u00c0-\u024f\u0400-\u04ff"

# The year that follows a month, a season or a feast; the names of its groups are what `said_year` reads.
OF_YEAR = (
    r"(?:,?(?: (?:of|in|de|del|von))? (?P<year>[12][0-9]{3})"
    r"| '(?P<short>[0-9]{2})"
    r"|,?(?: (?:of|in))?(?: the)? (?P<rel>last|this|next|previous|letzten|vergangenen|dieses|nächsten) (?:year|jahres)"
    r"|,?(?: de| del)? (?P<rel2>l'année dernière|l'an dernier|cette année|año pasado|este año))?"
)
WHICH: Mapping[str | None, Which] = {
    "last": "last",
    "past": "last",
    "previous": "last",
    "this": "this",
    "next": "next",
}
_LATER: Mapping[str, int] = {
    "last": -1,
    "previous": -1,
    "letzten": -1,
    "vergangenen": -1,
    "l'année dernière": -1,
    "l'an dernier": -1,
    "año pasado": -1,
    "this": 0,
    "dieses": 0,
    "cette année": 0,
    "este año": 0,
    "next": 1,
    "nächsten": 1,
}


class SaidYear(NamedTuple):
    """Which year's month, season or feast is meant; the last arguments of `month_of_year` and its like."""

    which: Which
    later: int | None
    in_year: int | None

    @property
    def nothing(self) -> bool:
        return not self.which and self.later is None and self.in_year is None


def said_year(found: re.Match[str]) -> SaidYear:
    """What a match says by OF_YEAR, and by a group `which` if it has one."""
    groups = found.groupdict()
    in_year = int(found["year"]) if found["year"] else None
    if found["short"]:
        in_year = int(found["short"]) + (2000 if found["short"] < "70" else 1900)
    said = found["rel"] or found["rel2"]
    return SaidYear(
        WHICH.get(groups.get("which"), ""), None if said is None else _LATER.get(" ".join(said.split()), 0), in_year
    )
