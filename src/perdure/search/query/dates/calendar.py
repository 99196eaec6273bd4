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

Period = tuple[date, date]
"""Each edge is the beginning of a local day or, as a datetime, a moment in UTC."""


@dataclass(frozen=True, slots=True)
class Clock:
    """The current time in UTC, and the local day at that time."""

    now: datetime
    today: date
    home: tzinfo

    @classmethod
    def build(cls, now: datetime, timezone: str) -> Clock:
        """Build a clock; a time without an offset is UTC."""
        home = zone(timezone)
        if now.tzinfo is None:
            now = now.replace(tzinfo=UTC)
        try:
            return cls(now.astimezone(UTC), now.astimezone(home).date(), home)
        except OverflowError:
            return cls(now.replace(tzinfo=UTC), now.date(), home)

    def on(self, today: date) -> Clock:
        """Return the same clock on another day."""
        return replace(self, today=today)

    def moment(self, edge: date) -> datetime:
        """Return the edge in UTC. Where clocks skip midnight, the day begins at the skip."""
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
    first, last = number - 1, number - 1 + count
    return date(year + first // 12, first % 12 + 1, 1), date(year + last // 12, last % 12 + 1, 1)


def years(number: int, count: int = 1) -> Period:
    """Return `count` years."""
    return date(number, 1, 1), date(number + count, 1, 1)


def week(of: date, shift: int = 0) -> Period:
    """Return the week of a day, Monday to Sunday, or the one `shift` weeks later."""
    return days(of + timedelta(days=7 * shift - of.weekday()), 7)


def relative(unit: str, shift: int | None) -> Resolve:
    """Return the calendar unit `shift` units after the current one: ("week", -1) is last week; None: the last begun."""

    def resolve(clock: Clock) -> Period:
        today = clock.today
        later = shift or 0
        match unit:
            case "day":
                return days(today + timedelta(days=later))
            case "week":
                return week(today, later)
            case "weekend":
                later = -1 if shift is None and today.weekday() < 5 else later
                return days(week(today, later)[0] + timedelta(days=5), 2)
            case "month":
                return months(today.year, today.month + later)
            case "quarter":
                return months(today.year, 3 * ((today.month + 2) // 3 + later) - 2, 3)
            case "year":
                return years(today.year + later)
            case "decade":
                return years(today.year // 10 * 10 + 10 * later, 10)
        return _hours(clock, unit, later - 1, later + 1)

    return resolve


def ago(least: int, most: int, unit: str) -> Resolve:
    """Return the calendar units `least` to `most` back: 3 weeks ago is a whole week. Negative counts lie ahead."""
    return lambda clock: (relative(unit, -most)(clock)[0], relative(unit, -least)(clock)[1])


def rolling(count: int, unit: str) -> Resolve:
    """Return the period from so many units back to the end of today; for a negative count, from today on."""

    def resolve(clock: Clock) -> Period:
        today = clock.today
        if unit in ("minute", "hour"):
            return _hours(clock, unit, min(-count, 0), max(-count, 0))
        size = {"month": 1, "quarter": 3, "year": 12, "decade": 120}.get(unit)
        if size is None:
            other = today - timedelta(days=count * (7 if unit in ("week", "weekend") else 1))
        else:  # the same day of another month, or that month's last
            begin, end = months(today.year, today.month - count * size)
            other = min(begin + timedelta(days=today.day - 1), end - ONE_DAY)
        return min(today, other), max(today, other) + ONE_DAY

    return resolve


def _hours(clock: Clock, unit: str, first: int, last: int) -> Period:
    """Return a period of hours or minutes around the clock's time."""
    step = timedelta(hours=1) if unit == "hour" else timedelta(minutes=1)
    return clock.now + first * step, clock.now + last * step


def day_part(resolve: Resolve, part: str) -> Resolve:
    """Return the hours of a day that `DAY_PARTS` names; for any other part the whole day."""
    if part not in DAY_PARTS:
        return resolve

    def hours(clock: Clock) -> Period:
        # Wall-clock hours: a sum of times in one zone ignores clock changes.
        midnight = datetime.combine(resolve(clock)[0], time.min, tzinfo=clock.home)
        first, last = DAY_PARTS[part]
        return (midnight + timedelta(hours=first)).astimezone(UTC), (midnight + timedelta(hours=last)).astimezone(UTC)

    return hours


def weekday(number: int, shift: int | None) -> Resolve:
    """Return a weekday, 0 is Monday: -1 before today, 0 in this week, 1 after today, None the latest."""

    def resolve(clock: Clock) -> Period:
        back = (clock.today.weekday() - number) % 7
        if shift is not None:
            back = {-1: back or 7, 0: clock.today.weekday() - number}.get(shift, back - 7)
        return days(clock.today - timedelta(days=back))

    return resolve


def day_within(unit: str, shift: int, offset: int) -> Resolve:
    """Return the day with this offset in a week or month: ("month", -1, 4) is the 5th of last month."""

    def resolve(clock: Clock) -> Period:
        begin, end = relative(unit, shift)(clock)
        day = begin + timedelta(days=offset)
        if not begin <= day < end:
            raise ValueError
        return days(day)

    return resolve


def yearly(of_year: Callable[[int], Period], shift: int | None, year_shift: int | None, in_year: int | None) -> Resolve:
    """Return the period of one year.

    The year is `in_year`, else the clock's plus `year_shift`, else the last (-1), this (0) or next (1) one with the
    period, else the latest one in which the period has begun. Years without it are passed over (29 February).
    """

    def resolve(clock: Clock) -> Period:
        today, here = clock.today, clock.today.year
        if in_year is not None or year_shift is not None:
            return of_year(here + (year_shift or 0) if in_year is None else in_year)
        if shift == 0:
            before = of_year(max(here - 1, 1))
            return before if before[1] > today else of_year(here)  # a winter that began last year
        for number in range(here, here + 9) if shift == 1 else range(here, max(0, here - 9), -1):
            try:
                begin, end = of_year(number)
            except (ValueError, OverflowError):
                continue
            if begin > today if shift == 1 else end <= today if shift == -1 else begin <= today:
                return begin, end
        raise ValueError

    return resolve


def days_of_month(number: int, first: int, last: int) -> Callable[[int], Period]:
    """Return the days `first` to `last` of a month, as a function of the year."""

    def of_year(year: int) -> Period:
        begin, end = date(year, number, first), date(year, number, last)
        if end < begin:
            raise ValueError
        return begin, end + ONE_DAY

    return of_year


def part_of(resolve: Resolve, part: str) -> Resolve:
    """Return a part of a period of days.

    Parts are thirds ("early", "mid", "late"), halves ("half1", "half2"), weeks ("week1" to "week4", "week-1" is the
    last, "week" that of the first day) and days ("day1", "day-1").
    """

    def resolve_part(clock: Clock) -> Period:
        begin, end = resolve(clock)
        if isinstance(begin, datetime) or isinstance(end, datetime):
            return begin, end
        if part == "week":
            return week(begin)
        size = (end - begin).days
        third, half = size // 3, size // 2
        parts = {"early": (0, third or 1), "mid": (third, 2 * size // 3 or 1), "late": (2 * size // 3, size)}
        parts |= {"half1": (0, half or 1), "half2": (half, size), "day1": (0, 1), "day-1": (size - 1, size)}
        parts |= {"week-1": (max(0, size - 7), size)}
        parts |= {f"week{number}": (7 * number - 7, min(7 * number, size)) for number in range(1, 5)}
        first, last = parts[part]
        return begin + timedelta(days=first), begin + timedelta(days=last)

    return resolve_part


def _easter(year: int) -> Period:
    """Good Friday to Easter Monday. Source: the Gregorian computus of Meeus, Jones and Butcher."""
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
    """Return a feast on the same day of every year."""
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
