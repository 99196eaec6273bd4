"""Periods of the calendar: days, weeks, months, years, seasons and feasts, as a clock and a time zone see them.

A period is a pair of edges, the second not included. Functions raise OverflowError or ValueError for what the
calendar doesn't have; whoever looks for periods leaves those out.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from typing import Literal

from perdure.core.text.zones import zone

__all__ = [
    "DAY_PARTS",
    "EARLIEST",
    "FEASTS",
    "LATEST",
    "Clock",
    "Period",
    "Resolve",
    "Unit",
    "Which",
    "ago",
    "day",
    "day_of_year",
    "day_part",
    "feast",
    "month",
    "month_of_year",
    "nth_of",
    "quarter",
    "quarter_of_year",
    "relative",
    "rolling",
    "season",
    "season_of_year",
    "week",
    "weekday",
    "year",
]

EARLIEST = datetime.min.replace(tzinfo=UTC)
LATEST = datetime.max.replace(tzinfo=UTC)

Period = tuple[date, date]
"""Each edge is the beginning of a day where the agent lives or, as a datetime, a moment in UTC."""
Unit = Literal["minute", "hour", "day", "week", "weekend", "month", "quarter", "year", "decade"]
Which = Literal["last", "this", "next", ""]
"""Of several of a name: the one before, around or after the clock; "" is the latest that has begun."""

DAY_PARTS = {"morning": (0, 12), "afternoon": (12, 18), "evening": (17, 24), "night": (18, 30)}  # hours
_ONE = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class Clock:
    """Now in UTC, and which day that is at `home`."""

    now: datetime
    today: date
    home: tzinfo

    @classmethod
    def at(cls, now: datetime, timezone: str) -> Clock:
        """A time without an offset is taken for UTC."""
        home = zone(timezone)
        if now.tzinfo is None:
            now = now.replace(tzinfo=UTC)
        try:
            return cls(now.astimezone(UTC), now.astimezone(home).date(), home)
        except OverflowError:
            return cls(now.replace(tzinfo=UTC), now.date(), home)

    def on(self, today: date) -> Clock:
        return replace(self, today=today)

    def moment(self, edge: date) -> datetime:
        """The edge in UTC. Where clocks skip midnight, the day begins as they do so."""
        if isinstance(edge, datetime):
            return edge
        try:
            return datetime.combine(edge, time.min, tzinfo=self.home).astimezone(UTC)
        except OverflowError:
            return EARLIEST if edge.year == 1 else LATEST


Resolve = Callable[[Clock], Period]


def day(first: date, days: int = 1) -> Period:
    return first, first + timedelta(days=days)


def week(of: date, later: int = 0) -> Period:
    """Monday to Sunday."""
    return day(of + timedelta(days=7 * later - of.weekday()), 7)


def month(year: int, number: int, months: int = 1) -> Period:
    """`number` may be any: 0 is December of the year before."""
    return _month_begin(year, number), _month_begin(year, number + months)


def _month_begin(year: int, number: int) -> date:
    return date(year + (number - 1) // 12, (number - 1) % 12 + 1, 1)


def year(number: int, years: int = 1) -> Period:
    return date(number, 1, 1), date(number + years, 1, 1)


def quarter(year: int, number: int) -> Period:
    return month(year, 3 * number - 2, 3)


def season(year: int, number: int) -> Period:
    """0 is spring, from March; 3 winter, which ends in the next year. Those of the northern half."""
    return month(year, 3 + 3 * number, 3)


def relative(unit: Unit, later: int) -> Resolve:
    """The calendar's unit around the clock, or so many after it: ("week", -1) is last week."""

    def resolve(clock: Clock) -> Period:
        today = clock.today
        match unit:
            case "week":
                return week(today, later)
            case "weekend":
                monday, _ = week(today, later)
                return day(monday + timedelta(days=5), 2)
            case "month":
                return month(today.year, today.month + later)
            case "quarter":
                return quarter(today.year, (today.month + 2) // 3 + later)
            case "year":
                return year(today.year + later)
            case "decade":
                return year(today.year // 10 * 10 + 10 * later, 10)
            case "day":
                return day(today + timedelta(days=later))
        return _hours(clock, unit, later - 1, later + 1)

    return resolve


def ago(least: int, most: int, unit: Unit) -> Resolve:
    """The calendar's units that lie `least` to `most` back: 3 weeks ago is a whole week; negative ones lie ahead."""

    def resolve(clock: Clock) -> Period:
        return relative(unit, -most)(clock)[0], relative(unit, -least)(clock)[1]

    return resolve


def rolling(number: int, unit: Unit) -> Resolve:
    """From so many units back to the end of today; a negative number: from today on."""

    def resolve(clock: Clock) -> Period:
        today = clock.today
        if unit in ("minute", "hour"):
            return _hours(clock, unit, min(-number, 0), max(-number, 0))
        months = {"month": 1, "quarter": 3, "year": 12, "decade": 120}.get(unit)
        days = 7 if unit in ("week", "weekend") else 1
        other = today - timedelta(days=days * number) if months is None else _months_later(today, -number * months)
        return min(today, other), max(today, other) + _ONE

    return resolve


def _months_later(of: date, months: int) -> date:
    """The same day of another month, or that month's last."""
    begin, end = month(of.year, of.month + months)
    return min(begin + timedelta(days=of.day - 1), end - _ONE)


def _hours(clock: Clock, unit: Unit, first: int, last: int) -> Period:
    step = timedelta(hours=1) if unit == "hour" else timedelta(minutes=1)
    return clock.now + first * step, clock.now + last * step


def day_part(resolve: Resolve, part: str) -> Resolve:
    """The hours of a day, as `DAY_PARTS` has them; any other part is the whole day."""

    def hours(clock: Clock) -> Period:
        begin, end = resolve(clock)
        if part not in DAY_PARTS:
            return begin, end
        first, last = DAY_PARTS[part]
        midnight = datetime.combine(begin, time.min, tzinfo=clock.home)
        # Hours of the clock on the wall: a sum of times in one zone knows nothing of its changes.
        return (midnight + timedelta(hours=first)).astimezone(UTC), (midnight + timedelta(hours=last)).astimezone(UTC)

    return hours


def weekday(number: int, which: Which) -> Resolve:
    """0 is Monday. "last" is before today, "this" in this week, "next" after today."""

    def resolve(clock: Clock) -> Period:
        back = (clock.today.weekday() - number) % 7
        match which:
            case "last":
                back = back or 7
            case "this":
                back = clock.today.weekday() - number
            case "next":
                back -= 7
        return day(clock.today - timedelta(days=back))

    return resolve


def _chosen(of_year: Callable[[int], Period], which: Which) -> Resolve:
    """Of what comes once a year, the one that is meant. Years without it are passed over, as by 29 February."""

    def resolve(clock: Clock) -> Period:
        today = clock.today
        here = today.year
        if which == "this":
            before = of_year(here - 1) if here > 1 else of_year(here)
            return before if before[1] > today else of_year(here)  # a winter that began last year
        years = range(here, here + 9) if which == "next" else range(here, max(0, here - 9), -1)
        for number in years:
            try:
                begin, end = of_year(number)
            except (ValueError, OverflowError):
                continue
            if (
                (which == "next" and begin > today)
                or (which == "last" and end <= today)
                or (not which and begin <= today)
            ):
                return begin, end
        raise ValueError

    return resolve


def month_of_year(number: int, which: Which = "", later: int | None = None, in_year: int | None = None) -> Resolve:
    return _in_year(lambda year: month(year, number), which, later, in_year)


def day_of_year(
    number: int,
    first: int,
    last: int | None = None,
    which: Which = "",
    later: int | None = None,
    in_year: int | None = None,
) -> Resolve:
    """Days `first` to `last` of month `number`."""

    def of_year(year: int) -> Period:
        begin, end = date(year, number, first), date(year, number, last or first)
        if end < begin:
            raise ValueError
        return begin, end + _ONE

    return _in_year(of_year, which, later, in_year)


def quarter_of_year(number: int, which: Which = "", later: int | None = None, in_year: int | None = None) -> Resolve:
    return _in_year(lambda year: quarter(year, number), which, later, in_year)


def season_of_year(number: int, which: Which = "", later: int | None = None, in_year: int | None = None) -> Resolve:
    return _in_year(lambda year: season(year, number), which, later, in_year)


def feast(name: str, which: Which = "", later: int | None = None, in_year: int | None = None) -> Resolve:
    """A feast of `FEASTS`."""
    return _in_year(FEASTS[name], which, later, in_year)


def _in_year(of_year: Callable[[int], Period], which: Which, later: int | None, in_year: int | None) -> Resolve:
    """In that year, or in that many after the clock's, or the one that is meant without either."""
    if in_year is not None:
        return lambda clock: of_year(in_year)
    if later is not None:
        return lambda clock: of_year(clock.today.year + later)
    return _chosen(of_year, which)


def nth_of(resolve: Resolve, part: str) -> Resolve:
    """A part of a period that is made of days: a third ("early", "mid", "late"), a half ("half1", "half2"), a week
    ("week1" to "week5", "week-1" is the last), the week around its beginning ("week"), or a day ("day1", "day-1")."""

    def resolve_part(clock: Clock) -> Period:
        begin, end = resolve(clock)
        if isinstance(begin, datetime) or isinstance(end, datetime):
            return begin, end
        days = (end - begin).days
        at = {
            "early": (0, days // 3 or 1),
            "mid": (days // 3, 2 * days // 3 or 1),
            "late": (2 * days // 3, days),
            "half1": (0, days // 2 or 1),
            "half2": (days // 2, days),
            "day1": (0, 1),
            "day-1": (days - 1, days),
            "week-1": (max(0, days - 7), days),
        }.get(part)
        if part == "week":
            return week(begin)
        if at is None:
            number = int(part.removeprefix("week"))
            at = (7 * number - 7, min(7 * number, days))
        return begin + timedelta(days=at[0]), begin + timedelta(days=at[1])

    return resolve_part


def _easter(year: int) -> Period:
    """Good Friday to Easter Monday. Source: the Gregorian computus of Meeus, Jones and Butcher."""
    a, b, c = year % 19, year // 100, year % 100
    h = (19 * a + b - b // 4 - (b - (b + 8) // 25 + 1) // 3 + 15) % 30
    w = (32 + 2 * (b % 4) + 2 * (c // 4) - h - c % 4) % 7
    m = (a + 11 * h + 22 * w) // 451
    number, rest = divmod(h + w - 7 * m + 114, 31)
    return day(date(year, number, rest + 1) - 2 * _ONE, 4)


def _thanksgiving(year: int) -> Period:
    first = date(year, 11, 1)
    return day(first + timedelta(days=(3 - first.weekday()) % 7 + 21))


FEASTS: dict[str, Callable[[int], Period]] = {
    "christmas": lambda year: day(date(year, 12, 24), 3),
    "christmas eve": lambda year: day(date(year, 12, 24)),
    "christmas day": lambda year: day(date(year, 12, 25)),
    "new year's eve": lambda year: day(date(year, 12, 31)),
    "new year": lambda year: day(date(year, 1, 1)),
    "valentine's day": lambda year: day(date(year, 2, 14)),
    "halloween": lambda year: day(date(year, 10, 31)),
    "thanksgiving": _thanksgiving,
    "easter": _easter,
    "national day": lambda year: day(date(year, 10, 1), 7),  # of China: its free week
    # It begins on a new moon between 21 January and 20 February; its free week may end in the last days of February.
    "spring festival": lambda year: (date(year, 1, 20), date(year, 2, 28)),
}
