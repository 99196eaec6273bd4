"""Archives: making, finding, changing, sharing and removing them; their passages are in `routes.archive_passages`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

from fastapi import APIRouter, Query, Response

from perdure.core.ids import AgentId, ArchiveId
from perdure.core.passages import Archive
from perdure.domain.archives.units import attach_archive, create_archive, detach_archive, update_archive
from perdure.library.paging import Page
from perdure.server.deps import Library
from perdure.server.encoding import json_answer
from perdure.server.ids import AgentPath, ArchivePath, IdFormat
from perdure.server.wire.archives import ArchiveChangesIn, ArchiveIn, archive_shape
from perdure.server.wire.paging import pages
from perdure.storage.tx import Tx

__all__ = ["router"]

router = APIRouter(tags=["archives"])

_AgentQuery = Annotated[Annotated[str, IdFormat("agent")] | None, Query()]


@router.post("/v1/archives/")
async def create(body: ArchiveIn, library: Library) -> Response:
    """Make an archive that no agent has yet."""
    app = library.app
    archive = await app.store.write(
        create_archive,
        ArchiveId(app.ports.ids.new("archive")),
        body.name,
        at=app.ports.clock.now(),
        description=body.description,
        metadata=body.kept_metadata,
    )
    return json_answer(archive_shape(archive, app.embedder))


@router.get("/v1/archives/")
async def list_archives(
    library: Library,
    page: Annotated[Page, pages("archive", limit=50, order="desc")],
    agent_id: _AgentQuery = None,
    name: Annotated[str | None, Query(description="The whole name.")] = None,
    order_by: Annotated[Literal["created_at"] | None, Query()] = None,
) -> Response:
    """Archives, newest first by default. `before` and `after` are relative to the order."""

    def unit(tx: Tx) -> Sequence[Archive]:
        if agent_id is not None:
            tx.agents.model(AgentId(agent_id))
        after, before = (
            None if cursor is None else tx.archives.get(ArchiveId(cursor)).number
            for cursor in (page.after, page.before)
        )
        above, below = (after, before) if page.ascending else (before, after)
        # With `before` alone the page is read from its end.
        reverse = before is not None and after is None
        found = tx.archives.list(
            agent_id=None if agent_id is None else AgentId(agent_id),
            name=name,
            above=above,
            below=below,
            newest_first=page.ascending is reverse,
            limit=page.limit,
        )
        return found[::-1] if reverse else found

    archives = await library.app.store.read(unit)
    return json_answer([archive_shape(archive, library.app.embedder) for archive in archives])


@router.get("/v1/archives/{archive_id}")
async def retrieve(archive_id: ArchivePath, library: Library) -> Response:
    """One archive."""
    archive = await library.app.store.read(lambda tx: tx.archives.get(archive_id))
    return json_answer(archive_shape(archive, library.app.embedder))


@router.patch("/v1/archives/{archive_id}")
async def update(archive_id: ArchivePath, body: ArchiveChangesIn, library: Library) -> Response:
    """Change what is given."""
    now = library.app.ports.clock.now()

    def unit(tx: Tx) -> Archive:
        return update_archive(tx, archive_id, body.changes(tx.archives.get(archive_id)), at=now)

    return json_answer(archive_shape(await library.app.store.write(unit), library.app.embedder))


@router.delete("/v1/archives/{archive_id}", status_code=204)
async def delete(archive_id: ArchivePath, library: Library) -> Response:
    """Remove the archive with its passages, after taking it from all agents. Should it be interrupted, asking again
    goes on."""
    await library.archives.delete(archive_id)
    return Response(status_code=204)


@router.patch("/v1/agents/{agent_id}/archives/attach/{archive_id}")
async def attach(agent_id: AgentPath, archive_id: ArchivePath, library: Library) -> Response:
    """Let the agent find what is in the archive; twice is no error. The first one takes what the agent puts away."""
    await library.app.store.write(attach_archive, agent_id, archive_id)
    return json_answer(None)


@router.patch("/v1/agents/{agent_id}/archives/detach/{archive_id}")
async def detach(agent_id: AgentPath, archive_id: ArchivePath, library: Library) -> Response:
    """Take the archive from the agent; its passages stay."""
    await library.app.store.write(detach_archive, agent_id, archive_id)
    return json_answer(None)
