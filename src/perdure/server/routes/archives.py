"""Archives: making, finding, changing, sharing and removing them; their passages are in `routes.archive_passages`."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Query, Response

from perdure.core.ids import AgentId
from perdure.library.paging import Page
from perdure.server.deps import Library
from perdure.server.encoding import json_answer
from perdure.server.ids import AgentPath, ArchivePath, IdFormat
from perdure.server.wire.archives import ArchiveChangesIn, ArchiveIn, archive_shape
from perdure.server.wire.paging import pages

router = APIRouter(tags=["archives"])

_AgentQuery = Annotated[Annotated[AgentId, IdFormat("agent")] | None, Query()]


@router.post("/v1/archives/")
async def create(body: ArchiveIn, library: Library) -> Response:
    """Make an archive that no agent has yet."""
    archive = await library.services.archives.create(
        body.name, description=body.description, metadata=body.stored_metadata
    )
    return json_answer(archive_shape(archive, library.app.embedder))


@router.get("/v1/archives/")
async def list_archives(
    library: Library,
    page: Annotated[Page, pages("archive", limit=50, order="desc")],
    agent_id: _AgentQuery = None,
    name: Annotated[str | None, Query(description="The whole name.")] = None,
    order_by: Annotated[Literal["created_at"] | None, Query()] = None,
) -> Response:
    """Archives, newest first by default. `before` and `after` are relative to the order."""
    archives = await library.services.archives.list(page, agent_id=agent_id, name=name)
    return json_answer([archive_shape(archive, library.app.embedder) for archive in archives])


@router.get("/v1/archives/{archive_id}")
async def retrieve(archive_id: ArchivePath, library: Library) -> Response:
    """One archive."""
    archive = await library.services.archives.get(archive_id)
    return json_answer(archive_shape(archive, library.app.embedder))


@router.patch("/v1/archives/{archive_id}")
async def update(archive_id: ArchivePath, body: ArchiveChangesIn, library: Library) -> Response:
    """Change what is given."""
    archive = await library.services.archives.update(archive_id, body.changes)
    return json_answer(archive_shape(archive, library.app.embedder))


@router.delete("/v1/archives/{archive_id}", status_code=204)
async def delete(archive_id: ArchivePath, library: Library) -> Response:
    """Remove the archive with its passages, after taking it from all agents. Should it be interrupted, asking again
    goes on."""
    await library.services.archives.delete(archive_id)
    return Response(status_code=204)


@router.patch("/v1/agents/{agent_id}/archives/attach/{archive_id}")
async def attach(agent_id: AgentPath, archive_id: ArchivePath, library: Library) -> Response:
    """Let the agent find what is in the archive; twice is no error. The first one takes what the agent puts away."""
    await library.services.archives.attach(agent_id, archive_id)
    return json_answer(None)


@router.patch("/v1/agents/{agent_id}/archives/detach/{archive_id}")
async def detach(agent_id: AgentPath, archive_id: ArchivePath, library: Library) -> Response:
    """Take the archive from the agent; its passages stay."""
    await library.services.archives.detach(agent_id, archive_id)
    return json_answer(None)
