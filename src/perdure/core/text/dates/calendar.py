"""Periods of the calendar: days, weeks, months, years, seasons and feasts, as a clock and a time zone see them.

A period is a pair of edges, the second not included. Functions raise OverflowError or ValueError for a period that the
calendar doesn't have; callers leave those out.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, time, timedelta, tzinfo

from perdure.core.text.zones import zone

EARLIEST = datetime.min.replace(tzinfo=UTC)
LATEST = datetime.max.replace(tzinfo=UTC)
ONE_DAY = timedelta(days=1)
DAY_PARTS = {"morning": (0, 12), "afternoon": (12, 18), "evening": (17, 24), "night": (18, 30)}  # hours
MONTHS = {"month": 1, "quarter": 3, "year": 12, "decade": 120}
STEPS = {"minute": timedelta(minutes=1), "hour": timedelta(hours=1)}

Period = tuple[date, date]
"""Each edge is the beginning of a local day or, as a datetime, a moment in UTC."""


@dataclass(frozen=True, slots=True)
class Clock:
    """The current time in UTC, the local day at that time, and the time zone `home` that decides where days begin."""

    now: datetime
    today: date
    home: tzinfo

    @classmethod
    def build(cls, now: datetime, timezone: str | None) -> Clock:
        """Build a clock; a `now` without an offset is UTC. `timezone`: an IANA name; None: the zone of `now`."""
        now = now.replace(tzinfo=now.tzinfo or UTC)
        home = zone(timezone) if timezone else now.tzinfo or UTC
        try:
            return cls(now.astimezone(UTC), now.astimezone(home).date(), home)
        except OverflowError:
            return cls(now.replace(tzinfo=UTC), now.date(), home)

    def on(self, today: date) -> Clock:
        """Return the same clock on another day."""
        return replace(self, today=today)

    def moment(self, edge: date) -> datetime:
        """Return the edge of a period as a moment in UTC. Where clocks skip midnight, the day begins at the skip."""
        if isinstance(edge, datetime):
            return edge
        try:
            return datetime.combine(edge, time.min, tzinfo=self.home).astimezone(UTC)
        except OverflowError:
            return EARLIEST if edge.year == 1 else LATEST


Resolve = Callable[[Clock], Period]
"""A function from a clock to the period that a phrase means at that clock."""


def days(first: date, count: int = 1) -> Period:
    """Return `count` days from `first` on."""
    return first, first + timedelta(days=count)


def months(year: int, number: int, count: int = 1) -> Period:
    """Return `count` months from month `number` on: 1 is January, 0 is December of the year before."""
    first = 12 * year + number - 1
    last = first + count
    return date(first // 12, first % 12 + 1, 1), date(last // 12, last % 12 + 1, 1)


def unit(clock: Clock, name: str, shift: int | None) -> Period:
    """Return the unit `name` that is `shift` units from now, ("week", -1) is last week; None: the latest begun."""
    today, later = clock.today, shift or 0
    if size := MONTHS.get(name):
        return months(0, ((12 * today.year + today.month - 1) // size + later) * size + 1, size)
    if name in STEPS:
        return clock.now + (later - 1) * STEPS[name], clock.now + (later + 1) * STEPS[name]
    if name == "day":
        return days(today + timedelta(days=later))
    if name == "weekend" and shift is None and today.weekday() < 5:
        later = -1
    monday = today + timedelta(days=7 * later - today.weekday())
    return days(monday, 7) if name == "week" else days(monday + timedelta(days=5), 2)


def rolling(clock: Clock, count: int, name: str) -> Period:
    """Return the period from `count` units of `name` ago to the end of today; if negative, from today on."""
    today = clock.today
    if name in STEPS:
        return clock.now + min(-count, 0) * STEPS[name], clock.now + max(-count, 0) * STEPS[name]
    if size := MONTHS.get(name):  # the same day of another month, or that month's last
        begin, end = months(today.year, today.month - count * size)
        other = min(begin + timedelta(days=today.day - 1), end - ONE_DAY)
    else:
        other = today - timedelta(days=count * (1 if name == "day" else 7))
    return min(today, other), max(today, other) + ONE_DAY


def day_part(clock: Clock, day: date, part: str) -> Period:
    """Return the hours of a day that `DAY_PARTS` names; for any other part the whole day."""
    if part not in DAY_PARTS:
        return days(day)
    # Wall-clock hours: a sum of times in one zone ignores clock changes.
    midnight = datetime.combine(day, time.min, tzinfo=clock.home)
    first, last = (midnight + timedelta(hours=hour) for hour in DAY_PARTS[part])
    return first.astimezone(UTC), last.astimezone(UTC)


def weekday(clock: Clock, number: int, shift: int | None) -> date:
    """Return the weekday `number`, 0 is Monday. `shift`: before today -1, the one before that -2, this week's 0, after
    today 1, the one after that 2, latest None."""
    back = (clock.today.weekday() - number) % 7
    if shift == 0:
        back = clock.today.weekday() - number
    elif shift is not None:
        back = (back if shift > 0 else back or 7) - 7 * (shift if shift > 0 else shift + 1)
    return clock.today - timedelta(days=back)


def day_within(period: Period, offset: int) -> date:
    """Return the day with this offset, from 0, in a period of days. Raises: ValueError: the period is shorter."""
    day = period[0] + timedelta(days=offset)
    if not period[0] <= day < period[1]:
        raise ValueError
    return day


def yearly(
    clock: Clock, of_year: Callable[[int], Period], shift: int | None, year_shift: int | None, in_year: int | None
) -> Period:
    """Return `of_year(year)`, a period of every year, for the year that a text means: `in_year`, else the clock's plus
    `year_shift`, else the last (-1), this (0) or next (1) year with the period or the one beyond (-2, 2), else the
    latest in which it has begun. Years without it (29 February) are skipped. Raises: ValueError, OverflowError."""
    today, here = clock.today, clock.today.year
    if in_year is not None or year_shift is not None:
        return of_year(here + (year_shift or 0) if in_year is None else in_year)
    if shift == 0:
        before = of_year(max(here - 1, 1))
        return before if before[1] > today else of_year(here)  # a winter that began last year
    side = (shift or 0) // abs(shift or 1)
    left = abs(shift or 1)
    for number in range(here, here + 9) if side == 1 else range(here, max(0, here - 9), -1):
        try:
            begin, end = of_year(number)
        except (ValueError, OverflowError):
            continue
        left -= begin > today if side == 1 else end <= today if side == -1 else begin <= today
        if not left:
            return begin, end
    raise ValueError


def days_of_month(year: int, number: int, first: int, last: int) -> Period:
    """Return the days `first` to `last` of a month."""
    return date(year, number, first), date(year, number, last) + ONE_DAY


def part_of(period: Period, part: str) -> Period:
    """Return a part of a period of days.

    Parts are thirds ("early", "mid", "late"), halves ("half1", "half2"), weeks ("week1" to "week4", "week-1" is the
    last, "week" that of the first day) and days ("day1", "day-1").
    """
    begin, end = period
    if isinstance(begin, datetime) or isinstance(end, datetime):
        return period
    if part == "week":
        return days(begin - timedelta(days=begin.weekday()), 7)
    size = (end - begin).days
    third, half = size // 3, size // 2
    parts = {"early": (0, third or 1), "mid": (third, 2 * size // 3 or 1), "late": (2 * size // 3, size)}
    parts |= {"half1": (0, half or 1), "half2": (half, size), "day1": (0, 1), "day-1": (size - 1, size)}
    parts |= {"week-1": (max(0, size - 7), size)}
    parts |= {f"week{number}": (7 * number - 7, min(7 * number, size)) for number in range(1, 5)}
    first, last = parts[part]
    return begin + timedelta(days=first), begin + timedelta(days=last)


def _easter(year: int) -> Period:
    """Return Good Friday to Easter Monday. Source: the Gregorian computus of Meeus, Jones and Butcher."""
    a, b, c = year % 19, year // 100, year % 100
    h = (19 * a + b - b // 4 - (b - (b + 8) // 25 + 1) // 3 + 15) % 30
    w = (32 + 2 * (b % 4) + 2 * (c // 4) - h - c % 4) % 7
    m = (a + 11 * h + 22 * w) // 451
    number, rest = divmod(h + w - 7 * m + 114, 31)
    return days(date(year, number, rest + 1) - 2 * ONE_DAY, 4)


def _thanksgiving(year: int) -> Period:
    """Return the fourth Thursday of November."""
    first = date(year, 11, 1)
    return days(first + timedelta(days=(3 - first.weekday()) % 7 + 21))


def _same_day(month: int, day: int, count: int = 1) -> Callable[[int], Period]:
    """Return the function year -> period of a feast that begins on the same date every year and lasts `count` days."""
    return lambda year: days(date(year, month, day), count)


FEASTS: dict[str, Callable[[int], Period]] = {
    "christmas": _same_day(12, 24, 3),
    "christmas eve": _same_day(12, 24),
    "christmas day": _same_day(12, 25),
    "new year's eve": _same_day(12, 31),
    "new year": _same_day(1, 1),
    "valentine's day": _same_day(2, 14),
    "halloween": _same_day(10, 31),
    "thanksgiving": _thanksgiving,
    "easter": _easter,
    "national day": _same_day(10, 1, 7),  # of China: its free week
    # It begins on a new moon between 21 January and 20 February; its free week may end in the last days of February.
    "spring festival": _same_day(1, 20, 39),
}
