"""Steps: the model calls of a run, and the request and answer of each."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.responses import Response

from perdure.core.errors import NotFound
from perdure.server.deps import Library
from perdure.server.encoding import json_answer
from perdure.server.ids import StepPath
from perdure.server.wire.runs import wire_step, wire_trace

router = APIRouter()


@router.get("/v1/steps/{step_id}")
async def retrieve_step(library: Library, step_id: StepPath) -> Response:
    """Get a model call: its model, tokens and end."""
    run, step = await library.services.steps.get(step_id)
    return json_answer(wire_step(step, run))


@router.get("/v1/steps/{step_id}/trace")
async def retrieve_trace(library: Library, step_id: StepPath) -> Response:
    """Get the request of this step (address and options; the messages are in the log) and its answer. 404 for a model
    without a provider."""
    run, step, exchange = await library.services.steps.get_trace(step_id)
    if exchange is None:
        raise NotFound("trace", step_id, hint=f"{step.model} sent nothing over a wire, or the step has not ended")
    return json_answer(wire_trace(step, run, exchange))
