"""The passages of an archive: put away, listed, changed and deleted, one or many."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from fastapi import APIRouter, Query, Response

from perdure.core.ids import ArchiveId, PassageId
from perdure.core.passages import Passage, PassageFilter, TagMatch
from perdure.domain.archives.batching import batches
from perdure.domain.archives.passages import delete_passage, new_passages, passage_in, update_passage
from perdure.domain.values import filter_tags
from perdure.library.paging import Page
from perdure.library.perdure import AsyncPerdure
from perdure.server.deps import Library
from perdure.server.encoding import json_answer
from perdure.server.ids import ArchivePath, PassagePath
from perdure.server.limits import Tags
from perdure.server.wire.paging import pages
from perdure.server.wire.passages import (
    DeleteSelected,
    PassageChangesIn,
    PassageIn,
    PassagesIn,
    add_passages,
    passage_shape,
)
from perdure.storage.tx import Tx

__all__ = ["passages_page", "router"]

router = APIRouter(tags=["archives"])


@router.post("/v1/archives/{archive_id}/passages")
async def create(archive_id: ArchivePath, body: PassageIn, library: Library) -> Response:
    """Put a text away; it is found at once."""
    return json_answer(passage_shape((await _insert(library, archive_id, [body]))[0]))


@router.post("/v1/archives/{archive_id}/passages/batch")
async def create_many(archive_id: ArchivePath, body: PassagesIn, library: Library) -> Response:
    """Put texts away. All are looked at before the first is stored; then they are stored in batches of 500."""
    await library.app.store.read(lambda tx: tx.archives.get(archive_id))
    added = await _insert(library, archive_id, body.passages)
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
    where = PassageFilter(tags=filter_tags(tags or ()), tag_match=tag_match_mode)
    found = await library.app.store.read(passages_page, archive_id, page, where=where, text=search)
    return json_answer([passage_shape(passage) for passage in found])


def passages_page(
    tx: Tx, archive_id: ArchiveId, page: Page, *, where: PassageFilter | None = None, text: str | None = None
) -> Sequence[Passage]:
    """A page of an archive's passages. Raises: NotFound: no such archive, or a cursor that is none of its passages."""
    tx.archives.get(archive_id)
    after, before = (
        None if cursor is None else passage_in(tx, archive_id, PassageId(cursor)).seq
        for cursor in (page.after, page.before)
    )
    above, below = (after, before) if page.ascending else (before, after)
    reverse = before is not None and after is None  # with `before` alone the page is read from its end
    found = tx.passages.page(
        archive_id,
        where=where,
        text=text,
        above=above,
        below=below,
        newest_first=page.ascending is reverse,
        limit=page.limit,
    )
    return found[::-1] if reverse else found


@router.patch("/v1/archives/{archive_id}/passages/{passage_id}")
async def update(
    archive_id: ArchivePath, passage_id: PassagePath, body: PassageChangesIn, library: Library
) -> Response:
    """Change what is given; search finds the new text."""

    def unit(tx: Tx) -> Passage:
        return update_passage(tx, passage_in(tx, archive_id, passage_id), body.changes)

    return json_answer(passage_shape(await library.app.store.write(unit)))


@router.delete("/v1/archives/{archive_id}/passages/{passage_id}", status_code=204)
async def delete(archive_id: ArchivePath, passage_id: PassagePath, library: Library) -> Response:
    """Remove a passage."""

    def unit(tx: Tx) -> None:
        delete_passage(tx, passage_in(tx, archive_id, passage_id))

    await library.app.store.write(unit)
    return Response(status_code=204)


@router.post("/v1/archives/{archive_id}/passages/delete")
async def delete_selected(archive_id: ArchivePath, body: DeleteSelected, library: Library) -> Response:
    """Remove the passages that all conditions hold for, in batches of 500; with `dry_run` they are only counted."""
    selection, archive = body.selection, await library.archives.get(archive_id)
    where = selection.where
    matched = await archive.delete_where(
        text=selection.text,
        tags=where.tags,
        tag_match=where.tag_match,
        since=where.since,
        until=where.until,
        dry_run=body.dry_run,
    )
    return json_answer({"matched": matched, "deleted": 0 if body.dry_run else matched, "dry_run": body.dry_run})


async def _insert(library: AsyncPerdure, archive_id: ArchiveId, given: Sequence[PassageIn]) -> list[Passage]:
    ports = library.app.ports
    new, now = [one.new for one in given], ports.clock.now()
    passages = new_passages(new, archive_id, ids=ports.ids, at=now, limits=library.app.settings)
    embeddings = [one.embedding for one in given]
    added: list[Passage] = []
    for batch in batches(passages):
        own = embeddings[len(added) : len(added) + len(batch)]
        added += await ports.store.write(add_passages, archive_id, list(batch), own)
    return added
