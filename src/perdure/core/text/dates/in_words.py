"""Dates as people write them, and the dates of "yesterday" and "last week" in a text of another day."""

from __future__ import annotations

import re
from calendar import monthrange
from datetime import UTC, date, datetime, timedelta
from functools import partial
from itertools import pairwise

from perdure.core.text.dates.calendar import EARLIEST, LATEST
from perdure.core.text.dates.spans import TimeSpan, spans
from perdure.core.text.tables import read_table
from perdure.core.text.zones import local

_TABLES = read_table(__file__)
MONTHS: tuple[str, ...] = tuple(_TABLES.pop("months"))  # `strftime` would use the process's locale
_WORDS, _BEFORE, _BEHIND, _BETWEEN, _AS_WRITTEN = (partial(re.compile, one, re.VERBOSE) for one in _TABLES.values())


def period_in_words(first: date, last: date) -> str:
    """Return the days from `first` to `last` as "7 May 2023", "1 to 7 May 2023", "March to May 2023" or "2022"."""
    begin, end = ([str(day.day), MONTHS[day.month - 1], str(day.year)] for day in (first, last))
    if first.day == 1 and last.day == monthrange(last.year, last.month)[1]:
        parts = 2 if (first.month, last.month) == (1, 12) else 1  # whole years, or whole months
        begin, end = begin[parts:], end[parts:]
    while begin and begin[-1] == end[len(begin) - 1]:  # what both ends share stands once
        begin.pop()
    return " ".join([*begin, "to", *end] if begin else end)


def add_dates(text: str, *, said_at: datetime) -> str:
    """Return a text with the date behind each word that counts from the day it is said on: "yesterday [7 May 2023]".

    Words that may mean another date ("on Friday", "in March", "the last week of June"), periods without a beginning or
    an end, quotes and code stay as they are, and so do words that say the day itself.

    Args:
        said_at: in the zone in which days begin.
    """
    found = spans(text, now=said_at)
    kept = [match.span() for match in _AS_WRITTEN().finditer(text)] if found else []
    kept += [(one.first, two.last) for one, two in pairwise(found) if _BETWEEN().fullmatch(text, one.last, two.first)]
    for span in reversed(found):
        last = span.first + len(span.text.rstrip())
        is_free = all(last <= begin or end <= span.first for begin, end in kept)
        if is_free and (days := _days(span, said_at)) and _is_sure(text, span.first, last, days[0], said_at.date()):
            text = f"{text[:last]} [{period_in_words(*days)}]{text[last:]}"
    return text


def _is_sure(text: str, first: int, last: int, begin: date, today: date) -> bool:
    """Return whether the words `text[first:last]`, said `today`, can only mean the period that begins at `begin`."""
    if _BEFORE().search(text[max(0, first - 32) : last]) or _BEHIND().match(text, last):
        return False
    words, later = _WORDS().match(text[first:last]), (begin - today).days
    match words and words.lastgroup:
        case "week":  # for many it begins on Sunday
            return today.weekday() != 6
        case "this":  # "this Tuesday", said on a Friday
            return later > 0
        case "next":  # "next Friday" and "next May" may not be those of this week and year
            return later + today.weekday() > 6 and (later <= 7 or begin.year > today.year)
    return not words


def _days(span: TimeSpan, said_at: datetime) -> tuple[date, date] | None:
    """Return the first and last day of a period; None: it floats, is open, includes `said_at`, or is of its day."""
    if span.floating or span.start == EARLIEST or span.end == LATEST or span.start <= said_at < span.end:
        return None
    first, last = (local(edge, said_at.tzinfo or UTC).date() for edge in (span.start, span.end - datetime.resolution))
    last = first if span.end - span.start <= timedelta(days=1) else last  # a night is of the day on which it begins
    return None if first == said_at.date() else (first, last)
