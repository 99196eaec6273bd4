"""What is due when, found the slow way: by a look at each minute. The judge of `perdure.features.schedules.values`."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from zoneinfo import ZoneInfo

from perdure.features.schedules.values import Missed, QuietHours, ScheduleTiming

MINUTE = timedelta(minutes=1)


@dataclass(frozen=True)
class Dealt:
    """What should become of a due time."""

    due_at: datetime
    outcome: str
    missed: int = 0


@functools.lru_cache(maxsize=4_096)
def first_minute(day: date, of_day: time, zone: str) -> datetime:
    """The first minute of a day, or after it, at which the clock shows this time or a later one."""
    here, wall = ZoneInfo(zone), datetime.combine(day, of_day)
    moment = datetime.combine(day, time(), UTC) - timedelta(hours=15)
    while moment.astimezone(here).replace(tzinfo=None) < wall:
        moment += MINUTE
    return moment


def slow_due_times(timing: ScheduleTiming, *, until: datetime) -> Sequence[datetime]:
    """All due times up to a time. Cron: only fixed times of day (`M H * * *`) and steps of minutes (`*/N * * * *`)."""
    quiet, moments = timing.quiet, sorted(_slow_times(timing, until))
    if quiet is not None:
        periods = [(moment, _quiet_end(quiet, timing.timezone, moment)) for moment in moments]
        moments = [end or moment for moment, end in periods if end is None or quiet.then == "move"]
    return [one for one in sorted(set(moments)) if one <= until and (timing.ends_at is None or one <= timing.ends_at)]


def _slow_times(timing: ScheduleTiming, until: datetime) -> Iterator[datetime]:
    if timing.at is not None:
        yield timing.at
    elif timing.every_s is not None:
        moment = timing.starts_at
        while moment <= until:
            yield moment
            moment += timedelta(seconds=timing.every_s)
    else:
        minutes, hours = (timing.cron or "").split()[:2]
        here = ZoneInfo(timing.timezone)
        if minutes.startswith("*/"):
            moment = timing.starts_at.replace(second=0, microsecond=0)
            while moment <= until:
                if moment.astimezone(here).minute % int(minutes[2:]) == 0 and moment >= timing.starts_at:
                    yield moment
                moment += MINUTE
            return
        day = timing.starts_at.astimezone(here).date() - timedelta(days=1)
        while (moment := first_minute(day, time(int(hours), int(minutes)), timing.timezone)) <= until:
            if moment >= timing.starts_at:
                yield moment
            day += timedelta(days=1)


def _quiet_end(quiet: QuietHours, zone: str, moment: datetime) -> datetime | None:
    """The end of the quiet hours that hold a moment."""
    today = moment.astimezone(ZoneInfo(zone)).date()
    for day in (today - timedelta(days=1), today):
        start = first_minute(day, quiet.start, zone)
        end = first_minute(day + timedelta(days=quiet.end <= quiet.start), quiet.end, zone)
        if start <= moment < end:
            return end
    return None


def slow_policy(
    due: Sequence[datetime],
    looks: Sequence[datetime],
    *,
    missed: Missed,
    limit: int,
    grace: timedelta,
    max_firings: int | None = None,
) -> list[Dealt]:
    """What should become of due times, if somebody looks at these times, in this order, and never before."""
    dealt: list[Dealt] = []
    last: datetime | None = None
    for now in looks:
        fired = sum(one.outcome == "fired" for one in dealt)
        waiting = [one for one in due if one <= now and (last is None or one > last)]
        if not waiting or (max_firings is not None and fired >= max_firings):
            continue
        last = waiting[-1]
        rows: list[Dealt] = []
        if missed == "once":
            rows = [Dealt(waiting[0], "fired", len(waiting) - 1)]
        elif missed == "all":
            passed = len(waiting) - limit
            rows = [Dealt(waiting[0], "missed", passed)] if passed > 0 else []
            rows += [Dealt(one, "fired") for one in waiting[max(0, passed) :]]
        else:
            punctual = now - waiting[-1] <= grace
            passed = len(waiting) - punctual
            rows = [Dealt(waiting[0], "missed", passed)] if passed else []
            rows += [Dealt(waiting[-1], "fired")] if punctual else []
        for row in rows:
            if row.outcome == "missed" or max_firings is None or fired < max_firings:
                dealt.append(row)
            fired += row.outcome == "fired"
    return dealt
