"""Batches of messages, and jobs: batches and runs as older clients know them."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Header
from starlette.responses import Response

from perdure.core.ids import BatchId
from perdure.engine.run.accept import KEY_MAX_CHARS
from perdure.library.paging import Page
from perdure.server.http import Library, json_answer, pages
from perdure.server.routes.mcp_servers import Guard
from perdure.server.wire.context import context_message
from perdure.server.wire.fields import AgentIdIn, FolderIdIn, JobIdIn
from perdure.server.wire.jobs import BatchIn, wire_batch, wire_job

router = APIRouter(tags=["jobs"])

_Page = Annotated[Page, pages("job", limit=50, order="desc")]
_Batches = Annotated[Page, pages("job", limit=100, order="desc")]
_Messages = Annotated[Page, pages("message", limit=100, order="desc")]
_Key = Annotated[
    str | None,
    Header(min_length=1, max_length=KEY_MAX_CHARS, description="The same key again is the same batch."),
]


# --- batches


@router.post("/v1/messages/batches")
async def create_batch(library: Library, guard: Guard, body: BatchIn, idempotency_key: _Key = None) -> Response:
    """Send messages to several agents, and answer with the batch at once. All requests are accepted, or none; each is
    answered by a run of its own, and those to the same agent one after another."""
    batch = await library.services.jobs.send_batch(
        body.parts(), callback=guard.callback(body.callback_url), idempotency_key=idempotency_key
    )
    return json_answer(wire_batch(batch))


@router.get("/v1/messages/batches")
async def list_batches(library: Library, page: _Batches) -> Response:
    """List batches."""
    return json_answer([wire_batch(batch) for batch in await library.services.jobs.list_batches(page)])


@router.get("/v1/messages/batches/{batch_id}")
async def retrieve_batch(library: Library, batch_id: JobIdIn) -> Response:
    """Get a batch. Its status is that of its runs: `completed` if at least one brought an answer."""
    return json_answer(wire_batch(await library.services.jobs.get_batch(BatchId(batch_id))))


@router.get("/v1/messages/batches/{batch_id}/messages")
async def list_batch_messages(
    library: Library, batch_id: JobIdIn, page: _Messages, agent_id: AgentIdIn | None = None
) -> Response:
    """List what the agents of the batch answered and their tools returned, by time; or one of the agents."""
    messages = await library.services.jobs.list_messages(BatchId(batch_id), agent_id, page)
    return json_answer({"messages": [context_message(message) for message in messages]})


@router.patch("/v1/messages/batches/{batch_id}/cancel")
async def cancel_batch(library: Library, batch_id: JobIdIn) -> Response:
    """Cancel the runs of the batch that have not ended, and answer with the batch as it then stands."""
    return json_answer(wire_batch(await library.services.jobs.cancel_batch(BatchId(batch_id))))


# --- jobs


@router.get("/v1/jobs/", deprecated=True)
async def list_jobs(
    library: Library, page: _Page, active: bool = False, source_id: FolderIdIn | None = None
) -> Response:
    """List batches, and the runs of all agents as jobs; `active` ones have not ended. Reading a file is no job here, so
    a folder has none."""
    jobs = [] if source_id is not None else await library.services.jobs.list(page, active=active)
    return json_answer([wire_job(job) for job in jobs])


@router.get("/v1/jobs/active", deprecated=True)
async def list_active_jobs(library: Library, page: _Page, source_id: FolderIdIn | None = None) -> Response:
    """List the jobs that have not ended."""
    return await list_jobs(library, page, active=True, source_id=source_id)


@router.get("/v1/jobs/{job_id}", deprecated=True)
async def retrieve_job(library: Library, job_id: JobIdIn) -> Response:
    """Get a batch, or a run as a job."""
    return json_answer(wire_job(await library.services.jobs.get(job_id)))


@router.patch("/v1/jobs/{job_id}/cancel", deprecated=True)
async def cancel_job(library: Library, job_id: JobIdIn) -> Response:
    """Cancel a batch or run and answer with it as a job. One that has ended stays as it is."""
    return json_answer(wire_job(await library.services.jobs.cancel(job_id)))


@router.delete("/v1/jobs/{job_id}", deprecated=True)
async def delete_job(library: Library, job_id: JobIdIn) -> Response:
    """Delete a batch or run that has ended, and answer with it as a job. Its messages stay in the history, and a
    batch's runs stay."""
    return json_answer(wire_job(await library.services.jobs.delete(job_id)))
