"""The times of extracted facts: how they are read, and whether the turns say them."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

from perdure.core.text.dates import spans
from perdure.core.text.zones import local
from perdure.features.facts.values.extraction import SpokenTurn

DAY = timedelta(days=1)
WEEK = 7 * DAY
_YEAR = re.compile(r"(?<!\d)(1[5-9]\d\d|20\d\d)(?!\d)")
_ONE_TO_TWELVE = ("one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve")
_NUMBERS: dict[str, float] = {word: number for number, word in enumerate(_ONE_TO_TWELVE, 1)}
_NUMBERS |= {sign: number for number, sign in enumerate("一二三四五六七八九十", 1)}
_NUMBERS |= {"a": 1, "an": 1, "两": 2, "半": 0.5}
_UNITS = {"day": 1.0, "week": 7.0, "month": 30.44, "year": 365.25, "天": 1.0, "周": 7.0, "月": 30.44, "年": 365.25}
_DURATION = re.compile(
    rf"(\d{{1,3}}|{'|'.join(sorted(_NUMBERS, key=len, reverse=True))})\s*个?\s*(day|week|month|year|天|周|月|年)",
    re.IGNORECASE,
)


def parse_time(text: str | None, now: datetime) -> datetime | None:
    """Return the UTC time that a text in ISO 8601 states; None: it states none. A date, month or year alone stands for
    its first moment in the zone of `now`; so does midnight with any offset, as models write that for a day."""
    if not text:
        return None
    text = text.strip()
    text += "-01-01" if re.fullmatch(r"\d{4}", text) else "-01" if re.fullmatch(r"\d{4}-\d\d", text) else ""
    try:
        time = datetime.fromisoformat(text)
        if time.tzinfo is None or (time.time() == datetime.min.time() and time != now):
            time = time.replace(tzinfo=now.tzinfo)
        return time.astimezone(UTC)
    except (ValueError, OverflowError):
        return None


def merge_times(
    valid_at: datetime | None, invalid_at: datetime | None, *, before: tuple[datetime | None, datetime | None]
) -> tuple[datetime | None, datetime | None]:
    """Return beginning and end of a fact: as stated now, else as known `before`. A known time that contradicts the
    stated one becomes unknown, such as the time of speaking taken for the beginning."""
    if valid_at is not None and invalid_at is None and before[1] is not None and before[1] < valid_at:
        return valid_at, None
    end = invalid_at or before[1]
    fits = before[0] is None or end is None or before[0] <= end
    return valid_at or (before[0] if fits else None), end


def says_time(turn: SpokenTurn, time: datetime) -> bool:
    """Return whether a turn states a time, give or take a day for time zones: as its own time, a day in its text, the
    start or end of a period, the first day of a year, or a distance from now."""
    now = turn.occurred_at
    if abs(time - now) <= DAY:
        return True
    for span in spans(turn.text, now=now):
        if abs(time - span.start) <= DAY or abs(time - span.end) <= DAY:
            return True
        if span.end - span.start <= WEEK and span.start - time <= DAY and time - span.end <= DAY:
            return True
    day = local(time, now.tzinfo or UTC)
    if str(day.year) in _YEAR.findall(turn.text) and (day.month, day.day) == (1, 1):
        return True
    for number, unit in _DURATION.findall(turn.text):
        days = (_NUMBERS.get(number.lower()) or float(number)) * _UNITS[unit.lower()]
        if abs(abs((now - time) / DAY) - days) <= max(1.0, _UNITS[unit.lower()] / 2):
            return True
    return False
