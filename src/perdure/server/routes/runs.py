"""Runs: their state, messages, steps and usage; following one again; cancelling it."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Annotated, Literal

from fastapi import APIRouter, HTTPException, Query
from starlette.requests import Request
from starlette.responses import Response

from perdure.core.errors import InvalidInput
from perdure.core.ids import AgentId, ConversationId
from perdure.core.runs import Run, RunFilter, StopReason
from perdure.library.paging import Page
from perdure.library.perdure import AsyncPerdure
from perdure.server.deps import Library
from perdure.server.encoding import json_answer
from perdure.server.ids import IdFormat, RunPath
from perdure.server.limits import Items
from perdure.server.routes.messages import ConversationQuery
from perdure.server.sse import Streams, stream
from perdure.server.wire.chunks import StreamMode
from perdure.server.wire.input import ResumeRequest, read_body, take_body
from perdure.server.wire.messages import Shown, wire_messages
from perdure.server.wire.paging import pages
from perdure.server.wire.runs import RUN_STATUSES, WireRunStatus, wire_run, wire_step, wire_usage

router = APIRouter()

AgentQuery = Annotated[AgentId, IdFormat("agent")]


@router.get("/v1/runs/")
async def list_runs(
    library: Library,
    page: Annotated[Page, pages("run", limit=100, order="desc")],
    agent_id: Annotated[AgentQuery | None, Query()] = None,
    agent_ids: Annotated[Items[AgentQuery] | None, Query(deprecated=True)] = None,
    conversation_id: ConversationQuery = None,
    statuses: Annotated[Items[WireRunStatus] | None, Query()] = None,
    active: bool = False,
    background: bool | None = None,
    stop_reason: StopReason | None = None,
    order_by: Annotated[Literal["created_at"], Query()] = "created_at",
) -> Response:
    """List runs of all agents, or of these. All conditions hold; `active` runs have not ended."""
    agents = list(dict.fromkeys([*([agent_id] if agent_id else []), *(agent_ids or [])]))
    if conversation_id == "default" and not agents:
        raise InvalidInput("query.conversation_id: 'default' needs an agent_id")
    wanted = [RUN_STATUSES[status] for status in statuses or RUN_STATUSES]
    if active:
        wanted = [status for status in wanted if status in ("queued", "running")]
    is_default = conversation_id == "default"
    where = RunFilter(
        agent_ids=tuple(agents),
        conversation_id=None if conversation_id is None or is_default else ConversationId(conversation_id),
        conversation_seq=0 if is_default else None,
        statuses=tuple(wanted) if statuses or active else (),
        stop_reason=stop_reason,
        background=background,
    )
    runs = await library.services.runs.list(where, page) if wanted else []
    return json_answer([wire_run(run) for run in runs])


@router.get("/v1/runs/{run_id}")
async def retrieve_run(library: Library, run_id: RunPath) -> Response:
    """Get a run."""
    return json_answer(wire_run(await library.services.runs.get(run_id)))


@router.get("/v1/runs/{run_id}/messages")
async def list_run_messages(
    library: Library,
    run_id: RunPath,
    page: Annotated[Page, pages("message", limit=100, order="asc")],
    order_by: Annotated[Literal["created_at"], Query()] = "created_at",
) -> Response:
    """List the messages of the run, with those of the caller, also after a reset of its conversation."""

    shapes = await library.services.runs.list_messages(
        run_id, page, lambda message: wire_messages(message, Shown()), id_of=lambda shape: str(shape["id"])
    )
    return json_answer(shapes)


@router.get("/v1/runs/{run_id}/steps")
async def list_run_steps(
    library: Library,
    run_id: RunPath,
    page: Annotated[Page, pages("step", limit=100, order="desc")],
    order_by: Annotated[Literal["created_at"], Query()] = "created_at",
) -> Response:
    """List the model calls of the run."""
    run, steps = await library.services.runs.list_steps(run_id, page)
    return json_answer([wire_step(step, run) for step in steps])


@router.get("/v1/runs/{run_id}/usage")
async def retrieve_run_usage(library: Library, run_id: RunPath) -> Response:
    """Get the usage of the run so far."""
    return json_answer(wire_usage(await library.services.runs.get_usage(run_id)))


@router.post("/v1/runs/{run_id}/cancel")
async def cancel_run(library: Library, run_id: RunPath) -> Response:
    """Cancel a run and answer with it. A run that has ended stays as it is."""
    return json_answer(wire_run(await library.services.runs.cancel(run_id)))


@router.post("/v1/runs/{run_id}/stream")
async def resume_run(library: Library, run_id: RunPath, request: Request) -> Response:
    """Stream the chunks of a background run after number `starting_after`, stored and new ones."""
    body = read_body(ResumeRequest, await take_body(request))
    return await resume_stream(library, request, await library.services.runs.get(run_id), body)


async def resume_stream(library: AsyncPerdure, request: Request, run: Run, body: ResumeRequest) -> Response:
    """Stream a background run after the chunk that the body names. Raises: HTTPException: it can't be streamed."""
    _check_resumable(run, timedelta(seconds=library.app.ports.settings.keep_deltas_s), library.app.ports.clock.now())
    streams: Streams = request.app.state.streams
    known = streams.mode_of(run.id)
    mode = StreamMode(known.tokens, known.pings and body.include_pings, shown=known.shown)
    events = library.services.runs.follow(run)
    return await stream(
        run, events, mode, streams=streams, clock=library.app.ports.clock, starting_after=body.starting_after
    )


def _check_resumable(run: Run, kept: timedelta, now: datetime) -> None:
    if not run.background:
        raise HTTPException(400, f"Run {run.id} was not created in background mode, so it can't be streamed again.")
    if run.created_at < now - kept:
        raise HTTPException(410, f"Run {run.id} was created more than {kept} ago, its stream is no longer kept.")
