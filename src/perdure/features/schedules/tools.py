"""The tools by which an agent makes, lists and cancels its own schedules."""

from __future__ import annotations

import json
from typing import Any, Literal

from perdure.core.errors import NotFound, ToolError, rename_arguments
from perdure.core.ids import ScheduleId, is_id
from perdure.core.messages import Text, text_of
from perdure.core.specs import ToolOutcome
from perdure.core.text.credentials import without_credentials
from perdure.core.text.zones import zone
from perdure.domain.tools.calls import MemoryCall
from perdure.features.schedules import values
from perdure.features.schedules.tables import Schedules
from perdure.features.schedules.units import NewSchedule, create_schedule, describe_timing, next_times
from perdure.storage.tx import Tx

SHOWN = 50
"""How many schedules the tool lists."""


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
        messages=(values.ScheduledMessage(role="system", parts=(Text(without_credentials(message)),)),),
        name=without_credentials(name),
        at=at,
        every_s=None if every is None else values.parse_duration(every),
        cron=cron,
        timezone=timezone,
        ends_at=until,
        max_firings=times,
        quiet=quiet_hours,
        conversation_seq=call.run.conversation_seq,
    )
    made_by: Literal["user", "agent"] = "agent" if call.person is None else "user"
    schedule_id = ScheduleId(call.ids.new("schedule"))
    with rename_arguments({"ends_at": "until", "max_firings": "times"}):
        schedule = create_schedule(tx, schedule_id, call.agent.id, new, made_by=made_by, at=call.now)
    return ToolOutcome(text=json.dumps(_shape(schedule)))


def schedule_list(tx: Tx, call: MemoryCall) -> ToolOutcome:
    """List the schedules of the agent that still fire."""
    found = tx.of(Schedules).page(call.agent.id, statuses=("active",), limit=SHOWN + 1)
    lines = [json.dumps(_shape(schedule) | {"message": _excerpt(schedule)}) for schedule in found[:SHOWN]]
    if len(found) > SHOWN:
        lines.append("... and more: cancel some that you don't need")
    return ToolOutcome(text="\n".join(lines) or "You have no schedules.")


def schedule_cancel(tx: Tx, call: MemoryCall, schedule_id: str) -> ToolOutcome:
    """Cancel a schedule that the agent made itself. Raises: ToolError."""
    try:
        if not is_id("schedule", schedule_id.strip()):
            raise NotFound("schedule", schedule_id)
        schedule = tx.of(Schedules).get(ScheduleId(schedule_id.strip()), call.agent.id)
    except NotFound as error:
        raise ToolError(f"you have no schedule {schedule_id[:80]!r}: schedule_list lists yours") from error
    if schedule.made_by != "agent" and call.person is None:
        raise ToolError(f"{schedule.id} was made by a person, who alone can cancel it: ask them to")
    if schedule.status not in ("active", "paused"):
        return ToolOutcome(text=f"{schedule.id} fires no more: it has {schedule.status}.")
    tx.of(Schedules).cancel(schedule, at=call.now)
    return ToolOutcome(text=f"Cancelled {schedule.id}.")


def _shape(schedule: values.Schedule) -> dict[str, Any]:
    """Return a schedule as the model sees it."""
    tz = zone(schedule.timing.timezone)
    return {
        "id": schedule.id,
        **({"name": schedule.name} if schedule.name else {}),
        "when": describe_timing(schedule.timing),
        "next": [moment.astimezone(tz).isoformat(timespec="minutes") for moment in next_times(schedule, 2)],
        **({"made_by": "a person"} if schedule.made_by == "user" else {}),
    }


def _excerpt(schedule: values.Schedule) -> str:
    """Return the text of a schedule's messages, cut at 200 characters."""
    text = " ".join(text_of(message.parts) for message in schedule.messages)
    return text if len(text) <= 200 else f"{text[:200]}..."
