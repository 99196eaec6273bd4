"""Steps, the model calls of runs: their state, messages, times and exchanges, and what people think of them."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query
from starlette.responses import Response

from perdure.core.errors import NotFound
from perdure.core.runs import Feedback, StepFilter
from perdure.library.checks import Page
from perdure.library.perdure import AsyncPerdure
from perdure.library.services.steps import StepOfRun
from perdure.search.query import parse_time
from perdure.server.http import Library, json_answer, pages
from perdure.server.wire.base import WIRE_SETTING, wire_members
from perdure.server.wire.fields import AgentIdIn, Date, Items, StepIdIn, Tags
from perdure.server.wire.messages import Display, wire_messages
from perdure.server.wire.models import facts_of
from perdure.server.wire.runs import FeedbackIn, StepMetrics, run_ids_of, wire_step, wire_trace

router = APIRouter()


@router.get("/v1/steps/")
async def list_steps(
    library: Library,
    page: Annotated[Page, pages("step", limit=50, order="desc")],
    agent_id: AgentIdIn | None = None,
    model: Annotated[str | None, Query(description="The name of the model, without its provider.")] = None,
    start_date: Annotated[Date | None, Query(description="From this date or time on.")] = None,
    end_date: Annotated[Date | None, Query(description="Up to this date or time; a date is the whole day.")] = None,
    feedback: Feedback | None = None,
    has_feedback: bool | None = None,
    tags: Annotated[Tags | None, Query(description="Steps with feedback that has one of these tags.")] = None,
    project_id: Annotated[str | None, Query(description="Steps of the agents of this project.")] = None,
    trace_ids: Annotated[Items[str] | None, Query(description="Steps of these traces.")] = None,
) -> Response:
    """List the steps of all agents, newest first by default. All conditions hold."""
    where = StepFilter(
        agent_id=agent_id,
        model=model,
        feedback=feedback,
        has_feedback=has_feedback,
        tags=tuple(tags or ()),
        run_ids=None if trace_ids is None else run_ids_of(trace_ids),
        since=parse_time(start_date),
        until=parse_time(end_date, end=True),
        holding=wire_members(WIRE_SETTING, project_id=project_id),
    )
    found = await library.services.steps.page(where, page)
    return json_answer([_step_reply(library, one) for one in found])


@router.get("/v1/steps/{step_id}")
async def retrieve_step(library: Library, step_id: StepIdIn) -> Response:
    """Get a model call: its model, tokens and end."""
    found = await library.services.steps.get(step_id)
    return json_answer(_step_reply(library, found))


@router.patch("/v1/steps/{step_id}/feedback")
async def give_feedback(library: Library, step_id: StepIdIn, body: FeedbackIn) -> Response:
    """Say whether the step was good. `feedback` null takes it back; `tags` that are missing stay."""
    found = await library.services.steps.put_feedback(step_id, body.feedback, tags=body.tags)
    return json_answer(_step_reply(library, found))


@router.get("/v1/steps/{step_id}/messages")
async def list_step_messages(
    library: Library, step_id: StepIdIn, page: Annotated[Page, pages("message", limit=100, order="asc")]
) -> Response:
    """List the messages that the step brought: the model's, and the results of its calls."""
    shapes = await library.services.steps.list_messages(
        step_id, page, lambda message: wire_messages(message, Display()), id_of=lambda shape: str(shape["id"])
    )
    return json_answer(shapes)


@router.get("/v1/steps/{step_id}/metrics")
async def retrieve_step_metrics(library: Library, step_id: StepIdIn) -> Response:
    """Get the durations of the step's model call and tool calls, in nanoseconds."""
    run, times = await library.services.steps.get_times(step_id)
    return json_answer(StepMetrics.make(times, run_id=run.id, agent_id=run.key.agent_id))


@router.get("/v1/steps/{step_id}/trace")
async def retrieve_trace(library: Library, step_id: StepIdIn) -> Response:
    """Get the request of this step (address and options; the messages are in the log) and its answer. 404 for a model
    without a provider."""
    run, step, exchange = await library.services.steps.get_trace(step_id)
    if exchange is None:
        raise NotFound("trace", step_id, hint=f"{step.model} sent nothing over a wire, or the step has not ended")
    return json_answer(wire_trace(step, run, exchange))


def _step_reply(library: AsyncPerdure, found: StepOfRun) -> dict[str, Any]:
    """The step in the wire's shape."""
    return wire_step(found.step, found.run, found.agent, facts_of(library.app, found.step.model))
