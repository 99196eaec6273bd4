"""An agent's folders and files: which it has, and which are open."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Query, Response

from perdure.library.paging import Page
from perdure.server.deps import Library
from perdure.server.encoding import json_answer
from perdure.server.ids import AgentPath, FilePath, FolderPath
from perdure.server.routes.agents import agent_answer
from perdure.server.wire.folders import agent_file_shape, file_id_of, folder_shape
from perdure.server.wire.paging import Limit, Order, pages

router = APIRouter(tags=["agent files"])

LIMIT = 100
_OrderBy = Annotated[Literal["created_at"] | None, Query()]


@router.get("/v1/agents/{agent_id}/folders")
async def list_folders(
    agent_id: AgentPath,
    library: Library,
    page: Annotated[Page, pages("folder", limit=100, order="desc")],
    order_by: _OrderBy = None,
) -> Response:
    """The agent's folders; `asc` is the order in which they were attached."""
    folders = await library.services.folders.list_of_agent(agent_id, page)
    return json_answer([folder_shape(folder, library.app.embedder) for folder in folders])


@router.patch("/v1/agents/{agent_id}/folders/attach/{folder_id}")
async def attach(agent_id: AgentPath, folder_id: FolderPath, library: Library) -> Response:
    """Give the agent a folder, and the tools to read files; its files are opened while there is room."""
    await library.services.folders.attach(agent_id, folder_id)
    return await agent_answer(library, agent_id)


@router.patch("/v1/agents/{agent_id}/folders/detach/{folder_id}")
async def detach(agent_id: AgentPath, folder_id: FolderPath, library: Library) -> Response:
    """Take a folder away, and with the last one the tools to read files."""
    await library.services.folders.detach(agent_id, folder_id)
    return await agent_answer(library, agent_id)


@router.get("/v1/agents/{agent_id}/files")
async def list_files(
    agent_id: AgentPath,
    library: Library,
    limit: Limit = None,
    order: Annotated[Order, Query()] = "desc",
    before: Annotated[str | None, Query(description="The id of a file of the list.")] = None,
    after: Annotated[str | None, Query(description="The id of a file of the list.")] = None,
    cursor: Annotated[str | None, Query(description="The older name of `after`.")] = None,
    is_open: Annotated[bool | None, Query(description="Only the open files, or only the others.")] = None,
    order_by: _OrderBy = None,
) -> Response:
    """The files of the agent's folders, each with its text in view."""
    places = [None if text is None else file_id_of(agent_id, text) for text in (after or cursor, before)]
    page = Page(limit or LIMIT, order == "asc", *places)
    found = await library.services.agent_files.load_page(agent_id, page, is_open=is_open)
    files = [agent_file_shape(agent_id, file, text) for file, text in found.files]
    next_cursor = files[-1]["id"] if found.has_more else None
    return json_answer({"files": files, "next_cursor": next_cursor, "has_more": found.has_more})


# `close-all` is no file's id, so this one stands before the routes that take one.
@router.patch("/v1/agents/{agent_id}/files/close-all")
async def close_all(agent_id: AgentPath, library: Library) -> Response:
    """Close all files; the answer is which they were."""
    closed = await library.services.agent_files.close_all(agent_id)
    return json_answer([file.path for file in closed])


@router.patch("/v1/agents/{agent_id}/files/{file_id}/open")
async def open_file(agent_id: AgentPath, file_id: FilePath, library: Library) -> Response:
    """Have a file in the agent's view; the answer is which files were closed for it."""
    closed = await library.services.agent_files.open(agent_id, file_id)
    return json_answer([file.path for file in closed])


@router.patch("/v1/agents/{agent_id}/files/{file_id}/close")
async def close_file(agent_id: AgentPath, file_id: FilePath, library: Library) -> Response:
    """Take a file out of the agent's view."""
    await library.services.agent_files.close(agent_id, file_id)
    return json_answer(None)
