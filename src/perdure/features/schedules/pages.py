"""The schedules of an agent on the page of its memory."""

from __future__ import annotations

from collections.abc import Sequence

from starlette.requests import Request

from perdure.core.ids import ScheduleId
from perdure.core.messages import text_of
from perdure.features.schedules.units import describe_timing
from perdure.features.schedules.values import Schedule
from perdure.library.perdure import AsyncPerdure
from perdure.ui.render import Data, Notice, Section, agent_id_of

SCHEDULES_MAX, MESSAGE_CHARS, REASON_CHARS = 20, 60, 240


async def load(request: Request, library: AsyncPerdure) -> Sequence[Data]:
    """Return the schedules of the page's agent that still fire."""
    agent = library.agent_of(agent_id_of(request))
    found = await agent.schedules.list(statuses=("active",), limit=SCHEDULES_MAX)
    return [await _schedule_shape(library, schedule) for schedule in found]


async def _schedule_shape(library: AsyncPerdure, schedule: Schedule) -> Data:
    """Return a schedule as the page shows it, with what became of its last due time."""
    firings = await library.schedules.firings(schedule.id, limit=1)
    return {
        "id": schedule.id,
        "name": schedule.name,
        "when": describe_timing(schedule.timing),
        "next_at": schedule.next_at,
        "by_agent": schedule.made_by == "agent",
        "message": "\n".join(text_of(message.parts) for message in schedule.messages)[:MESSAGE_CHARS],
        "outcome": firings[0].outcome if firings else None,
        "reason": firings[0].reason[:REASON_CHARS] if firings else "",
        "run_id": firings[0].run_id if firings else None,
    }


async def cancel_schedule(request: Request, library: AsyncPerdure) -> Notice:
    """End a schedule of the agent."""
    agent_id, schedule_id = agent_id_of(request), ScheduleId(request.path_params["schedule_id"])
    await library.agent_of(agent_id).schedules.cancel(schedule_id)
    return Notice("The schedule fires no more.")


SECTION = Section(
    name="schedules", load=load, actions={"/agents/{agent_id}/memory/schedules/{schedule_id}/cancel": cancel_schedule}
)
