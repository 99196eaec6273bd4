"""Runs: their state, messages, steps and times; following one again; cancelling and deleting one. Steps, the model
calls of runs: their state, messages, times and exchanges, and what people think of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any, get_args

from fastapi import HTTPException, Query
from starlette.requests import Request
from starlette.responses import StreamingResponse

from perdure.core.errors import InvalidInput, NotFound
from perdure.core.ids import BatchId, ConversationId
from perdure.core.runs import Feedback, Run, RunFilter, RunStatus, StepFilter, StopReason
from perdure.domain.conversations.spans import trace_id
from perdure.library.parts.checks import LIMIT_MAX, Page
from perdure.library.perdure import AsyncPerdure
from perdure.library.runs.steps import StepOfRun
from perdure.search.ranking.query import parse_time
from perdure.server.wire import runs as wire
from perdure.server.wire.answers import Message
from perdure.server.wire.base import WIRE_SETTING, wire_members
from perdure.server.wire.chunks import Chunks, StreamMode
from perdure.server.wire.fields import AgentIdIn, ConversationOrDefault, Date, Items, JobIdIn, RunIdIn, StepIdIn, Tags
from perdure.server.wire.http import Library, Limit, Router, forget_body, pages
from perdure.server.wire.input import ResumeRequest
from perdure.server.wire.messages import Display, wire_messages
from perdure.server.wire.models import facts_of
from perdure.server.wire.sse import Streams

router = Router()

ACTIVE: tuple[RunStatus, ...] = ("queued", "running")


@router.get("/v1/runs/")
async def list_runs(
    library: Library,
    page: Annotated[Page, pages("run", limit=100)],
    agent_id: AgentIdIn | None = None,
    agent_ids: Annotated[Items[AgentIdIn] | None, Query(deprecated=True)] = None,
    conversation_id: ConversationOrDefault | None = None,
    statuses: Annotated[Items[wire.WireRunStatus] | None, Query()] = None,
    active: bool = False,
    background: bool | None = None,
    stop_reason: StopReason | None = None,
    batch_id: JobIdIn | None = None,
) -> list[wire.WireRun]:
    """List runs of all agents, of these, or of a batch. All conditions hold; `active` runs have not ended."""
    agents = list(dict.fromkeys([*([agent_id] if agent_id else []), *(agent_ids or [])]))
    named: Sequence[wire.WireRunStatus] = statuses or get_args(wire.WireRunStatus)
    selected: list[RunStatus] = ["queued" if one == "created" else one for one in named]
    if active:
        selected = [status for status in selected if status in ACTIVE]
    is_default = conversation_id == "default"
    if is_default and not agents:
        raise InvalidInput("query.conversation_id: 'default' needs an agent_id")
    where = RunFilter(
        agent_ids=tuple(agents),
        conversation_id=None if conversation_id is None or is_default else ConversationId(conversation_id),
        conversation_seq=0 if is_default else None,
        statuses=tuple(selected if statuses or active else ()),
        stop_reason=stop_reason,
        background=background,
        batch_id=None if batch_id is None else BatchId(batch_id),
    )
    runs = await library.runs.page_of_runs(where, page) if selected else []
    return [wire.WireRun.make(run) for run in runs]


@router.get("/v1/runs/active", deprecated=True)
async def list_active_runs(
    library: Library,
    agent_id: AgentIdIn | None = None,
    agent_ids: Annotated[Items[AgentIdIn] | None, Query(deprecated=True)] = None,
    background: bool | None = None,
) -> list[wire.WireRun]:
    """List the newest runs that have not ended, at most 100."""
    page = Page(100, ascending=False)
    return await list_runs(library, page, agent_id, agent_ids, active=True, background=background)


@router.get("/v1/runs/{run_id}")
async def retrieve_run(library: Library, run_id: RunIdIn) -> wire.WireRun:
    """Get a run."""
    return wire.WireRun.make(await library.runs.run(run_id))


@router.delete("/v1/runs/{run_id}")
async def delete_run(library: Library, run_id: RunIdIn) -> None:
    """Delete a run that has ended: no list shows it any more. Its messages stay in the history."""
    await library.runs.hide_run(run_id)


@router.get("/v1/runs/{run_id}/trace")
async def retrieve_run_trace(library: Library, run_id: RunIdIn, limit: Limit = 1000) -> list[wire.WireSpan]:
    """List the spans of the run by their starts: the run itself, its model calls (`agent_step`), and its tool calls by
    name. Times are in nanoseconds; a span that goes on has no end."""
    run, spans = await library.runs.spans_of_run(run_id)
    return [wire.WireSpan.make(span, trace_id=trace_id(run.id)) for span in spans[:limit]]


@router.get("/v1/runs/{run_id}/metrics")
async def retrieve_run_metrics(library: Library, run_id: RunIdIn) -> wire.RunMetrics:
    """Get the run's duration, the number of its steps and the ids of the tools it used."""
    run, tool_ids = await library.runs.tools_of_run(run_id)
    return wire.RunMetrics.make(run, tools_used=list(tool_ids))


@router.get("/v1/runs/{run_id}/messages")
async def list_run_messages(
    library: Library, run_id: RunIdIn, page: Annotated[Page, pages("message", limit=100, order="asc")]
) -> Sequence[Message]:
    """List the messages of the run, with those of the caller, also after a reset of its conversation: the
    types that the run's request asked for."""
    return await library.runs.messages_of_run(
        run_id,
        page,
        lambda run, message: wire_messages(message, Display.of(run.options.form)),
        id_of=lambda shape: str(shape["id"]),
    )


@router.get("/v1/runs/{run_id}/steps")
async def list_run_steps(
    library: Library, run_id: RunIdIn, page: Annotated[Page, pages("step", limit=100)]
) -> list[wire.WireStep]:
    """List the model calls of the run."""
    run, steps, agent = await library.runs.steps_of_run(run_id, page)
    return [_step_shape(library, StepOfRun(step, run, agent)) for step in steps]


@router.get("/v1/runs/{run_id}/usage")
async def retrieve_run_usage(library: Library, run_id: RunIdIn) -> wire.WireUsage:
    """Get the usage of the run so far."""
    usage = await library.runs.usage_of_run(run_id)
    return wire.WireUsage.make(usage, **wire.detail_fields(usage))


@router.post("/v1/runs/{run_id}/cancel")
async def cancel_run(library: Library, run_id: RunIdIn) -> wire.WireRun:
    """Cancel a run and answer with it. A run that has ended stays as it is."""
    return wire.WireRun.make(await library.runs.cancel(run_id))


@router.post("/v1/runs/{run_id}/replay")
async def replay_run(library: Library, run_id: RunIdIn, body: wire.ReplayIn | None = None) -> Mapping[str, Any]:
    """Send the requests of a run again, to another model or with another system text, and answer with the old and new
    answers. Nothing is stored, and no tool runs: the model is given the recorded results. 409 while the run goes on."""
    body = body or wire.ReplayIn()
    found = await library.runs.replay(run_id, model=body.model, system=body.system)
    return found.as_shape()


@router.get("/v1/runs/{run_id}/export")
async def export_run(library: Library, run_id: RunIdIn) -> Mapping[str, Any]:
    """Get the run as JSON: messages, and steps with requests, responses (keys are masked), tokens and prices."""
    return await library.runs.export_run(run_id)


@router.post("/v1/runs/{run_id}/stream")
async def resume_run(
    library: Library, run_id: RunIdIn, request: Request, body: ResumeRequest | None = None
) -> StreamingResponse:
    """Stream the chunks of a background run after number `starting_after`, stored and new ones."""
    return await resume_stream(library, request, await library.runs.run(run_id), body or ResumeRequest())


async def resume_stream(library: AsyncPerdure, request: Request, run: Run, body: ResumeRequest) -> StreamingResponse:
    """Stream a background run after the chunk that the body names. Raises: HTTPException: it can't be streamed."""
    if not run.background:
        raise HTTPException(400, f"Run {run.id} was not created in background mode, so it can't be streamed again.")
    if not library.runs.keeps_stream(run):
        retention = library.runs.stream_retention
        raise HTTPException(410, f"Run {run.id} was created more than {retention} ago, its stream is no longer kept.")
    await library.conversations.find_conversation(run.conversation_id)  # 404: it was deleted with what was said
    forget_body(request)
    streams: Streams = request.app.state.streams
    mode = StreamMode.of(run.options.form)
    mode = replace(mode, pings=mode.pings and body.include_pings)
    chunks = await chunks_again(library, run, mode, starting_after=body.starting_after)
    return await streams.stream(library.runs.follow_run(run), chunks, pings=mode.pings)


async def chunks_again(library: AsyncPerdure, run: Run, mode: StreamMode, *, starting_after: int = 0) -> Chunks:
    """The chunks of a run that was begun before, without the pieces of steps that were abandoned since."""
    _, steps, _ = await library.runs.steps_of_run(run.id, Page(LIMIT_MAX, ascending=True))
    return Chunks(run, mode, starting_after=starting_after, steps=steps)


# --- steps


@router.get("/v1/steps/")
async def list_steps(
    library: Library,
    page: Annotated[Page, pages("step")],
    agent_id: AgentIdIn | None = None,
    model: Annotated[str | None, Query(description="The name of the model, without its provider.")] = None,
    start_date: Annotated[Date | None, Query(description="From this date or time on.")] = None,
    end_date: Annotated[Date | None, Query(description="Up to this date or time; a date is the whole day.")] = None,
    feedback: Feedback | None = None,
    has_feedback: bool | None = None,
    tags: Annotated[Tags | None, Query(description="Steps with feedback that has one of these tags.")] = None,
    project_id: Annotated[str | None, Query(description="Steps of the agents of this project.")] = None,
    trace_ids: Annotated[Items[str] | None, Query(description="Steps of these traces.")] = None,
) -> list[wire.WireStep]:
    """List the steps of all agents, newest first by default. All conditions hold."""
    where = StepFilter(
        agent_id=agent_id,
        model=model,
        feedback=feedback,
        has_feedback=has_feedback,
        tags=tuple(tags or ()),
        run_ids=None if trace_ids is None else wire.run_ids_of(trace_ids),
        since=parse_time("start_date", start_date),
        until=parse_time("end_date", end_date, end=True),
        holding=wire_members(WIRE_SETTING, project_id=project_id),
    )
    return [_step_shape(library, one) for one in await library.steps.page_of_steps(where, page)]


@router.get("/v1/steps/{step_id}")
async def retrieve_step(library: Library, step_id: StepIdIn) -> wire.WireStep:
    """Get a model call: its model, tokens and end."""
    return _step_shape(library, await library.steps.step(step_id))


@router.patch("/v1/steps/{step_id}/feedback")
async def give_feedback(
    library: Library,
    step_id: StepIdIn,
    body: wire.FeedbackIn | None = None,
    feedback: Annotated[
        Feedback | None, Query(description="In place of a body: so clients before 1.0 send it.")
    ] = None,
) -> wire.WireStep:
    """Say whether the step was good. `feedback` null takes it back; `tags` that are missing stay."""
    given = body or wire.FeedbackIn(feedback=feedback)
    return _step_shape(library, await library.steps.put_feedback(step_id, given.feedback, tags=given.tags))


@router.get("/v1/steps/{step_id}/messages")
async def list_step_messages(
    library: Library, step_id: StepIdIn, page: Annotated[Page, pages("message", limit=100, order="asc")]
) -> Sequence[Message]:
    """List the messages that the step brought: the model's, and the results of its calls."""
    return await library.steps.messages_of_step(
        step_id, page, lambda message: wire_messages(message, Display()), id_of=lambda shape: str(shape["id"])
    )


@router.get("/v1/steps/{step_id}/metrics")
async def retrieve_step_metrics(library: Library, step_id: StepIdIn) -> wire.StepMetrics:
    """Get the durations of the step's model call and tool calls, in nanoseconds."""
    run, times = await library.steps.times_of_step(step_id)
    return wire.StepMetrics.make(times, run_id=run.id, agent_id=run.key.agent_id)


@router.get("/v1/telemetry/{step_id}", include_in_schema=False)  # where clients before 1.0 ask for it
@router.get("/v1/steps/{step_id}/trace")
async def retrieve_trace(library: Library, step_id: StepIdIn) -> wire.Trace:
    """Get a step's request (without messages, which are in the log) and answer. 404: the model has no provider."""
    run, step, exchange = await library.steps.trace_of_step(step_id)
    if exchange is None:
        raise NotFound("trace", step_id, hint=f"{step.model} sent nothing over a wire, or the step has not ended")
    answer = {**exchange.response, "attempts": exchange.attempts}
    return wire.Trace.make(step, run_id=run.id, request_json=dict(exchange.request), response_json=answer)


def _step_shape(library: AsyncPerdure, one: StepOfRun) -> wire.WireStep:
    return wire.step_shape(one, facts_of(library.app, one.step.model))
