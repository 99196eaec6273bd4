"""Schedules: when an agent is woken by itself, and what is due at a given time. Pure functions of values.

Due times are instants in UTC. A time of day that daylight saving skips stands for the first moment after the gap, one
that comes twice for its first occurrence. What counts in hours and minutes (an interval, a cron expression with `*` in
its hours or minutes) goes on by elapsed time.
"""

from __future__ import annotations

import functools
import re
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from itertools import islice, pairwise, takewhile
from typing import Any, Literal

from perdure.core.errors import ScheduleInvalid
from perdure.core.ids import AgentId, RunId, ScheduleId
from perdure.core.incoming.zones import check_zone
from perdure.core.messages import Image, Role, Text
from perdure.core.runs import Callback
from perdure.core.text.forms import in_name_form
from perdure.core.text.reprs import short_repr
from perdure.core.text.zones import zone

Missed = Literal["skip", "once", "all"]
"""What becomes of due times at which nobody could fire: none is made up for, one is for all of them, or each is."""

InQuietHours = Literal["move", "skip"]
"""Whether what is due in quiet hours is fired once at their end, or not at all."""

ScheduleStatus = Literal["active", "paused", "ended", "cancelled"]
Action = Literal["message", "companion"]
ScheduleKind = Literal["at", "every", "cron"]
Outcome = Literal["fired", "missed", "nothing_new", "failed"]
"""A run was begun; the time was passed over; the companion had nothing to read; nothing could be begun."""

MISSED_COUNTED = 1_000
"""Missed due times are counted up to this."""
MISSED_LIMIT_MAX = 100
"""The most missed due times that are made up for one by one."""

INTERVAL_MAX_S = 10 * 366 * 86_400

_TICK = timedelta(microseconds=1)
"""The least step of a datetime: due times behind `moment - _TICK` include `moment`."""
_MINUTE = timedelta(minutes=1)
_FAR = timedelta(days=100 * 366)
_QUIET_NIGHTS = 1_000
"""How many due times in a row may lie in quiet hours before the search for another one ends."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QuietHours:
    """When nothing is fired, each day in the schedule's zone: from `start`, before `end`, maybe of the next day."""

    start: time
    end: time
    then: InQuietHours = "move"


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleTiming:
    """When something is due. Exactly one of `at`, `every_s` and `cron` is given.

    Args:
        at: a time, once.
        every_s: seconds from one due time to the next; the first is `starts_at`.
        cron: five fields, or a name such as @daily, in the zone `timezone`.
        starts_at, ends_at: nothing is due before or after these.
        max_firings: how often it is fired at most; None: without limit.
        missed: what becomes of due times at which nobody could fire, see `Missed`.
        missed_limit: how many missed due times, the newest, are made up for with the policy `all`.
        quiet: hours at which nothing is fired.
    """

    at: datetime | None = None
    every_s: int | None = None
    cron: str | None = None
    timezone: str = "UTC"
    starts_at: datetime
    ends_at: datetime | None = None
    max_firings: int | None = None
    missed: Missed = "once"
    missed_limit: int = 10
    quiet: QuietHours | None = None

    @property
    def kind(self) -> ScheduleKind:
        """Which of its three fields defines the due times."""
        return "at" if self.at is not None else "every" if self.every_s is not None else "cron"


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduledMessage:
    """A message of a schedule. One of the role `system` is sent in an envelope that names the schedule. `name` and
    `sender_id` are those of who speaks, `otid` is the client's own id of the message."""

    parts: tuple[Text | Image, ...]
    role: Role = "user"
    name: str | None = None
    otid: str | None = None
    sender_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
@in_name_form("name")
class Schedule:
    """Messages to an agent that are sent by themselves.

    Args:
        seq: its number among the agent's schedules.
        action: what is done at a due time: `message` sends the messages, `companion` wakes the agent's companion.
        made_by: a person or program from outside, or the agent itself.
        conversation_seq: the number of the agent's conversation in which the messages are sent.
        next_at: the next due time; None: there is none.
        firings: how often it was fired.
        max_steps: the model calls of each run; None: the setting.
        form: in which form a client gets a run's messages, as `RunOptions` has it.
    """

    __repr__ = short_repr("id", "name", "status", "next_at")

    id: ScheduleId
    agent_id: AgentId
    seq: int = 0
    name: str = ""
    timing: ScheduleTiming
    action: Action = "message"
    messages: tuple[ScheduledMessage, ...] = ()
    conversation_seq: int = 0
    made_by: Literal["user", "agent"] = "user"
    status: ScheduleStatus = "active"
    next_at: datetime | None = None
    firings: int = 0
    max_steps: int | None = None
    callback: Callback | None = None
    form: Mapping[str, Any] = field(default_factory=dict)
    created_at: datetime
    updated_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Firing:
    """What became of a due time.

    Args:
        seq: its number among the schedule's firings, from 1.
        fired_at: when that was decided.
        run_id: the run that was begun; None: none was, and `reason` says why.
        missed: how many due times were passed over with this one, counted up to `MISSED_COUNTED`.
    """

    seq: int = 0
    due_at: datetime
    fired_at: datetime
    outcome: Outcome
    run_id: RunId | None = None
    missed: int = 0
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class DuePlan:
    """What to do about the due time `due_at` of a schedule.

    Args:
        fires: whether it is fired; else it is passed over.
        missed: how many due times are passed over with it.
        next_at: the due time that comes then; None: the schedule ends.
        after_failure: the same if firing fails, which does not count towards `max_firings`.
    """

    due_at: datetime
    fires: bool
    missed: int
    next_at: datetime | None
    after_failure: datetime | None = None


# --- due times


def due_times(timing: ScheduleTiming, after: datetime) -> Iterator[datetime]:
    """Yield the due times behind `after`, in order, each once, without an end where there is none. Those in quiet hours
    are merged into one at the end of these hours, or left out, as `QuietHours.then` says."""
    tz, quiet, last, skipped = zone(timing.timezone), timing.quiet, after, 0
    begin = after
    if quiet is not None and quiet.then == "move" and (period := quiet_period(quiet, tz, after)) is not None:
        begin = period[0] - _TICK  # what was due in them is still to come
    while (moment := _next_time(timing, tz, begin)) is not None:
        period = None if quiet is None else quiet_period(quiet, tz, moment)
        begin = moment if period is None else period[1] - _TICK
        if period is not None:
            if quiet is not None and quiet.then == "skip":
                skipped += 1
                if skipped > _QUIET_NIGHTS:
                    return
                continue
            moment = period[1]
        if timing.ends_at is not None and moment > timing.ends_at:
            return
        if moment > last:
            last, skipped = moment, 0
            yield moment


def plan_due(
    timing: ScheduleTiming, *, next_at: datetime, firings: int, now: datetime, grace_s: float
) -> DuePlan | None:
    """What to do now about a schedule whose next due time is `next_at`; None: nothing is due. It was fired `firings`
    times before. A due time is missed if it is more than `grace_s` seconds ago, or the next one has come too. Each plan
    deals with `next_at` and leads to a later due time, so whatever the clock does, none is dealt with twice."""
    if next_at > now:
        return None
    second = next(due_times(timing, next_at), None)
    late = (now - next_at).total_seconds() > grace_s
    if not late and (second is None or second > now):
        return _plan_to_fire(timing, next_at, firings, missed=0, following=second)
    if timing.missed == "once":
        following = next(due_times(timing, max(now, next_at)), None)
        return _plan_to_fire(timing, next_at, firings, missed=_count_due(timing, next_at, now), following=following)
    if timing.missed == "all":
        if _count_due(timing, next_at, now, most=timing.missed_limit) < timing.missed_limit:
            return _plan_to_fire(timing, next_at, firings, missed=0, following=second)
        newest = _newest_due(timing, next_at, now, timing.missed_limit)
        return DuePlan(due_at=next_at, fires=False, missed=_count_passed(timing, next_at, newest[0]), next_at=newest[0])
    punctual = _newest_due(timing, max(next_at, now - timedelta(seconds=grace_s) - _TICK), now, 1)
    following = punctual[0] if punctual else next(due_times(timing, now), None)
    return DuePlan(
        due_at=next_at, fires=False, missed=_count_passed(timing, next_at, following or now), next_at=following
    )


def _plan_to_fire(
    timing: ScheduleTiming, due_at: datetime, firings: int, *, missed: int, following: datetime | None
) -> DuePlan:
    """Return the plan that fires `due_at`; then comes `following`, or nothing after the last of `max_firings`."""
    is_last = timing.max_firings is not None and firings + 1 >= timing.max_firings
    next_at = None if is_last else following
    return DuePlan(due_at=due_at, fires=True, missed=missed, next_at=next_at, after_failure=following)


def _count_due(timing: ScheduleTiming, after: datetime, until: datetime, most: int = MISSED_COUNTED) -> int:
    """Return how many due times lie after `after` and not after `until`; at most `most`."""
    return sum(1 for _ in islice(takewhile(lambda moment: moment <= until, due_times(timing, after)), most))


def _count_passed(timing: ScheduleTiming, first: datetime, following: datetime) -> int:
    """Return how many due times a jump to `following` passes over: `first`, and those between the two."""
    return min(MISSED_COUNTED, 1 + _count_due(timing, first, following - _TICK))


def _newest_due(timing: ScheduleTiming, after: datetime, until: datetime, count: int) -> Sequence[datetime]:
    """Return the newest due times, at most `count`, after `after` and not after `until`, oldest first."""
    span = _MINUTE * count
    while True:
        start = max(after, until - span)
        found = deque(takewhile(lambda moment: moment <= until, due_times(timing, start)), maxlen=count)
        if len(found) == count or start == after:
            return found
        span *= 4  # not all at once: there may be years of them


def _next_time(timing: ScheduleTiming, tz: tzinfo, after: datetime) -> datetime | None:
    """Return the first due time after `after` in the timing's zone `tz`, whatever the quiet hours; None: none."""
    if timing.at is not None:
        return timing.at if timing.at > after else None
    if timing.every_s is not None:
        if after < timing.starts_at:
            return timing.starts_at
        step = timedelta(seconds=timing.every_s)
        return timing.starts_at + ((after - timing.starts_at) // step + 1) * step
    after = max(after, timing.starts_at - _TICK)
    # A time that comes twice may lead back to its first occurrence.
    found = (moment.astimezone(UTC) for moment in _cron_times(timing.cron or "", after.astimezone(tz)))
    return next((moment for moment in found if moment > after), None)


_CRON_NAMES = {
    "@hourly": "0 * * * *",
    **dict.fromkeys(("@daily", "@midnight"), "0 0 * * *"),
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    **dict.fromkeys(("@yearly", "@annually"), "0 0 1 1 *"),
}
"""Names that stand for all five fields, as in Debian's cron."""


def _cron_times(expression: str, after: datetime) -> Iterator[datetime]:
    """Return the times of a cron expression after `after`, in its zone, to a 50 years' gap. Raises: ScheduleInvalid."""
    from cronsim import CronSim, CronSimError  # imported at the first cron schedule

    try:
        times: Iterator[datetime] = CronSim(_CRON_NAMES.get(expression, expression), after)
    except CronSimError as error:
        raise ScheduleInvalid(
            f"cron expression {expression!r:.80} can't be read ({str(error).lower()}): give minute, hour, day of month,"
            " month and day of week, such as '0 9 * * MON-FRI' for nine o'clock on workdays"
        ) from error
    return times


def quiet_period(quiet: QuietHours, tz: tzinfo, moment: datetime) -> tuple[datetime, datetime] | None:
    """Return start and end, in UTC, of the quiet hours that hold a moment; None: it is in none."""
    today = moment.astimezone(tz).date()
    for day in (today, today - timedelta(days=1)):
        period = _quiet_hours_of(quiet, tz, day)
        if period[0] <= moment < period[1]:
            return period
    return None


@functools.lru_cache(maxsize=1_024)
def _quiet_hours_of(quiet: QuietHours, tz: tzinfo, day: date) -> tuple[datetime, datetime]:
    """Return start and end, in UTC, of the quiet hours that begin on a day."""
    end_day = day if quiet.end > quiet.start else day + timedelta(days=1)
    return (instant(datetime.combine(day, quiet.start), tz), instant(datetime.combine(end_day, quiet.end), tz))


def instant(local: datetime, tz: tzinfo) -> datetime:
    """Return the UTC time at which clocks of a zone show `local`, a datetime without a zone. If clocks show it twice,
    the first time; if daylight saving skips it, the first moment after the gap."""
    first = local.replace(tzinfo=tz, fold=0).astimezone(UTC)
    if first.astimezone(tz).replace(tzinfo=None) == local:
        return first
    early, late = local.replace(tzinfo=tz, fold=1).astimezone(UTC), first  # the clock jumps between these
    offset = late.astimezone(tz).utcoffset()
    while late - early > _TICK:  # bisection
        middle = early + (late - early) / 2
        early, late = (early, middle) if middle.astimezone(tz).utcoffset() == offset else (middle, late)
    return late


# --- checks


def check_timing(timing: ScheduleTiming, *, now: datetime, interval_s: int) -> datetime:
    """Check a new timing, whose due times lie at least `interval_s` seconds apart, and return the first of these.
    Raises: TimeZoneUnknown, ScheduleInvalid."""
    check_zone(timing.timezone)
    if sum(value is not None for value in (timing.at, timing.every_s, timing.cron)) != 1:
        raise ScheduleInvalid("a schedule is either at a time, or every so many seconds, or by cron: give exactly one")
    _check_numbers(timing)
    if timing.quiet is not None and timing.quiet.start == timing.quiet.end:
        raise ScheduleInvalid(f"quiet hours begin and end at {timing.quiet.start:%H:%M}: give two times")
    for moment in (timing.at, timing.starts_at, timing.ends_at):
        if moment is not None and abs(moment - now) > _FAR:
            raise ScheduleInvalid(f"{moment.isoformat(timespec='seconds')} is a century away: give a nearer time")
    if timing.at is not None and timing.at <= now:
        raise ScheduleInvalid(
            f"{timing.at.isoformat(timespec='seconds')} is in the past, it is"
            f" {now.isoformat(timespec='seconds')} now: give a later time"
        )
    if timing.every_s is not None and timing.every_s < interval_s:
        raise ScheduleInvalid(
            f"an interval of {timing.every_s} s is too short: give at least {interval_s} s, or change"
            " PERDURE_SCHEDULE_INTERVAL_S"
        )
    if timing.cron is not None:
        _check_cron(timing, timing.cron, now=now, interval_s=interval_s)
    first = next(due_times(timing, now), None)
    if first is None:
        reason = "it ends before its first time" if timing.ends_at else "all of its times lie in its quiet hours"
        raise ScheduleInvalid(f"the schedule would never fire: {reason}")
    return first


def _check_numbers(timing: ScheduleTiming) -> None:
    """Check the numbers and choices of a timing, whose types a caller may not keep. Raises: ScheduleInvalid."""
    for name, least, most in (
        ("every_s", 1, INTERVAL_MAX_S),
        ("max_firings", 1, 10**9),
        ("missed_limit", 1, MISSED_LIMIT_MAX),
    ):
        value = getattr(timing, name)
        if value is not None and not (type(value) is int and least <= value <= most):
            raise ScheduleInvalid(f"{name} is {value!r:.80}: give a whole number from {least:,} to {most:,}")
    if timing.missed not in ("skip", "once", "all"):
        raise ScheduleInvalid(f"missed is {timing.missed!r:.80}: it can be 'skip', 'once' or 'all'")
    if timing.quiet is not None and timing.quiet.then not in ("move", "skip"):
        raise ScheduleInvalid(f"what becomes of quiet hours is {timing.quiet.then!r:.80}: it can be 'move' or 'skip'")


def _check_cron(timing: ScheduleTiming, expression: str, *, now: datetime, interval_s: int) -> None:
    """Check that a cron expression fires, and not too often. Raises: ScheduleInvalid."""
    if expression not in _CRON_NAMES and (len(expression) > 200 or len(expression.split()) != 5):
        raise ScheduleInvalid(
            f"cron expression {expression!r:.80} has {len(expression.split())} fields: give five, minute, hour, day of"
            f" month, month and day of week, such as '0 9 * * MON-FRI', or {', '.join(_CRON_NAMES)}"
        )
    tz = zone(timing.timezone)
    times = list(islice(_cron_times(expression, now.astimezone(tz)), 10))
    if not times:
        raise ScheduleInvalid(f"cron expression {expression!r:.80} never fires in the next 50 years: change its days")
    gaps = [(after - before).total_seconds() for before, after in pairwise(times)]
    if gaps and 0 < min(gaps) < interval_s:
        raise ScheduleInvalid(
            f"cron expression {expression!r:.80} fires every {min(gaps):g} s, which is too often: leave at least"
            f" {interval_s} s, or change PERDURE_SCHEDULE_INTERVAL_S"
        )


# --- texts

_UNITS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 604_800}
_DURATION = re.compile(
    r"(?:and\s+)?(\d{1,9})\s*(?:(s)(?:ecs?|econds?)?|(m)(?:ins?|inutes?)?|(h)(?:rs?|ours?)?|(d)(?:ays?)?|(w)(?:eeks?)?)\s*"
)
_DURATIONS = re.compile(f"(?:{_DURATION.pattern})+")
_TIME_OF_DAY = re.compile(r"(\d{1,2}):(\d{2})")


def parse_duration(text: str) -> int:
    """Return the seconds of a text such as `90s`, `30 minutes`, `1h30m`, `2d` or `1w`. Raises: ScheduleInvalid."""
    lower = text.strip().lower()
    if not _DURATIONS.fullmatch(lower) or re.search(r"\dM\b", text):  # an M may mean months
        raise ScheduleInvalid(
            f"{text!r:.80} is not a duration: give a number with s, m, h, d or w, such as 30m or 1d; cron has months"
        )
    return sum(int(one[1]) * _UNITS[one[one.lastindex or 0]] for one in _DURATION.finditer(lower))


def parse_interval(every: str | int | timedelta) -> int:
    """Return the seconds of an interval: a text for `parse_duration`, seconds, a timedelta. Raises: ScheduleInvalid."""
    seconds: object = parse_duration(every) if isinstance(every, str) else every
    if isinstance(every, timedelta) and not every.microseconds:
        seconds = round(every.total_seconds())
    if type(seconds) is not int or not 1 <= seconds <= INTERVAL_MAX_S:
        raise ScheduleInvalid(
            f"every is {every!r:.80}: give a text such as '30m', a timedelta, or a number of seconds; whole seconds, at"
            f" most {INTERVAL_MAX_S:,}"
        )
    return seconds


def parse_quiet(text: str, then: InQuietHours = "move") -> QuietHours:
    """Return the quiet hours of a text such as `22:00-07:00`. Raises: ScheduleInvalid."""
    if not isinstance(text, str):
        raise ScheduleInvalid(f"quiet hours are {text!r:.80}: give two times of day, such as 22:00-07:00")
    start, _, end = text.partition("-")
    return QuietHours(start=_time_of_day(start, text), end=_time_of_day(end, text), then=then)


def _time_of_day(text: str, whole: str) -> time:
    """Return one of the two times of quiet hours; `whole` is their text, for the error. Raises: ScheduleInvalid."""
    match = _TIME_OF_DAY.fullmatch(text.strip())
    if match is None or int(match[1]) > 23 or int(match[2]) > 59:
        raise ScheduleInvalid(f"quiet hours are {whole!r:.80}: give two times of day, such as 22:00-07:00")
    return time(int(match[1]), int(match[2]))


def parse_moment(name: str, text: str, timezone: str, *, now: datetime, end: bool = False) -> datetime:
    """Return the instant, in UTC, that a text names.

    Args:
        name: the field of the text.
        text: a date and time, `2026-11-24T09:00`; a time of day, the next one; a date alone, its first moment; or a
            duration from now, `in 20m`.
        timezone: the zone of a text that names none.
        end: a date alone means its last moment.
    Raises: TimeZoneUnknown, ScheduleInvalid.
    """
    check_zone(timezone)
    try:
        return _parse_moment(name, text, zone(timezone), now=now, end=end)
    except OverflowError as error:
        raise ScheduleInvalid(f"{name} is {text!r:.80}, out of the calendar: give a nearer time") from error


def is_day(text: str) -> bool:
    """Return whether a text is a date without a time, such as `2026-11-24`."""
    try:
        date.fromisoformat(text)
    except ValueError:
        return False
    return True


def _parse_moment(name: str, text: str, tz: tzinfo, *, now: datetime, end: bool) -> datetime:
    """Parse a text as `parse_moment` says. Raises: ScheduleInvalid; OverflowError: before the year 1 or after 9999."""
    words = text.strip()
    if words.lower().startswith("in "):
        return now + timedelta(seconds=parse_duration(words[3:]))
    if (match := _TIME_OF_DAY.fullmatch(words)) and int(match[1]) < 24 and int(match[2]) < 60:
        of_day, today = time(int(match[1]), int(match[2])), now.astimezone(tz).date()
        moments = (instant(datetime.combine(today + timedelta(days=day), of_day), tz) for day in range(3))
        return next(moment for moment in moments if moment > now)
    try:
        moment = datetime.fromisoformat(words)
    except ValueError as error:
        raise ScheduleInvalid(
            f"{name} is {text!r:.80}: give a time such as 2026-11-24T09:00, 09:00, or 'in 20m'"
        ) from error
    if end and is_day(words):
        moment = datetime.combine(moment, time.max)
    return instant(moment, tz) if moment.tzinfo is None else moment.astimezone(UTC)
