"""Archives: creating, listing, changing, sharing and removing them. Their passages are in `routes.passages`."""

from __future__ import annotations

from typing import Annotated

from fastapi import Query

from perdure.core.agents import AgentFilter
from perdure.library.parts.checks import Page
from perdure.server.routes.agents import AgentsPage, agents_answer
from perdure.server.wire.agents import WireAgent
from perdure.server.wire.archives import ArchiveChangesIn, ArchiveIn, WireArchive, archive_shape
from perdure.server.wire.fields import AgentIdIn, ArchiveIdIn
from perdure.server.wire.http import Library, Router, pages

router = Router(tags=["archives"])


@router.post("/v1/archives/")
async def create(body: ArchiveIn, library: Library) -> WireArchive:
    """Create an archive that no agent has yet."""
    return archive_shape((await library.archives.add(body.fields)).info, library.app.embedder)


@router.get("/v1/archives/")
async def list_archives(
    library: Library,
    page: Annotated[Page, pages("archive")],
    agent_id: AgentIdIn | None = None,
    name: Annotated[str | None, Query(description="The whole name.")] = None,
) -> list[WireArchive]:
    """List archives, newest first by default."""
    archives = await library.archives.page(page, agent_id=agent_id, name=name)
    return [archive_shape(archive, library.app.embedder) for archive in archives]


@router.get("/v1/archives/{archive_id}")
async def retrieve(archive_id: ArchiveIdIn, library: Library) -> WireArchive:
    """Get an archive."""
    return archive_shape((await library.archives.get(archive_id)).info, library.app.embedder)


@router.patch("/v1/archives/{archive_id}")
async def update(archive_id: ArchiveIdIn, body: ArchiveChangesIn, library: Library) -> WireArchive:
    """Change the fields that are set."""
    return archive_shape(await library.archive_of(archive_id).edit(body.changes), library.app.embedder)


@router.delete("/v1/archives/{archive_id}", status_code=204)
async def delete(archive_id: ArchiveIdIn, library: Library) -> None:
    """Take the archive from all agents, and remove it with its passages. If this is interrupted, repeat the request."""
    await library.archive_of(archive_id).delete()


@router.get("/v1/archives/{archive_id}/agents")
async def list_agents(archive_id: ArchiveIdIn, library: Library, page: AgentsPage) -> list[WireAgent]:
    """List the agents that have the archive, newest first by default."""
    await library.archives.get(archive_id)
    return await agents_answer(library, AgentFilter(archive_id=archive_id), page)


@router.patch("/v1/agents/{agent_id}/archives/attach/{archive_id}")
async def attach(agent_id: AgentIdIn, archive_id: ArchiveIdIn, library: Library) -> None:
    """Let the agent search the archive; twice is no error. New passages of the agent go to its first archive."""
    await library.agent_of(agent_id).archives.attach(archive_id)


@router.patch("/v1/agents/{agent_id}/archives/detach/{archive_id}")
async def detach(agent_id: AgentIdIn, archive_id: ArchiveIdIn, library: Library) -> None:
    """Take the archive from the agent; its passages stay."""
    await library.agent_of(agent_id).archives.detach(archive_id)
