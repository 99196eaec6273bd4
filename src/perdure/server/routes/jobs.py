"""Batches of messages, and jobs: batches and runs as older clients know them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Literal

from fastapi import Header

from perdure.core.errors import InvalidInput
from perdure.core.ids import PREFIXES, BatchId
from perdure.core.runs import Batch, IfBusy, StopReason
from perdure.engine.records.run_request import KEY_MAX_CHARS, RunRequest
from perdure.engine.run.batch import named_request
from perdure.library.parts.checks import Page
from perdure.library.runs import jobs
from perdure.server.access.gate import ServerGate
from perdure.server.wire.answers import BatchMessages
from perdure.server.wire.base import ACTOR_ID, WireRequest, nulls, stamp
from perdure.server.wire.conversations import StoredMessage
from perdure.server.wire.fields import AgentIdIn, FolderIdIn, Items, JobIdIn, Time, keywords
from perdure.server.wire.http import Library, Router, pages
from perdure.server.wire.input import SendRequest
from perdure.server.wire.runs import CALLBACK_FIELDS, WireRun, WireRunStatus, ns_between, wire_status
from perdure.server.wire.shapes import Object, WireShape, computed

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

    def parts(self) -> Sequence[RunRequest]:
        """The requests as the service takes them. Raises: InvalidInput, NotSupported: one can't be used."""
        if not self.requests:
            raise InvalidInput("requests: a batch has at least one")
        parts: list[RunRequest] = []
        for place, body in enumerate(self.requests):
            with named_request(place):
                if body.streaming or body.callback_url is not None:
                    raise InvalidInput("a batch does not stream, and has one callback_url for all of its requests")
                parts.append(body.run_request(body.agent_id))
        return parts


class Job(
    WireShape,
    of=Batch,
    fields="created_at",
    unlisted={"ttft_ns": None, "created_by_id": ACTOR_ID, "last_updated_by_id": ACTOR_ID, **CALLBACK_FIELDS},
):
    """A batch, or a run as older clients know it. `metadata.runs` counts the runs of a batch by status."""

    id: JobIdIn
    job_type: Literal["run", "batch"] = "batch"
    agent_id: AgentIdIn | None = None
    status: WireRunStatus | Literal["expired"] = computed(lambda batch: wire_status(batch.status))
    updated_at: Time = computed(lambda batch: stamp(batch.ended_at or batch.created_at))
    completed_at: Time | None = computed(lambda batch: stamp(_end_of(batch)))
    background: bool | None = True
    metadata: Object = computed(lambda batch: {"runs": {wire_status(one): batch.runs[one] for one in batch.runs}})
    stop_reason: StopReason | None = None
    callback_url: str | None = CALLBACK_FIELDS["callback_url"]
    total_duration_ns: int | None = computed(lambda batch: ns_between(batch.created_at, _end_of(batch)))


def _end_of(batch: Batch) -> datetime | None:
    """When the last of its runs ended; None: one has not."""
    return batch.ended_at if batch.ended else None


def job_shape(job: jobs.Job) -> Job:
    """A run or batch as a job."""
    if isinstance(job, Batch):
        return Job.make(job)
    run = WireRun.make(job)
    return Job(
        id=PREFIXES["job"] + job.id.removeprefix(PREFIXES["run"]),
        job_type="run",
        **{name: run[name] for name in _SHARED},
        updated_at=run["completed_at"] or run["created_at"],
        **nulls("created_by_id", "last_updated_by_id"),
    )


router = Router(tags=["jobs"])

_Page = Annotated[Page, pages("job")]
_Batches = Annotated[Page, pages("job", limit=100)]
_Messages = Annotated[Page, pages("message", limit=100)]
_Key = Annotated[
    str | None, Header(min_length=1, max_length=KEY_MAX_CHARS, description="The same key again is the same batch.")
]


# --- batches


@router.post("/v1/messages/batches")
async def create_batch(library: Library, gate: ServerGate, body: BatchIn, idempotency_key: _Key = None) -> Job:
    """Send messages to several agents, and answer with the batch at once. All requests are accepted, or none; each is
    answered by a run of its own, and those to the same agent one after another."""
    batch = await library.jobs.send_batch(
        body.parts(), callback=gate.callback(body.callback_url), idempotency_key=idempotency_key
    )
    return Job.make(batch)


@router.get("/v1/messages/batches")
async def list_batches(library: Library, page: _Batches) -> list[Job]:
    """List batches."""
    return [Job.make(batch) for batch in await library.jobs.list_batches(page)]


@router.get("/v1/messages/batches/{batch_id}")
async def retrieve_batch(library: Library, batch_id: JobIdIn) -> Job:
    """Get a batch. Its status is that of its runs: `completed` if one brought an answer, `expired` if none is left."""
    return Job.make(await library.jobs.get_batch(BatchId(batch_id)))


@router.get("/v1/messages/batches/{batch_id}/messages")
async def list_batch_messages(
    library: Library, batch_id: JobIdIn, page: _Messages, agent_id: AgentIdIn | None = None
) -> BatchMessages:
    """List what the agents of the batch answered and their tools returned, by time; or one of the agents."""
    messages = await library.jobs.list_messages(BatchId(batch_id), agent_id, page)
    return {"messages": [StoredMessage.make(message) for message in messages]}


@router.patch("/v1/messages/batches/{batch_id}/cancel")
async def cancel_batch(library: Library, batch_id: JobIdIn) -> Job:
    """Cancel the runs of the batch that have not ended, and answer with the batch as it then stands."""
    return Job.make(await library.jobs.cancel_batch(BatchId(batch_id)))


# --- jobs


@router.get("/v1/jobs/", deprecated=True)
async def list_jobs(
    library: Library, page: _Page, active: bool = False, source_id: FolderIdIn | None = None
) -> list[Job]:
    """List batches, and all agents' runs, as jobs; `active`: unfinished. Reading a file is no job here."""
    jobs = [] if source_id is not None else await library.jobs.list(page, active=active)
    return [job_shape(job) for job in jobs]


@router.get("/v1/jobs/active", deprecated=True)
async def list_active_jobs(library: Library, page: _Page, source_id: FolderIdIn | None = None) -> list[Job]:
    """List the jobs that have not ended."""
    return await list_jobs(library, page, active=True, source_id=source_id)


@router.get("/v1/jobs/{job_id}", deprecated=True)
async def retrieve_job(library: Library, job_id: JobIdIn) -> Job:
    """Get a batch, or a run as a job."""
    return job_shape(await library.jobs.get(job_id))


@router.patch("/v1/jobs/{job_id}/cancel", deprecated=True)
async def cancel_job(library: Library, job_id: JobIdIn) -> Job:
    """Cancel a batch or run and answer with it as a job. One that has ended stays as it is."""
    return job_shape(await library.jobs.cancel(job_id))


@router.delete("/v1/jobs/{job_id}", deprecated=True)
async def delete_job(library: Library, job_id: JobIdIn) -> Job:
    """Delete an ended batch or run; answer with it as a job. Its messages stay, and a batch's runs."""
    return job_shape(await library.jobs.delete(job_id))
