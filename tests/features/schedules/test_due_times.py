"""When schedules are due: every due time once, in order, whatever the clock and daylight saving do."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, time, timedelta
from itertools import islice, takewhile
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.core.errors import ScheduleInvalid, TimeZoneUnknown
from perdure.core.text.zones import zone
from perdure.features.schedules.values import (
    QuietHours,
    ScheduleTiming,
    check_timing,
    due_times,
    instant,
    parse_duration,
    parse_moment,
    parse_quiet,
    plan_due,
)
from tests.support.due_times import Dealt, slow_due_times, slow_policy

NOW = datetime(2026, 3, 7, 12, tzinfo=UTC)
GRACE = timedelta(minutes=5)
SPRING, AUTUMN = datetime(2026, 3, 8, 7, tzinfo=UTC), datetime(2026, 11, 1, 6, tzinfo=UTC)
"""When the clocks of New York jump."""

ZONES = ("UTC", "America/New_York", "Europe/Berlin", "America/Santiago", "Asia/Kolkata", "Africa/Casablanca")
STARTS = [
    *(datetime(2026, 3, 6, tzinfo=UTC), datetime(2026, 3, 27, tzinfo=UTC), datetime(2026, 10, 23, tzinfo=UTC)),
    *(datetime(2026, 10, 30, tzinfo=UTC), datetime(2026, 4, 3, tzinfo=UTC), datetime(2026, 9, 4, tzinfo=UTC)),
]
"""A day or two before clocks jump somewhere."""

times_of_day = st.builds(time, st.integers(0, 23), st.sampled_from((0, 15, 30, 45)))
quiet_hours = st.builds(
    lambda start, hours, then: QuietHours(
        start=start, end=(datetime.combine(NOW, start) + timedelta(minutes=15 * hours)).time(), then=then
    ),
    times_of_day,
    st.integers(1, 80),
    st.sampled_from(("move", "skip")),
)


@st.composite
def timings(draw: st.DrawFn, *, least_minutes: int = 30) -> ScheduleTiming:
    """Timings that the slow way knows, in a zone and at a season where clocks may jump."""
    starts_at = draw(st.sampled_from(STARTS)) + timedelta(minutes=draw(st.integers(0, 1_440)))
    when: dict[str, Any] = draw(
        st.one_of(
            st.builds(lambda hour, minute: {"cron": f"{minute} {hour} * * *"}, st.integers(0, 23), st.integers(0, 59)),
            st.sampled_from([{"cron": f"*/{step} * * * *"} for step in (30, 20, 45) if step >= least_minutes]),
            st.builds(lambda minutes: {"every_s": 60 * minutes}, st.integers(least_minutes, 3_000)),
        )
    )
    ends_at = draw(st.none() | st.integers(60, 8_000).map(lambda minutes: starts_at + timedelta(minutes=minutes)))
    quiet = draw(st.none() | quiet_hours)
    return ScheduleTiming(
        **when, timezone=draw(st.sampled_from(ZONES)), starts_at=starts_at, ends_at=ends_at, quiet=quiet
    )


def listed(timing: ScheduleTiming, after: datetime, until: datetime) -> list[datetime]:
    """The due times between two times."""
    return list(takewhile(lambda moment: moment <= until, due_times(timing, after)))


def local(timing: ScheduleTiming, after: datetime, count: int) -> list[str]:
    """The next due times as clocks show them."""
    here = zone(timing.timezone)
    return [f"{moment.astimezone(here):%d %H:%M %z}" for moment in islice(due_times(timing, after), count)]


@given(timings())
def test_due_times_are_those_of_the_clock(timing: ScheduleTiming) -> None:
    """For intervals and cron, over daylight saving and quiet hours: as if somebody looked at every minute."""
    until = timing.starts_at + timedelta(days=6)

    assert listed(timing, timing.starts_at - timedelta(days=2), until) == list(slow_due_times(timing, until=until))


@given(timings(), st.integers(0, 30))
def test_due_times_go_on_from_any_of_them(timing: ScheduleTiming, place: int) -> None:
    """What comes next depends on the last due time only, so nothing has to be remembered."""
    times = list(islice(due_times(timing, timing.starts_at - timedelta(days=1)), 40))

    assert times == sorted(set(times))
    if place < len(times):
        assert list(islice(due_times(timing, times[place]), 39 - place)) == times[place + 1 :]


@pytest.mark.slow
@given(
    timings(least_minutes=45),
    st.lists(st.integers(-600, 2_500), min_size=1, max_size=12),
    st.sampled_from(("skip", "once", "all")),
    st.integers(1, 5),
    st.none() | st.integers(1, 6),
)
def test_each_due_time_is_dealt_with_once(
    timing: ScheduleTiming, jumps: Sequence[int], missed: Any, limit: int, max_firings: int | None
) -> None:
    """A clock that jumps to and fro: what is fired, and what is passed over, is what the policy says."""
    due = slow_due_times(timing, until=timing.starts_at + timedelta(days=25))
    timing = ScheduleTiming(
        **{name: getattr(timing, name) for name in timing.__slots__}
        | {"missed": missed, "missed_limit": limit, "max_firings": max_firings}
    )
    now, looks, dealt, firings = timing.starts_at, list[datetime](), list[Dealt](), 0
    next_at = next(due_times(timing, timing.starts_at - timedelta(microseconds=1)), None)
    for jump in jumps:
        now += timedelta(minutes=jump)
        looks.append(now)
        while next_at is not None:
            plan = plan_due(timing, next_at=next_at, firings=firings, now=now, grace_s=GRACE.total_seconds())
            if plan is None:
                break
            assert plan.due_at == next_at and (plan.next_at is None or plan.next_at > next_at)
            dealt.append(Dealt(plan.due_at, "fired" if plan.fires else "missed", plan.missed))
            firings += plan.fires
            next_at = plan.next_at

    assert dealt == slow_policy(due, looks, missed=missed, limit=limit, grace=GRACE, max_firings=max_firings)


def test_a_skipped_hour_stands_for_the_moment_after_it() -> None:
    """And a repeated one for its first occurrence; what counts in minutes goes on by elapsed time."""
    daily = ScheduleTiming(cron="30 2 * * *", timezone="America/New_York", starts_at=NOW)
    twice = ScheduleTiming(cron="30 1 * * *", timezone="America/New_York", starts_at=NOW)
    steps = ScheduleTiming(cron="*/30 * * * *", timezone="America/New_York", starts_at=NOW)

    assert local(daily, SPRING - timedelta(hours=9), 2) == ["08 03:00 -0400", "09 02:30 -0400"]
    assert local(twice, AUTUMN - timedelta(hours=9), 2) == ["01 01:30 -0400", "02 01:30 -0500"]
    assert local(steps, AUTUMN - timedelta(minutes=45), 4) == [
        *("01 01:30 -0400", "01 01:00 -0500", "01 01:30 -0500", "01 02:00 -0500")
    ]
    assert local(twice, AUTUMN + timedelta(minutes=10), 1) == ["02 01:30 -0500"]
    assert instant(datetime(2026, 3, 8, 2, 30), zone("America/New_York")) == SPRING
    assert instant(datetime(2026, 11, 1, 1, 30), zone("America/New_York")) == AUTUMN - timedelta(minutes=30)


def test_years_of_missed_times_are_counted_up_to_a_limit() -> None:
    """A plan does not go through all of them."""
    timing = ScheduleTiming(cron="* * * * *", starts_at=NOW, missed="all", missed_limit=2)
    now = NOW + timedelta(days=900)
    plan = plan_due(timing, next_at=NOW, firings=0, now=now, grace_s=60)

    assert plan is not None
    assert (plan.fires, plan.missed, plan.next_at) == (False, 1_000, now - timedelta(minutes=1))


@pytest.mark.parametrize(
    ("when", "words"),
    [
        ({}, "exactly one"),
        ({"at": NOW, "cron": "* * * * *"}, "exactly one"),
        ({"at": NOW}, "in the past"),
        ({"at": NOW + timedelta(days=80_000)}, "a century"),
        ({"every_s": 5}, "at least 60 s"),
        ({"every_s": True}, "whole number"),
        ({"every_s": 3_600, "ends_at": NOW}, "never fire"),
        ({"cron": "61 * * * *"}, "bad minute"),
        ({"cron": "* * * *"}, "4 fields"),
        ({"cron": "* * * * * *"}, "6 fields"),
        ({"cron": "@reboot"}, "or @hourly, @daily"),
        ({"cron": "0 0 30 2 *"}, "bad day-of-month"),
        ({"cron": "* * */20 * 1L"}, "never fires"),
        ({"cron": "0 3 * * *", "quiet": parse_quiet("22:00-07:00", "skip")}, "quiet hours"),
        ({"every_s": 60, "quiet": parse_quiet("07:00-07:00")}, "two times"),
        ({"every_s": 60, "missed": "never"}, "'skip', 'once' or 'all'"),
        ({"every_s": 60, "missed_limit": 101}, "missed_limit"),
        ({"every_s": 60, "max_firings": 0}, "max_firings"),
    ],
)
def test_a_schedule_that_makes_no_sense_is_refused(when: dict[str, Any], words: str) -> None:
    """With a sentence that says what is wrong."""
    with pytest.raises(ScheduleInvalid, match=words):
        check_timing(ScheduleTiming(**{"starts_at": NOW + timedelta(minutes=1), **when}), now=NOW, interval_s=60)


@pytest.mark.parametrize(
    ("name", "fields"),
    [
        ("@hourly", "0 * * * *"),
        ("@daily", "0 0 * * *"),
        ("@midnight", "0 0 * * *"),
        ("@weekly", "0 0 * * SUN"),
        ("@monthly", "0 0 1 * *"),
        ("@yearly", "0 0 1 JAN *"),
        ("@annually", "0 0 1 JAN *"),
    ],
)
def test_a_name_stands_for_the_fields_of_a_cron(name: str, fields: str) -> None:
    named, plain = (
        ScheduleTiming(cron=cron, timezone="Europe/Berlin", starts_at=NOW, missed="all") for cron in (name, fields)
    )

    assert check_timing(named, now=NOW, interval_s=60) == check_timing(plain, now=NOW, interval_s=60)
    assert local(named, NOW, 3) == local(plain, NOW, 3)


def test_a_cron_that_fires_too_often_is_refused() -> None:
    """Its shortest gap counts, not the mean."""
    timing = ScheduleTiming(cron="0,5 9 * * *", starts_at=NOW)
    with pytest.raises(ScheduleInvalid, match="every 300 s"):
        check_timing(timing, now=NOW, interval_s=600)

    assert check_timing(timing, now=NOW, interval_s=300) == datetime(2026, 3, 8, 9, tzinfo=UTC)


@pytest.mark.parametrize(
    ("name", "near"),
    [("Europe/Berln", "Europe/Berlin"), ("new york", "America/New_York"), ("Mars", None), ("", None), (7, None)],
)
def test_an_unknown_zone_is_refused_with_near_ones(name: Any, near: str | None) -> None:
    """Also by the name of the city alone."""
    with pytest.raises(TimeZoneUnknown) as caught:
        check_timing(ScheduleTiming(every_s=60, timezone=name, starts_at=NOW), now=NOW, interval_s=60)

    assert near is None or near in caught.value.near


def test_texts_are_read_as_times() -> None:
    """Times of day, dates, durations and quiet hours; nonsense is refused."""
    assert parse_moment("at", "in 20m", "UTC", now=NOW) == NOW + timedelta(minutes=20)
    assert parse_moment("at", "11:30", "UTC", now=NOW) == datetime(2026, 3, 8, 11, 30, tzinfo=UTC)
    assert parse_moment("at", "02:30", "America/New_York", now=NOW) == SPRING
    assert parse_moment("at", "2026-11-24T09:00", "Europe/Rome", now=NOW) == datetime(2026, 11, 24, 8, tzinfo=UTC)
    assert parse_moment("at", "2026-11-24T09:00+05:30", "Europe/Rome", now=NOW) == datetime(
        2026, 11, 24, 3, 30, tzinfo=UTC
    )
    assert [parse_duration(text) for text in (" 90s", "5 min", "2 hours", "1d", "1w", "1h30m", "1 day and 2 h")] == [
        90,
        300,
        7_200,
        86_400,
        604_800,
        5_400,
        93_600,
    ]
    assert parse_quiet("22:00-07:30") == QuietHours(start=time(22), end=time(7, 30))
    with pytest.raises(ScheduleInvalid):
        parse_moment("at", "soon", "UTC", now=NOW)
    for text in ("1 month x", "1M", "1h and"):  # an M may mean months
        with pytest.raises(ScheduleInvalid):
            parse_duration(text)
    for text in ("22-7", "25:00-07:00", "22:00"):
        with pytest.raises(ScheduleInvalid):
            parse_quiet(text)


def test_a_day_as_an_end_is_its_last_moment() -> None:
    """In the schedule's zone; as a beginning it is its first one."""
    first = parse_moment("at", "2026-11-30", "Europe/Berlin", now=NOW)
    last = parse_moment("at", " 2026-11-30 ", "Europe/Berlin", now=NOW, end=True)
    exact = parse_moment("at", "2026-11-30T00:00", "Europe/Berlin", now=NOW, end=True)

    assert first == exact == datetime(2026, 11, 29, 23, tzinfo=UTC)
    assert last == datetime(2026, 11, 30, 22, 59, 59, 999_999, tzinfo=UTC)
