"""Schedules of an agent, as Letta's API has them, and events. Those of firings and events are not part of that API."""

from __future__ import annotations

from typing import Annotated

from fastapi import Header, Query

from perdure.core.ids import ConversationId
from perdure.engine.records.run_request import KEY_MAX_CHARS
from perdure.features.schedules import wire
from perdure.features.schedules.units import next_times
from perdure.features.schedules.values import ScheduleStatus
from perdure.library.parts.checks import LIMIT_MAX
from perdure.server.access.gate import ServerGate
from perdure.server.wire.fields import AgentIdIn, ScheduleIdIn
from perdure.server.wire.http import Library, Router, ThisAgent
from perdure.server.wire.runs import WireRun

router = Router(tags=["schedules"])

NEXT_TIMES = 5

_Limit = Annotated[int, Query(ge=1, le=LIMIT_MAX, description="At most this many items.")]
_Key = Annotated[
    str | None,
    Header(min_length=1, max_length=KEY_MAX_CHARS, description="An event that comes twice under one key counts once."),
]


@router.post("/v1/agents/{agent_id}/schedule")
async def create(agent: ThisAgent, gate: ServerGate, body: wire.ScheduleIn) -> wire.CreatedSchedule:
    """Have messages sent to an agent by themselves: at a time, by a cron expression, or at an interval."""
    name = body.conversation_id
    seq = 0 if name in (None, "default") else (await agent.find_conversation(ConversationId(str(name)))).seq
    new = body.new_schedule(callback=gate.callback(body.callback_url), conversation_seq=seq)
    return wire.CreatedSchedule.make(await agent.schedules.add(body.new_messages(), new))


@router.get("/v1/agents/{agent_id}/schedule")
async def list_schedules(
    agent: ThisAgent,
    after: ScheduleIdIn | None = None,
    limit: _Limit = 50,
    status: Annotated[list[ScheduleStatus] | None, Query(max_length=4)] = None,
) -> wire.ScheduleList:
    """List the schedules of an agent that still fire, oldest first; with `status` those in these statuses."""
    found = await agent.schedules.list(statuses=status or ("active",), limit=min(limit + 1, LIMIT_MAX), after=after)
    shapes = [wire.schedule_shape(schedule) for schedule in found[:limit]]
    return {"has_next_page": len(found) > limit, "scheduled_messages": shapes}


@router.get("/v1/agents/{agent_id}/schedule/{scheduled_message_id}")
async def retrieve(agent_id: AgentIdIn, scheduled_message_id: ScheduleIdIn, library: Library) -> wire.ScheduleShape:
    """Get a schedule, with its next times."""
    schedule = await library.agent_of(agent_id).schedules.get(scheduled_message_id)
    return wire.schedule_shape(schedule, next_times(schedule, NEXT_TIMES))


@router.delete("/v1/agents/{agent_id}/schedule/{scheduled_message_id}")
async def delete(agent_id: AgentIdIn, scheduled_message_id: ScheduleIdIn, library: Library) -> wire.ScheduleDeleted:
    """Remove a schedule with its firings. The messages that it sent stay."""
    await library.agent_of(agent_id).schedules.delete(scheduled_message_id)
    return {"success": True}


@router.get("/v1/agents/{agent_id}/schedule/{scheduled_message_id}/firings")
async def list_firings(
    agent_id: AgentIdIn,
    scheduled_message_id: ScheduleIdIn,
    library: Library,
    limit: _Limit = 50,
    before_seq: Annotated[int | None, Query(ge=0, le=2**53)] = None,
) -> list[wire.FiringShape]:
    """List what became of the due times of a schedule, the newest first."""
    schedules = library.agent_of(agent_id).schedules
    firings = await schedules.firings(scheduled_message_id, limit=limit, before_seq=before_seq)
    return [wire.FiringShape.make(firing) for firing in firings]


@router.post("/v1/agents/{agent_id}/schedule/{scheduled_message_id}/cancel")
async def cancel(agent_id: AgentIdIn, scheduled_message_id: ScheduleIdIn, library: Library) -> wire.ScheduleShape:
    """End a schedule, and answer with it. Its firings can still be looked at."""
    return wire.schedule_shape(await library.agent_of(agent_id).schedules.cancel(scheduled_message_id))


@router.post("/v1/agents/{agent_id}/schedule/{scheduled_message_id}/pause")
async def pause(agent_id: AgentIdIn, scheduled_message_id: ScheduleIdIn, library: Library) -> wire.ScheduleShape:
    """Have a schedule fire no more until it is resumed, and answer with it."""
    return wire.schedule_shape(await library.agent_of(agent_id).schedules.pause(scheduled_message_id))


@router.post("/v1/agents/{agent_id}/schedule/{scheduled_message_id}/resume")
async def resume(agent_id: AgentIdIn, scheduled_message_id: ScheduleIdIn, library: Library) -> wire.ScheduleShape:
    """Have a paused schedule fire again from its next due time on. What was due meanwhile is not made up for."""
    return wire.schedule_shape(await library.agent_of(agent_id).schedules.resume(scheduled_message_id))


@router.post("/v1/agents/{agent_id}/events")
async def notify(agent: ThisAgent, body: wire.EventIn, idempotency_key: _Key = None) -> WireRun:
    """Tell an agent of an event, and answer with the run that it begins; with `wake` off that run only stores it."""
    conversation = None if body.conversation_id == "default" else body.conversation_id
    accepted = await agent.notify(
        body.kind,
        body.data,
        wake=body.wake,
        conversation=None if conversation is None else ConversationId(conversation),
        idempotency_key=idempotency_key,
        max_steps=body.max_steps,
    )
    return WireRun.make(accepted.run, **({} if accepted.run.ended else {"status": "created"}))
