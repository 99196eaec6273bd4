"""Steps: the model calls of a run, and what went over the wire at each."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.responses import Response

from perdure.core.errors import NotFound
from perdure.server.deps import Library
from perdure.server.encoding import json_answer
from perdure.server.ids import StepPath
from perdure.server.wire.runs import wire_step, wire_trace

__all__ = ["router"]

router = APIRouter()


@router.get("/v1/steps/{step_id}")
async def retrieve_step(library: Library, step_id: StepPath) -> Response:
    """One model call: its model, tokens, and how it ended."""
    run, step = await library.services.steps.get(step_id)
    return json_answer(wire_step(step, run))


@router.get("/v1/steps/{step_id}/trace")
async def retrieve_trace(library: Library, step_id: StepPath) -> Response:
    """What went over the wire at this step: address, options, the answer put together; without the messages, which are
    in the log. 404 for a model that none goes over."""
    run, step, exchange = await library.services.steps.get_trace(step_id)
    if exchange is None:
        raise NotFound("trace", step_id, hint=f"{step.model} sent nothing over a wire, or the step has not ended")
    return json_answer(wire_trace(step, run, exchange))
