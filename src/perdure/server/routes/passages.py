"""Archival memory: an agent's passages. Finding them is in `routes.search`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from fastapi import APIRouter, Query, Response

from perdure.core.errors import NotFound
from perdure.core.ids import AgentId, ArchiveId, PassageId
from perdure.core.passages import Passage
from perdure.domain.archives.passages import archive_of, delete_passage, new_passages, passage_of_agent, update_passage
from perdure.library.paging import Page
from perdure.server.deps import Library
from perdure.server.encoding import json_answer
from perdure.server.ids import AgentPath, PassagePath
from perdure.server.wire.paging import pages
from perdure.server.wire.passages import PassageChangesIn, PassageIn, add_passages, passage_shape
from perdure.storage.tx import Tx

__all__ = ["router"]

router = APIRouter(tags=["passages"])


@router.post("/v1/agents/{agent_id}/archival-memory")
async def create(agent_id: AgentPath, body: PassageIn, library: Library) -> Response:
    """Put a text away. The answer is a list, of one."""
    ports = library.app.ports
    now = ports.clock.now()

    def unit(tx: Tx) -> list[Passage]:
        tx.agents.model(agent_id)
        archive = archive_of(tx, agent_id, ArchiveId(ports.ids.new("archive")), at=now)
        return add_passages(
            tx,
            archive.id,
            new_passages([body.new], archive.id, ids=ports.ids, at=now, limits=tx.limits),
            [body.embedding],
        )

    return json_answer([passage_shape(passage) for passage in await ports.store.write(unit)])


@router.get("/v1/agents/{agent_id}/archival-memory")
async def list_passages(
    agent_id: AgentPath,
    library: Library,
    page: Annotated[Page, pages("passage", limit=100, order="asc")],
    search: Annotated[str | None, Query(description="A part of the text, in any case.")] = None,
) -> Response:
    """The agent's passages, oldest first by default. `before` and `after` are relative to the order."""
    passages = await library.app.store.read(_page, agent_id, page, search)
    return json_answer([passage_shape(passage) for passage in passages])


@router.delete("/v1/agents/{agent_id}/archival-memory/{memory_id}")
async def delete(agent_id: AgentPath, memory_id: PassagePath, library: Library) -> Response:
    """Remove a passage."""

    def unit(tx: Tx) -> None:
        tx.agents.model(agent_id)
        delete_passage(tx, passage_of_agent(tx, agent_id, memory_id))

    await library.app.store.write(unit)
    return json_answer({"message": f"Memory id={memory_id} successfully deleted"})


@router.patch("/v1/agents/{agent_id}/archival-memory/{memory_id}")
async def update(agent_id: AgentPath, memory_id: PassagePath, body: PassageChangesIn, library: Library) -> Response:
    """Change what is given; search finds the new text. The answer is a list, of one."""

    def unit(tx: Tx) -> Passage:
        tx.agents.model(agent_id)
        return update_passage(tx, passage_of_agent(tx, agent_id, memory_id), body.changes)

    return json_answer([passage_shape(await library.app.store.write(unit))])


def _page(tx: Tx, agent_id: AgentId, page: Page, text: str | None) -> Sequence[Passage]:
    """A page over all the agent's archives, one after the other in the order they were attached.

    Raises: NotFound: no such agent; the page begins at none of its passages.
    """
    tx.agents.model(agent_id)
    archives = [archive.id for archive in tx.archives.of_agent(agent_id)]

    def place_of(name: str, cursor: str | None) -> tuple[int, int] | None:
        if cursor is None:
            return None
        passage = tx.passages.get(PassageId(cursor))
        if passage.archive_id not in archives:
            raise NotFound("passage", cursor, hint=f"`{name}` must be one of the list")
        return archives.index(passage.archive_id), passage.seq

    after, before = place_of("after", page.after), place_of("before", page.before)
    low, high = (after, before) if page.ascending else (before, after)
    # With `before` alone the page is read from its end.
    reverse = before is not None and after is None
    newest_first = page.ascending is reverse
    found: list[Passage] = []
    places = range(len(archives))
    for place in reversed(places) if newest_first else places:
        if (low is not None and place < low[0]) or (high is not None and place > high[0]) or len(found) >= page.limit:
            continue
        found += tx.passages.page(
            archives[place],
            text=text,
            above=low[1] if low is not None and place == low[0] else None,
            below=high[1] if high is not None and place == high[0] else None,
            newest_first=newest_first,
            limit=page.limit - len(found),
        )
    return found[::-1] if reverse else found
