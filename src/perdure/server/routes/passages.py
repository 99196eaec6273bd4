"""Passages, of an agent and of an archive."""

from __future__ import annotations

from typing import Annotated

from fastapi import Query

from perdure.core.passages import PassageState, TagMatch
from perdure.library.memory.passages import passage_filter
from perdure.library.parts.checks import Page
from perdure.server.wire.answers import Confirmation, Deleted
from perdure.server.wire.archives import DeleteSelected, PassageChangesIn, PassageIn, PassagesIn, WirePassage
from perdure.server.wire.fields import AgentIdIn, ArchiveIdIn, Items, PassageIdIn, Tags
from perdure.server.wire.http import Library, Router, ThisAgent, pages

router = Router(tags=["passages"])

_SEARCH = (
    "A part of the text, in any case. Behind the first 2,000 passages it begins where a word begins, and one or two"
    " letters alone are a word."
)
SearchedText = Annotated[str | None, Query(description=_SEARCH)]
States = Annotated[Items[PassageState] | None, Query(description="Several: any of them; without it, all.")]


@router.post("/v1/agents/{agent_id}/archival-memory")
async def create(agent: ThisAgent, body: PassageIn) -> list[WirePassage]:
    """Store a text. The answer is a list, of one."""
    return [WirePassage.make(await agent.archive_passage(body.new))]


@router.get("/v1/agents/{agent_id}/archival-memory")
async def list_passages(
    agent: ThisAgent,
    page: Annotated[Page, pages("passage", limit=100, order="asc")],
    search: SearchedText = None,
    state: States = None,
) -> list[WirePassage]:
    """List the agent's passages, oldest first by default, also those that have faded or are archived."""
    where = passage_filter(states=state or ())
    passages = await agent.list_passages(page, text=search, where=where)
    return [WirePassage.make(passage) for passage in passages]


@router.delete("/v1/agents/{agent_id}/archival-memory/{memory_id}")
async def delete(agent_id: AgentIdIn, memory_id: PassageIdIn, library: Library) -> Confirmation:
    """Remove a passage."""
    await library.passages_of(agent_id).delete_passage(memory_id)
    return {"message": f"Memory id={memory_id} successfully deleted"}


@router.patch("/v1/agents/{agent_id}/archival-memory/{memory_id}")
async def update(
    agent_id: AgentIdIn, memory_id: PassageIdIn, body: PassageChangesIn, library: Library
) -> list[WirePassage]:
    """Change the fields that are set; search finds the new text. The answer is a list, of one."""
    return [WirePassage.make(await library.passages_of(agent_id).update_passage(memory_id, **body.changes))]


@router.post("/v1/passages/{passage_id}/restore")
async def restore(passage_id: PassageIdIn, library: Library) -> WirePassage:
    """Have a passage recalled and found again that has faded or is archived. This route is not part of Letta's API."""
    return WirePassage.make(await library.archives.restore_passage(passage_id))


# --- of an archive


@router.post("/v1/archives/{archive_id}/passages")
async def create_in_archive(archive_id: ArchiveIdIn, body: PassageIn, library: Library) -> WirePassage:
    """Store a text; search finds it at once."""
    [passage] = await library.archive_of(archive_id).insert_many([body.new])
    return WirePassage.make(passage)


@router.post("/v1/archives/{archive_id}/passages/batch")
async def create_batch(archive_id: ArchiveIdIn, body: PassagesIn, library: Library) -> list[WirePassage]:
    """Store texts. All are checked before the first is stored; then they are stored in batches of 500."""
    passages = await library.archive_of(archive_id).insert_many([passage.new for passage in body.passages])
    return [WirePassage.make(passage) for passage in passages]


@router.get("/v1/archives/{archive_id}/passages")
async def list_of_archive(
    archive_id: ArchiveIdIn,
    library: Library,
    page: Annotated[Page, pages("passage", limit=100, order="asc")],
    search: SearchedText = None,
    tags: Annotated[Tags | None, Query()] = None,
    tag_match_mode: TagMatch = "any",
    state: States = None,
) -> list[WirePassage]:
    """List the archive's passages, oldest first by default, also those that have faded or are archived."""
    where = passage_filter(tags=tags or (), tag_match=tag_match_mode, states=state or ())
    passages = await library.archive_of(archive_id).list_passages(page, where=where, text=search)
    return [WirePassage.make(passage) for passage in passages]


@router.patch("/v1/archives/{archive_id}/passages/{passage_id}")
async def update_in_archive(
    archive_id: ArchiveIdIn, passage_id: PassageIdIn, body: PassageChangesIn, library: Library
) -> WirePassage:
    """Change the fields that are set; search finds the new text."""
    return WirePassage.make(await library.passages_of(archive_id).update_passage(passage_id, **body.changes))


@router.delete("/v1/archives/{archive_id}/passages/{passage_id}", status_code=204)
async def delete_from_archive(archive_id: ArchiveIdIn, passage_id: PassageIdIn, library: Library) -> None:
    """Remove a passage."""
    await library.passages_of(archive_id).delete_passage(passage_id)


@router.post("/v1/archives/{archive_id}/passages/delete")
async def delete_selected(archive_id: ArchiveIdIn, body: DeleteSelected, library: Library) -> Deleted:
    """Remove the passages that meet all conditions, in batches of 500; with `dry_run` they are only counted."""
    matched = await library.archive_of(archive_id).delete_selection(body.selection, dry_run=body.dry_run)
    return {"matched": matched, "deleted": 0 if body.dry_run else matched, "dry_run": body.dry_run}
