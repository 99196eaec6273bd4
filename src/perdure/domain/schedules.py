"""Units of work on schedules, and the tools by which an agent makes, lists and cancels its own."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import islice
from typing import Any, Literal

from perdure.core import schedules
from perdure.core.errors import InvalidInput, NotFound, ScheduleInvalid, ToolError
from perdure.core.facts.credentials import without_credentials
from perdure.core.ids import AgentId, ScheduleId, is_id
from perdure.core.messages import Text, text_of
from perdure.core.runs import Callback
from perdure.core.text.zones import zone
from perdure.core.tools.spec import ToolOutcome
from perdure.domain.companions.units import find_companion
from perdure.domain.tools.calls import MemoryCall
from perdure.storage.tx import Tx

NAME_CHARS = 200
SHOWN = 50
"""How many schedules the tool lists."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NewSchedule:
    """A schedule to create; the fields are those of `Schedule` and `Timing`.

    Args:
        timezone: None: the agent's.
        starts_at: None: of an interval one interval from now, else now.
    """

    messages: tuple[schedules.ScheduledMessage, ...]
    name: str = ""
    at: datetime | str | None = None
    every_s: int | None = None
    cron: str | None = None
    timezone: str | None = None
    starts_at: datetime | str | None = None
    ends_at: datetime | str | None = None
    max_firings: int | None = None
    missed: schedules.Missed = "once"
    missed_limit: int = 10
    quiet: str | None = None
    in_quiet_hours: Literal["move", "skip"] = "move"
    conversation_seq: int = 0
    max_steps: int | None = None
    callback: Callback | None = None
    form: dict[str, Any] = field(default_factory=dict)
    action: schedules.Action = "message"


def create_schedule(
    tx: Tx,
    schedule_id: ScheduleId,
    agent_id: AgentId,
    new: NewSchedule,
    *,
    made_by: Literal["user", "agent"],
    at: datetime,
) -> schedules.Schedule:
    """Create a schedule. Raises: NotFound: the agent or its conversation; TimeZoneUnknown, ScheduleInvalid, TooMany."""
    if not isinstance(new.name, str) or len(new.name) > NAME_CHARS:
        raise InvalidInput(f"the schedule's name is {new.name!r:.80}: give a text of at most {NAME_CHARS} characters")
    timing = timing_of(new, tx.agents.get(agent_id).timezone, now=at)
    first = schedules.check_timing(timing, now=at, interval_s=tx.limits.schedule_interval_s)
    tx.conversations.get_by_seq(agent_id, new.conversation_seq)
    if new.action == "companion" and find_companion(tx, agent_id) is None:
        raise ScheduleInvalid(f"{agent_id} has no companion that a schedule could wake: give it one first")
    return tx.schedules.add(
        schedules.Schedule(
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


def timing_of(new: NewSchedule, agent_timezone: str, *, now: datetime) -> schedules.Timing:
    """Return the timing of a new schedule. Raises: TimeZoneUnknown, ScheduleInvalid."""
    timezone = agent_timezone if new.timezone is None else new.timezone

    def moment(value: datetime | str | None, *, end: bool = False) -> datetime | None:
        if isinstance(value, datetime):
            value = value.isoformat()  # one without a zone is of the schedule's
        if not isinstance(value, str | None):
            raise InvalidInput(f"{value!r:.80} is no time: give a datetime, or a text such as 2026-11-24T09:00")
        return None if value is None else schedules.parse_moment(value, timezone, now=now, end=end)

    if not isinstance(new.cron, str | None):
        raise ScheduleInvalid(f"cron expression is {new.cron!r:.80}: give a text such as '0 9 * * MON-FRI'")
    starts_at = moment(new.starts_at)
    if starts_at is None:
        starts_at = now.replace(microsecond=0)
        if type(new.every_s) is int and 0 < new.every_s < 10**9:
            starts_at = starts_at + timedelta(seconds=new.every_s)
    elif starts_at <= now and new.every_s is not None:
        raise InvalidInput(f"starts_at is {new.starts_at}: the first time of an interval must be in the future")
    return schedules.Timing(
        at=moment(new.at),
        every_s=new.every_s,
        cron=None if new.cron is None else " ".join(new.cron.split()),
        timezone=timezone,
        starts_at=starts_at,
        ends_at=moment(new.ends_at, end=True),
        max_firings=new.max_firings,
        missed=new.missed,
        missed_limit=new.missed_limit,
        quiet=None if new.quiet is None else schedules.parse_quiet(new.quiet, new.in_quiet_hours),
    )


def next_times(schedule: schedules.Schedule, count: int) -> Sequence[datetime]:
    """Return the next due times of a schedule, at most `count`."""
    if schedule.next_at is None:
        return []
    left = count
    if schedule.timing.max_firings is not None:
        left = min(count, schedule.timing.max_firings - schedule.firings)
    return [schedule.next_at, *islice(schedules.due_times(schedule.timing, schedule.next_at), left - 1)]


def describe_timing(timing: schedules.Timing) -> str:
    """Return when a schedule is due, in a few words."""
    here = zone(timing.timezone)
    if timing.at is not None:
        words = f"at {timing.at.astimezone(here):%Y-%m-%d %H:%M}"
    elif timing.every_s is not None:
        unit, letter = next((size, unit) for size, unit in _UNITS if timing.every_s % size == 0)
        words = f"every {timing.every_s // unit} {letter}"
    else:
        words = f"cron {timing.cron}"
    quiet = timing.quiet
    rest = "" if quiet is None else f", not {quiet.start:%H:%M}-{quiet.end:%H:%M}"
    return f"{words} ({timing.timezone}){rest}"


_UNITS = ((604_800, "w"), (86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"))


# --- tools


def schedule_create(
    tx: Tx,
    call: MemoryCall,
    message: str,
    at: str | None = None,
    every: str | None = None,
    cron: str | None = None,
    timezone: str | None = None,
    name: str = "",
    times: int | None = None,
    until: str | None = None,
    quiet_hours: str | None = None,
) -> ToolOutcome:
    """Create a schedule of the agent's own. Raises: TimeZoneUnknown, ScheduleInvalid, TooMany, ToolError."""
    if not message.strip():
        raise ToolError("message is empty: say what you want to be told then")
    new = NewSchedule(
        messages=(schedules.ScheduledMessage(role="system", parts=(Text(without_credentials(message)),)),),
        name=without_credentials(name),
        at=at,
        every_s=None if every is None else schedules.parse_duration(every),
        cron=cron,
        timezone=timezone,
        ends_at=until,
        max_firings=times,
        quiet=quiet_hours,
        conversation_seq=call.run.conversation_seq,
    )
    made_by: Literal["user", "agent"] = "agent" if call.person is None else "user"
    schedule_id = ScheduleId(call.ids.new("schedule"))
    schedule = create_schedule(tx, schedule_id, call.agent.id, new, made_by=made_by, at=call.now)
    return ToolOutcome(text=json.dumps(_shown(schedule)))


def schedule_list(tx: Tx, call: MemoryCall) -> ToolOutcome:
    """List the schedules of the agent that still fire."""
    found = tx.schedules.page(call.agent.id, statuses=("active",), limit=SHOWN + 1)
    lines = [json.dumps(_shown(schedule) | {"message": _message(schedule)}) for schedule in found[:SHOWN]]
    if len(found) > SHOWN:
        lines.append("... and more: cancel some that you don't need")
    return ToolOutcome(text="\n".join(lines) or "You have no schedules.")


def schedule_cancel(tx: Tx, call: MemoryCall, schedule_id: str) -> ToolOutcome:
    """Cancel a schedule that the agent made itself. Raises: ToolError."""
    try:
        if not is_id("schedule", schedule_id.strip()):
            raise NotFound("schedule", schedule_id)
        schedule = tx.schedules.get(ScheduleId(schedule_id.strip()), call.agent.id)
    except NotFound as error:
        raise ToolError(f"you have no schedule {schedule_id[:80]!r}: schedule_list lists yours") from error
    if schedule.made_by != "agent" and call.person is None:
        raise ToolError(f"{schedule.id} was made by a person, who alone can cancel it: ask them to")
    if schedule.status != "active":
        return ToolOutcome(text=f"{schedule.id} fires no more: it has {schedule.status}.")
    tx.schedules.cancel(schedule, at=call.now)
    return ToolOutcome(text=f"Cancelled {schedule.id}.")


SCHEDULE_TOOLS: Mapping[str, Callable[..., ToolOutcome]] = {
    "schedule_create": schedule_create,
    "schedule_list": schedule_list,
    "schedule_cancel": schedule_cancel,
}
"""Name -> function `(tx, call, **checked_arguments)`, as `MEMORY_TOOLS` has them."""


def _shown(schedule: schedules.Schedule) -> dict[str, Any]:
    """A schedule as the model sees it."""
    here = zone(schedule.timing.timezone)
    return {
        "id": schedule.id,
        **({"name": schedule.name} if schedule.name else {}),
        "when": describe_timing(schedule.timing),
        "next": [moment.astimezone(here).isoformat(timespec="minutes") for moment in next_times(schedule, 2)],
        **({"made_by": "a person"} if schedule.made_by == "user" else {}),
    }


def _message(schedule: schedules.Schedule) -> str:
    """The beginning of what a schedule says."""
    text = " ".join(text_of(message.parts) for message in schedule.messages)
    return text if len(text) <= 200 else f"{text[:200]}..."
