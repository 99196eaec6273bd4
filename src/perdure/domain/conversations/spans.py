"""The time line of a run: how long the run, its model calls and its tool calls took. Pure functions."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from perdure.core.ids import RunId, StepId
from perdure.core.messages import Message
from perdure.core.runs import Run, Step


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSpan:
    """A stretch of time, in the terms of OpenTelemetry.

    Args:
        id: 16 hexadecimal digits, the same at each look.
        parent_id: the span that this one is part of; None: it is the whole run.
        ended_at: None while it goes on.
        failed: whether it ended with an error.
    """

    id: str
    parent_id: str | None
    name: str
    started_at: datetime
    ended_at: datetime | None
    failed: bool = False
    attributes: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTimes:
    """When a step's model call began and ended, and when its last tool result came; None: not yet, or never."""

    step_id: StepId
    started_at: datetime
    answered_at: datetime | None
    last_result_at: datetime | None


def times_of(step: Step, messages: Sequence[Message]) -> StepTimes:
    """Return the times of a step; `messages` are those of its run."""
    results = [message.created_at for message in messages if message.step_id == step.id and message.results]
    return StepTimes(
        step_id=step.id,
        started_at=step.created_at,
        answered_at=step.ended_at,
        last_result_at=max(results, default=None),
    )


def trace_id(run_id: RunId) -> str:
    """Return the id of a run's trace: the 32 hexadecimal digits of the run's id."""
    return run_id.split("-", 1)[1].replace("-", "")


def spans_of(
    run: Run, steps: Sequence[Step], messages: Sequence[Message], call_starts: Mapping[str, datetime]
) -> Sequence[RunSpan]:
    """Return the spans of a run by their starts: the run, `agent_step` for each model call, each tool call by name.
    `call_starts`: id of a tool call -> its start; else, as for memory tools, when the model had answered."""
    root = RunSpan(
        id=_span_id(run.id),
        parent_id=None,
        name="agent_run",
        started_at=run.started_at or run.created_at,
        ended_at=run.ended_at,
        failed=run.failure is not None,
        attributes={"run_id": run.id, "agent_id": run.key.agent_id, "stop_reason": run.stop_reason},
    )
    spans = [root]
    for step in steps:
        own = [message for message in messages if message.step_id == step.id and message.results]
        ended_at = max([message.created_at for message in own], default=step.ended_at)
        parent = _span_id(step.id)
        spans.append(
            RunSpan(
                id=parent,
                parent_id=root.id,
                name="agent_step",
                started_at=step.created_at,
                ended_at=ended_at,
                failed=step.failure is not None,
                attributes={"step_id": step.id, "model": step.model, "answered_at": step.ended_at}
                | ({"model_reason": run.options.model_reason} if run.options.model_reason else {}),
            )
        )
        spans += [
            RunSpan(
                id=_span_id(f"{step.id} {result.call_id}"),
                parent_id=parent,
                name=result.name,
                started_at=call_starts.get(result.call_id, step.ended_at or step.created_at),
                ended_at=message.created_at,
                failed=result.status == "error",
                attributes={"step_id": step.id, "tool_call_id": result.call_id, "tool_name": result.name},
            )
            for message in own
            for result in message.results
        ]
    return [root, *sorted(spans[1:], key=lambda span: span.started_at)]


def _span_id(text: str) -> str:
    """Return the id of the span of a thing with this id or key, the same at each look."""
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()[:16]
