"""Runs: what became of messages, step by step; following one again; stopping it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Annotated, Any, Literal

from fastapi import APIRouter, HTTPException, Query
from starlette.requests import Request
from starlette.responses import Response

from perdure.core.errors import InvalidInput, NotFound
from perdure.core.ids import AgentId, ConversationId, RunId
from perdure.core.runs import Run, RunFilter, Step, StopReason, Usage
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
from perdure.storage.tx import Tx

__all__ = ["resumed", "router"]

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
    """Runs of all agents, or of those asked for. All conditions hold; `active` runs have not ended."""
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
    runs = await library.app.store.read(_page_of_runs, where, page) if wanted else []
    return json_answer([wire_run(run) for run in runs])


def _page_of_runs(tx: Tx, where: RunFilter, page: Page) -> Sequence[Run]:
    def cursor(run_id: str | None) -> Run | None:
        if run_id is None:
            return None
        run = tx.runs.get(RunId(run_id))
        if where.agent_ids and run.key.agent_id not in where.agent_ids:
            raise NotFound("run", run_id)
        return run

    return tx.runs.page(
        where,
        limit=page.limit,
        newest_first=not page.ascending,
        after=cursor(page.after),
        before=cursor(page.before),
    )


@router.get("/v1/runs/{run_id}")
async def retrieve_run(library: Library, run_id: RunPath) -> Response:
    """The run as it stands."""
    return json_answer(wire_run(await library.app.store.read(lambda tx: tx.runs.get(run_id))))


@router.get("/v1/runs/{run_id}/messages")
async def list_run_messages(
    library: Library,
    run_id: RunPath,
    page: Annotated[Page, pages("message", limit=100, order="asc")],
    order_by: Annotated[Literal["created_at"], Query()] = "created_at",
) -> Response:
    """What was said in the run, the caller's own messages included, also if its conversation was reset since."""

    def of_run(tx: Tx) -> list[list[dict[str, Any]]]:
        run = tx.runs.get(run_id)
        messages = [
            message
            for message in tx.messages.of_run(run, reset=True)
            # One that goes on with answered calls begins with the message of the run before.
            if message.kind in ("message", "approval") and message.run_seq == run.key.seq
        ]
        shown = [shapes for message in messages if (shapes := wire_messages(message, Shown()))]
        return page.select(shown, kind="message", id_of=lambda shapes: str(shapes[0]["id"]))

    found = await library.app.store.read(of_run)
    return json_answer([shape for shapes in found for shape in (shapes if page.ascending else shapes[::-1])])


@router.get("/v1/runs/{run_id}/steps")
async def list_run_steps(
    library: Library,
    run_id: RunPath,
    page: Annotated[Page, pages("step", limit=100, order="desc")],
    order_by: Annotated[Literal["created_at"], Query()] = "created_at",
) -> Response:
    """The run's model calls."""
    run, steps = await library.app.store.read(_with_steps, run_id)
    return json_answer([wire_step(step, run) for step in page.select(steps, kind="step", id_of=lambda step: step.id)])


@router.get("/v1/runs/{run_id}/usage")
async def retrieve_run_usage(library: Library, run_id: RunPath) -> Response:
    """What the run has cost so far."""
    run, steps = await library.app.store.read(_with_steps, run_id)
    return json_answer(wire_usage(run.usage if run.ended else sum((step.usage for step in steps), Usage())))


@router.post("/v1/runs/{run_id}/cancel")
async def cancel_run(library: Library, run_id: RunPath) -> Response:
    """Ask the run to stop; the run as it then stands. One that has ended is left as it is."""
    return json_answer(wire_run(await library.app.runner.cancel(run_id)))


@router.post("/v1/runs/{run_id}/stream")
async def resume_run(library: Library, run_id: RunPath, request: Request) -> Response:
    """The chunks of a background run after number `starting_after`, then those that come."""
    body = read_body(ResumeRequest, await take_body(request))
    return await resumed(library, request, await library.app.store.read(lambda tx: tx.runs.get(run_id)), body)


async def resumed(library: AsyncPerdure, request: Request, run: Run, body: ResumeRequest) -> Response:
    """The stream of a background run, from where the body says. Raises: HTTPException: there is none."""
    _check_resumable(run, timedelta(seconds=library.app.ports.settings.keep_deltas_s), library.app.ports.clock.now())
    streams: Streams = request.app.state.streams
    known = streams.mode_of(run.id)
    mode = StreamMode(known.tokens, known.pings and body.include_pings, shown=known.shown)
    told = library.app.runner.follow(run)
    return await stream(
        run, told, mode, streams=streams, clock=library.app.ports.clock, starting_after=body.starting_after
    )


def _check_resumable(run: Run, kept: timedelta, now: datetime) -> None:
    if not run.background:
        raise HTTPException(400, f"Run {run.id} was not created in background mode, so it can't be streamed again.")
    if run.created_at < now - kept:
        raise HTTPException(410, f"Run {run.id} was created more than {kept} ago, its stream is no longer kept.")


def _with_steps(tx: Tx, run_id: RunId) -> tuple[Run, Sequence[Step]]:
    run = tx.runs.get(run_id)
    return run, tx.steps.of_run(run.key)
