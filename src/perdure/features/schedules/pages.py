"""The schedules of an agent on the page of its memory."""

from __future__ import annotations

from datetime import time

from starlette.requests import Request

from perdure.core.errors import InvalidInput
from perdure.core.ids import ScheduleId
from perdure.core.messages import text_of
from perdure.features.schedules.units import describe_timing
from perdure.features.schedules.values import Schedule
from perdure.library.perdure import AsyncPerdure
from perdure.ui.render import Data, Notice, Section, agent_id_of, field_of, form_of, iso

SCHEDULES_MAX, MESSAGE_CHARS, REASON_CHARS = 20, 60, 240

_DAYS = {"day": "*", "weekdays": "MON-FRI"}
"""Kind of a new schedule that is due at a time of day -> the days, as in a cron expression."""


async def load(request: Request, library: AsyncPerdure) -> Data:
    """Return a page of the schedules of the page's agent that have not ended, those behind the query's `schedule`."""
    agent, after = library.agent_of(agent_id_of(request)), request.query_params.get("schedule") or None
    found = await agent.schedules.list(
        statuses=("active", "paused"), limit=SCHEDULES_MAX + 1, after=None if after is None else ScheduleId(after)
    )
    shown = found[:SCHEDULES_MAX]
    return {
        "schedules": [await _schedule_shape(library, schedule) for schedule in shown],
        "schedules_begin": after is None,
        "more_schedules": shown[-1].id if len(found) > SCHEDULES_MAX else None,
    }


async def _schedule_shape(library: AsyncPerdure, schedule: Schedule) -> Data:
    """Return a schedule as the page shows it, with what became of its last due time."""
    firings = await library.schedules.firings(schedule.id, limit=1)
    return {
        "id": schedule.id,
        "name": schedule.name,
        "when": describe_timing(schedule.timing),
        "status": schedule.status,
        "next_at": schedule.next_at,
        "by_agent": schedule.made_by == "agent",
        "message": "\n".join(text_of(message.parts) for message in schedule.messages)[:MESSAGE_CHARS],
        "outcome": firings[0].outcome if firings else None,
        "reason": firings[0].reason[:REASON_CHARS] if firings else "",
        "run_id": firings[0].run_id if firings else None,
    }


async def add_schedule(request: Request, library: AsyncPerdure) -> Notice:
    """Have the agent told something at a time, again and again, or by a cron expression."""
    agent_id, form = agent_id_of(request), await form_of(request)
    message, when = field_of(form, "message"), field_of(form, "when").strip()
    kind, name = form.get("kind", ""), form.get("name", "").strip()
    if kind in _DAYS:
        kind, when = "cron", _cron_of(when, _DAYS[kind])
    at, every, cron = (when if kind == one else None for one in ("at", "every", "cron"))
    if at is every is cron is None:
        raise InvalidInput(f"kind is {kind!r:.40}: choose one of the list")
    made = await library.agent_of(agent_id).schedules.create(message, name=name, at=at, every=every, cron=cron)
    undo = f"/agents/{agent_id}/memory/schedules/{made.id}/cancel"
    return Notice(f"The schedule was added: {describe_timing(made.timing)}.", undo=undo)


def _cron_of(when: str, days: str) -> str:
    """Return the cron expression of a time of day on these days of the week. Raises: InvalidInput."""
    try:
        moment = time.fromisoformat(when.zfill(5))
    except ValueError as error:
        raise InvalidInput(f"the time is {when!r:.40}: write hours and minutes, such as 09:00") from error
    return f"{moment.minute} {moment.hour} * * {days}"


async def pause_schedule(request: Request, library: AsyncPerdure) -> Notice:
    """Stop a schedule from firing until it is resumed."""
    agent_id, schedule_id = agent_id_of(request), ScheduleId(request.path_params["schedule_id"])
    await library.agent_of(agent_id).schedules.pause(schedule_id)
    return Notice("The schedule is paused.", undo=f"/agents/{agent_id}/memory/schedules/{schedule_id}/resume")


async def resume_schedule(request: Request, library: AsyncPerdure) -> Notice:
    """Have a paused or cancelled schedule fire again; with `paused`, bring back a cancelled one that was paused."""
    agent_id, schedule_id = agent_id_of(request), ScheduleId(request.path_params["schedule_id"])
    schedules = library.agent_of(agent_id).schedules
    schedule = await schedules.resume(schedule_id)
    if (await form_of(request)).get("paused"):
        await schedules.pause(schedule_id)
        return Notice("The schedule is paused, as it was.")
    following = "" if schedule.next_at is None else f", next at {iso(schedule.next_at)}"
    return Notice(f"The schedule fires again{following}.")


async def cancel_schedule(request: Request, library: AsyncPerdure) -> Notice:
    """End a schedule of the agent."""
    agent_id, schedule_id = agent_id_of(request), ScheduleId(request.path_params["schedule_id"])
    schedules = library.agent_of(agent_id).schedules
    before = await schedules.get(schedule_id)
    await schedules.cancel(schedule_id)
    undo = f"/agents/{agent_id}/memory/schedules/{schedule_id}/resume"
    fields = {"paused": "yes"} if before.status == "paused" else {}
    return Notice("The schedule no longer fires.", undo=undo, fields=fields)


SECTION = Section(
    name="schedules",
    load=load,
    actions={
        "/agents/{agent_id}/memory/schedules": add_schedule,
        "/agents/{agent_id}/memory/schedules/{schedule_id}/pause": pause_schedule,
        "/agents/{agent_id}/memory/schedules/{schedule_id}/resume": resume_schedule,
        "/agents/{agent_id}/memory/schedules/{schedule_id}/cancel": cancel_schedule,
    },
    is_shown_empty=True,
    is_of_page=True,
)
