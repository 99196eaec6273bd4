"""Jobs on the wire: batches of messages, and runs as older clients know them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

from perdure.core.errors import InvalidInput
from perdure.core.ids import PREFIXES
from perdure.core.runs import Batch, IfBusy
from perdure.engine.run.batch import named_request
from perdure.library.services.jobs import Job
from perdure.library.services.messages import BatchPart
from perdure.server.wire.base import ACTOR_ID, WireRequest, nulls, stamp
from perdure.server.wire.fields import AgentIdIn, Items, keywords
from perdure.server.wire.input import SendRequest, check_send
from perdure.server.wire.runs import callback_fields, duration_ns, wire_run, wire_status

_SHARED = (
    *("status", "created_at", "completed_at", "agent_id", "background", "metadata", "stop_reason"),
    *("callback_url", "callback_sent_at", "callback_status_code", "callback_error", "ttft_ns", "total_duration_ns"),
)
"""The fields that a job has of its run."""


class BatchPartIn(SendRequest):
    """One request of a batch. It waits behind the runs of its agent's conversation, those of the same batch included,
    unless `if_busy` refuses that."""

    agent_id: AgentIdIn
    if_busy: IfBusy = "wait"


class BatchIn(WireRequest):
    """A batch of requests, and where the end of the last run is reported."""

    requests: Annotated[Items[BatchPartIn], keywords(minItems=1)]
    callback_url: str | None = None

    def parts(self) -> Sequence[BatchPart]:
        """The requests as the service takes them. Raises: InvalidInput, NotSupported: one can't be used."""
        if not self.requests:
            raise InvalidInput("requests: a batch has at least one")
        return [_part(place, body) for place, body in enumerate(self.requests)]


def _part(place: int, body: BatchPartIn) -> BatchPart:
    """A request as the service takes it. Raises: RequestRefused."""
    with named_request(place):
        check_send(body)
        if body.streaming or body.callback_url is not None:
            raise InvalidInput("a batch does not stream, and has one callback_url for all of its requests")
        messages, answers = body.contents()
        return (
            body.agent_id,
            messages,
            {
                "answers": answers,
                "answer_otid": body.answer_otid,
                "client_tools": body.client_shapes(),
                "if_busy": body.if_busy,
                "max_steps": body.max_steps,
                "options": body.run_options,
                "renew_steps": True,
            },
        )


def wire_job(job: Job) -> dict[str, Any]:
    """A run or batch as a job."""
    if isinstance(job, Batch):
        return wire_batch(job)
    shape = wire_run(job)
    return {
        "id": PREFIXES["job"] + job.id.removeprefix(PREFIXES["run"]),
        "job_type": "run",
        **{name: shape[name] for name in _SHARED},
        "updated_at": shape["completed_at"] or shape["created_at"],
        **nulls("created_by_id", "last_updated_by_id"),
    }


def wire_batch(batch: Batch) -> dict[str, Any]:
    """A batch. `metadata.runs` counts its runs by status."""
    ended_at = batch.ended_at if batch.ended else None
    return {
        "id": batch.id,
        "job_type": "batch",
        "status": wire_status(batch.status),
        "created_at": stamp(batch.created_at),
        "updated_at": stamp(batch.ended_at or batch.created_at),
        "completed_at": stamp(ended_at),
        "background": True,
        "metadata": {"runs": {wire_status(status): count for status, count in batch.runs.items()}},
        **callback_fields(batch.callback),
        "total_duration_ns": duration_ns(batch.created_at, ended_at),
        **nulls("agent_id", "stop_reason", "ttft_ns"),
        "created_by_id": ACTOR_ID,
        "last_updated_by_id": ACTOR_ID,
    }
