"""Units of work on schedules."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import islice
from typing import Any, Literal

from perdure.core.errors import InvalidInput, ScheduleInvalid
from perdure.core.ids import AgentId, ScheduleId
from perdure.core.runs import Callback
from perdure.core.text.zones import zone
from perdure.domain.agents.units import COMPANIONS
from perdure.features.schedules import values
from perdure.features.schedules.tables import Schedules
from perdure.storage.tx import Tx

NAME_CHARS = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class NewSchedule:
    """A schedule to create; the fields are those of `Schedule` and `ScheduleTiming`, times and quiet hours also as
    texts. By default the zone is the agent's, and it starts one interval from now if there is an interval, else now."""

    messages: tuple[values.ScheduledMessage, ...]
    name: str = ""
    at: datetime | str | None = None
    every_s: int | None = None
    cron: str | None = None
    timezone: str | None = None
    starts_at: datetime | str | None = None
    ends_at: datetime | str | None = None
    max_firings: int | None = None
    missed: values.Missed = "once"
    missed_limit: int = 10
    quiet: str | None = None
    in_quiet_hours: Literal["move", "skip"] = "move"
    conversation_seq: int = 0
    max_steps: int | None = None
    callback: Callback | None = None
    form: dict[str, Any] = field(default_factory=dict)
    action: values.Action = "message"


def create_schedule(
    tx: Tx,
    schedule_id: ScheduleId,
    agent_id: AgentId,
    new: NewSchedule,
    *,
    made_by: Literal["user", "agent"],
    at: datetime,
) -> values.Schedule:
    """Create a schedule of an agent, and return it. Raises: NotFound: the agent or its conversation; TimeZoneUnknown,
    ScheduleInvalid, TooMany, InvalidInput."""
    if not isinstance(new.name, str) or len(new.name) > NAME_CHARS:
        raise InvalidInput(f"the schedule's name is {new.name!r:.80}: give a text of at most {NAME_CHARS} characters")
    timing = timing_of(new, tx.agents.get(agent_id).timezone, now=at)
    first = values.check_timing(timing, now=at, interval_s=tx.limits.schedule_interval_s)
    tx.conversations.get_by_seq(agent_id, new.conversation_seq)
    if new.action == "companion" and not any(COMPANIONS(tx, agent_id)):
        raise ScheduleInvalid(f"{agent_id} has no companion that a schedule could wake: give it one first")
    return tx.of(Schedules).add(
        values.Schedule(
            id=schedule_id,
            agent_id=agent_id,
            name=new.name.strip(),
            timing=timing,
            action=new.action,
            messages=new.messages,
            conversation_seq=new.conversation_seq,
            made_by=made_by,
            next_at=first,
            max_steps=new.max_steps,
            callback=new.callback,
            form=new.form,
            created_at=at,
            updated_at=at,
        )
    )


def timing_of(new: NewSchedule, agent_timezone: str, *, now: datetime) -> values.ScheduleTiming:
    """Return the checked timing of a new schedule; `agent_timezone` counts where it names no zone. Raises:
    TimeZoneUnknown, ScheduleInvalid, InvalidInput."""
    timezone = agent_timezone if new.timezone is None else new.timezone

    def moment(name: str, value: datetime | str | None, *, end: bool = False) -> datetime | None:
        """Return the instant of a datetime or text, the field `name`; a date alone is its last moment with `end`."""
        if isinstance(value, datetime):
            value = value.isoformat()  # one without a zone is of the schedule's
        if not isinstance(value, str | None):
            raise InvalidInput(f"{name} is {value!r:.80}: give a datetime, or a text such as 2026-11-24T09:00")
        return None if value is None else values.parse_moment(name, value, timezone, now=now, end=end)

    if not isinstance(new.cron, str | None):
        raise ScheduleInvalid(f"cron expression is {new.cron!r:.80}: give a text such as '0 9 * * MON-FRI'")
    starts_at = moment("starts_at", new.starts_at)
    if starts_at is None:
        starts_at = now.replace(microsecond=0)
        if type(new.every_s) is int and 0 < new.every_s < 10**9:
            starts_at = starts_at + timedelta(seconds=new.every_s)
    elif starts_at <= now and new.every_s is not None:
        raise InvalidInput(f"starts_at is {new.starts_at}: the first time of an interval must be in the future")
    return values.ScheduleTiming(
        at=moment("at", new.at),
        every_s=new.every_s,
        cron=None if new.cron is None else " ".join(new.cron.split()),
        timezone=timezone,
        starts_at=starts_at,
        ends_at=moment("ends_at", new.ends_at, end=True),
        max_firings=new.max_firings,
        missed=new.missed,
        missed_limit=new.missed_limit,
        quiet=None if new.quiet is None else values.parse_quiet(new.quiet, new.in_quiet_hours),
    )


def pause_schedule(tx: Tx, schedule: values.Schedule, *, at: datetime) -> values.Schedule:
    """Have a schedule fire no more until it is resumed, and return it. Raises: ScheduleInvalid: it has ended."""
    _check_goes_on(schedule)
    return tx.of(Schedules).put_next(schedule, "paused", None, at=at)


def resume_schedule(tx: Tx, schedule: values.Schedule, *, at: datetime) -> values.Schedule:
    """Let a paused or cancelled schedule fire again from its next due time on, and return it; missed times are not made
    up for. Raises: ScheduleInvalid: it has ended, or nothing is due any more; TooMany; NotFound: its conversation."""
    if schedule.status == "ended":
        _check_goes_on(schedule)
    if schedule.status == "active":
        return schedule
    tx.conversations.get_state(schedule.agent_id, schedule.conversation_seq)
    following = next(iter(values.due_times(schedule.timing, at)), None)
    if following is None:
        raise ScheduleInvalid(f"{schedule.name or schedule.id} has no due time any more: make a new schedule")
    return tx.of(Schedules).put_next(schedule, "active", following, at=at)


def _check_goes_on(schedule: values.Schedule) -> None:
    """Check that a schedule has not ended. Raises: ScheduleInvalid."""
    if schedule.status not in ("active", "paused"):
        raise ScheduleInvalid(f"{schedule.name or schedule.id} is over ({schedule.status}): make a new schedule")


def next_times(schedule: values.Schedule, count: int) -> Sequence[datetime]:
    """Return the next due times of a schedule, at most `count`."""
    if schedule.next_at is None:
        return []
    if schedule.timing.max_firings is not None:
        count = min(count, schedule.timing.max_firings - schedule.firings)
    return [schedule.next_at, *islice(values.due_times(schedule.timing, schedule.next_at), count - 1)]


def describe_timing(timing: values.ScheduleTiming) -> str:
    """Return when a schedule is due, such as `every 2 h (Europe/Rome), not 22:00-07:00`."""
    tz = zone(timing.timezone)
    if timing.at is not None:
        words = f"at {timing.at.astimezone(tz):%Y-%m-%d %H:%M}"
    elif timing.every_s is not None:
        unit_s, unit = next((unit_s, unit) for unit_s, unit in _UNITS if timing.every_s % unit_s == 0)
        words = f"every {timing.every_s // unit_s} {unit}"
    else:
        words = f"cron {timing.cron}"
    quiet = timing.quiet
    except_for = "" if quiet is None else f", not {quiet.start:%H:%M}-{quiet.end:%H:%M}"
    return f"{words} ({timing.timezone}){except_for}"


_UNITS = ((604_800, "w"), (86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"))


def cancel_passes(tx: Tx, agent_id: AgentId, at: datetime) -> None:
    """End the schedules that wake the companion of an agent, which has lost it; `at` is now."""
    tx.of(Schedules).cancel_all(agent_id, "companion", at=at)


def is_due(tx: Tx, at: datetime) -> bool:
    """Return whether any schedule of the store is due at this time."""
    return bool(tx.of(Schedules).list_due(at=at, limit=1))
