"""The passages of an archive: put away, listed, changed and deleted, one or many."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Response

from perdure.core.passages import TagMatch
from perdure.library.paging import Page
from perdure.library.services.passages import passage_filter
from perdure.server.deps import Library
from perdure.server.encoding import json_answer
from perdure.server.ids import ArchivePath, PassagePath
from perdure.server.limits import Tags
from perdure.server.wire.paging import pages
from perdure.server.wire.passages import DeleteSelected, PassageChangesIn, PassageIn, PassagesIn, passage_shape

router = APIRouter(tags=["archives"])


@router.post("/v1/archives/{archive_id}/passages")
async def create(archive_id: ArchivePath, body: PassageIn, library: Library) -> Response:
    """Put a text away; it is found at once."""
    added = await library.services.passages.insert(archive_id, [body.new])
    return json_answer(passage_shape(added[0]))


@router.post("/v1/archives/{archive_id}/passages/batch")
async def create_many(archive_id: ArchivePath, body: PassagesIn, library: Library) -> Response:
    """Put texts away. All are looked at before the first is stored; then they are stored in batches of 500."""
    added = await library.services.passages.insert(archive_id, [passage.new for passage in body.passages])
    return json_answer([passage_shape(passage) for passage in added])


@router.get("/v1/archives/{archive_id}/passages")
async def list_passages(
    archive_id: ArchivePath,
    library: Library,
    page: Annotated[Page, pages("passage", limit=100, order="asc")],
    search: Annotated[str | None, Query(description="A part of the text, in any case.")] = None,
    tags: Annotated[Tags | None, Query()] = None,
    tag_match_mode: TagMatch = "any",
) -> Response:
    """The archive's passages, oldest first by default. `before` and `after` are relative to the order."""
    where = passage_filter(tags=tags or (), tag_match=tag_match_mode)
    found = await library.services.passages.list(archive_id, page, where=where, text=search)
    return json_answer([passage_shape(passage) for passage in found])


@router.patch("/v1/archives/{archive_id}/passages/{passage_id}")
async def update(
    archive_id: ArchivePath, passage_id: PassagePath, body: PassageChangesIn, library: Library
) -> Response:
    """Change what is given; search finds the new text."""
    passage = await library.services.passages.update(archive_id, passage_id, body.changes)
    return json_answer(passage_shape(passage))


@router.delete("/v1/archives/{archive_id}/passages/{passage_id}", status_code=204)
async def delete(archive_id: ArchivePath, passage_id: PassagePath, library: Library) -> Response:
    """Remove a passage."""
    await library.services.passages.delete(archive_id, passage_id)
    return Response(status_code=204)


@router.post("/v1/archives/{archive_id}/passages/delete")
async def delete_selected(archive_id: ArchivePath, body: DeleteSelected, library: Library) -> Response:
    """Remove the passages that all conditions hold for, in batches of 500; with `dry_run` they are only counted."""
    matched = await library.services.passages.delete_where(archive_id, body.selection, dry_run=body.dry_run)
    return json_answer({"matched": matched, "deleted": 0 if body.dry_run else matched, "dry_run": body.dry_run})
