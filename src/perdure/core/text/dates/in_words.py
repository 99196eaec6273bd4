"""Dates as people write them, and the dates of "yesterday" and "last week" in a text of another day."""

from __future__ import annotations

import re
from calendar import monthrange
from datetime import UTC, date, datetime, timedelta

from perdure.core.text.dates.calendar import EARLIEST, LATEST
from perdure.core.text.dates.spans import TimeSpan, spans
from perdure.core.text.zones import local

# `strftime` would use the process's locale.
MONTHS = (
    *("January", "February", "March", "April", "May", "June"),
    *("July", "August", "September", "October", "November", "December"),
)
_INEXACT_OR_DATED = re.compile(r"[0-9]{4}|\b(?:few|several|couple|other)\b|(?:days|weeks|months|years)$", re.IGNORECASE)
"""Words that say their year, or no exact time."""


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

    Words that may mean another date ("on Friday", "in March") and periods without a beginning or an end stay as they
    are, and so do those that say the day itself.

    Args:
        said_at: in the zone in which days begin.
    """
    for span in reversed(spans(text, now=said_at)):
        words = span.text.rstrip()
        if not (span.floating or _INEXACT_OR_DATED.search(words)) and (days := _days(span, said_at)):
            last = span.first + len(words)
            text = f"{text[:last]} [{period_in_words(*days)}]{text[last:]}"
    return text


def _days(span: TimeSpan, said_at: datetime) -> tuple[date, date] | None:
    """Return the first and last day of a period; None: it is open, includes `said_at`, or is of the same day."""
    if span.start == EARLIEST or span.end == LATEST or span.start <= said_at < span.end:
        return None
    first, last = (local(edge, said_at.tzinfo or UTC).date() for edge in (span.start, span.end - datetime.resolution))
    if span.end - span.start <= timedelta(days=1):  # a night is of the day on which it begins
        last = first
    return None if first == said_at.date() else (first, last)
