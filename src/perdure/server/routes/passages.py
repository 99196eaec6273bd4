"""Archival memory: an agent's passages. Finding them is in `routes.search`."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Response

from perdure.library.paging import Page
from perdure.server.deps import Library
from perdure.server.encoding import json_answer
from perdure.server.ids import AgentPath, PassagePath
from perdure.server.wire.paging import pages
from perdure.server.wire.passages import PassageChangesIn, PassageIn, passage_shape

router = APIRouter(tags=["passages"])


@router.post("/v1/agents/{agent_id}/archival-memory")
async def create(agent_id: AgentPath, body: PassageIn, library: Library) -> Response:
    """Put a text away. The answer is a list, of one."""
    return json_answer([passage_shape(await library.services.passages.insert_of_agent(agent_id, body.new))])


@router.get("/v1/agents/{agent_id}/archival-memory")
async def list_passages(
    agent_id: AgentPath,
    library: Library,
    page: Annotated[Page, pages("passage", limit=100, order="asc")],
    search: Annotated[str | None, Query(description="A part of the text, in any case.")] = None,
) -> Response:
    """The agent's passages, oldest first by default. `before` and `after` are relative to the order."""
    passages = await library.services.passages.list_of_agent(agent_id, page, text=search)
    return json_answer([passage_shape(passage) for passage in passages])


@router.delete("/v1/agents/{agent_id}/archival-memory/{memory_id}")
async def delete(agent_id: AgentPath, memory_id: PassagePath, library: Library) -> Response:
    """Remove a passage."""
    await library.services.passages.delete(agent_id, memory_id)
    return json_answer({"message": f"Memory id={memory_id} successfully deleted"})


@router.patch("/v1/agents/{agent_id}/archival-memory/{memory_id}")
async def update(agent_id: AgentPath, memory_id: PassagePath, body: PassageChangesIn, library: Library) -> Response:
    """Change what is given; search finds the new text. The answer is a list, of one."""
    passage = await library.services.passages.update(agent_id, memory_id, body.changes)
    return json_answer([passage_shape(passage)])
