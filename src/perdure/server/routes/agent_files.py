"""An agent's folders and files: which it has, and which are open."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Response

from perdure.core.files import AgentFile
from perdure.core.ids import AgentId, FileId
from perdure.domain.files.folders import detach_folder
from perdure.domain.files.views import limits_of, view_of
from perdure.engine.ports import window_tokens
from perdure.library.folders import AsyncAgentFiles, attach_opening
from perdure.library.paging import Page
from perdure.server.deps import Library
from perdure.server.encoding import json_answer
from perdure.server.ids import AgentPath, FilePath, FolderPath
from perdure.server.routes.agents import changed_agent
from perdure.server.wire.folders import agent_file_shape, file_id_of, folder_shape
from perdure.server.wire.paging import Limit, Order, pages
from perdure.storage.tx import Tx

__all__ = ["router"]

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

    def unit(tx: Tx) -> list[dict[str, Any]]:
        tx.agents.model(agent_id)
        found = page.select(tx.folders.of_agent(agent_id), kind="folder of this agent", id_of=lambda folder: folder.id)
        return [folder_shape(folder, library.app.embedder) for folder in found]

    return json_answer(await library.app.store.read(unit))


@router.patch("/v1/agents/{agent_id}/folders/attach/{folder_id}")
async def attach(agent_id: AgentPath, folder_id: FolderPath, library: Library) -> Response:
    """Give the agent a folder, and the tools to read files; its files are opened while there is room."""
    ports = library.app.ports

    def unit(tx: Tx) -> AgentId:
        attach_opening(tx, ports, agent_id, folder_id)
        return agent_id

    return await changed_agent(library, unit)


@router.patch("/v1/agents/{agent_id}/folders/detach/{folder_id}")
async def detach(agent_id: AgentPath, folder_id: FolderPath, library: Library) -> Response:
    """Take a folder away, and with the last one the tools to read files."""

    def unit(tx: Tx) -> AgentId:
        detach_folder(tx, agent_id, folder_id)
        return agent_id

    return await changed_agent(library, unit)


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
    """The files of the agent's folders, with what of each is in view."""
    app, most = library.app, limit or LIMIT
    after = after or cursor

    def unit(tx: Tx) -> tuple[list[dict[str, Any]], bool]:
        agent = tx.agents.get(agent_id)
        limits = limits_of(agent, window_tokens(agent, app.ports.models, app.ports.settings))
        numbers = {folder.id: folder.number for folder in tx.folders.of_agent(agent_id)}

        def place(text: str | None) -> tuple[int, int] | None:
            if text is None:
                return None
            file = tx.agent_files.get(agent_id, FileId(file_id_of(agent_id, text))).file
            return numbers[file.folder_id], file.number

        ascending = order == "asc"
        above, below = (place(after), place(before)) if ascending else (place(before), place(after))
        reverse = before is not None and after is None
        found: Sequence[AgentFile] = tx.agent_files.list(
            agent_id, is_open=is_open, above=above, below=below, newest_first=ascending is reverse, limit=most + 1
        )
        more, found = len(found) > most, found[:most]
        shapes: list[dict[str, Any]] = []
        for file in found[::-1] if reverse else found:
            visible = None
            if file.is_open:
                view = view_of(
                    tx,
                    file.file,
                    file.first_line,
                    file.last_line,
                    max_chars=limits.view_chars,
                    tokens=limits.section_tokens,
                    counter=app.ports.counter,
                )
                visible = view.whole
            shapes.append(agent_file_shape(agent_id, file, visible))
        return shapes, more

    files, more = await app.store.read(unit)
    return json_answer({"files": files, "next_cursor": files[-1]["id"] if more else None, "has_more": more})


# `close-all` is no file's id, so this one stands before the routes that take one.
@router.patch("/v1/agents/{agent_id}/files/close-all")
async def close_all(agent_id: AgentPath, library: Library) -> Response:
    """Close all files; the answer is which they were."""
    closed = await AsyncAgentFiles(library.app, agent_id).close_all()
    return json_answer([file.path for file in closed])


@router.patch("/v1/agents/{agent_id}/files/{file_id}/open")
async def open_file(agent_id: AgentPath, file_id: FilePath, library: Library) -> Response:
    """Have a file in the agent's view; the answer is which files were closed for it."""
    closed = await AsyncAgentFiles(library.app, agent_id).open(file_id)
    return json_answer([file.path for file in closed])


@router.patch("/v1/agents/{agent_id}/files/{file_id}/close")
async def close_file(agent_id: AgentPath, file_id: FilePath, library: Library) -> Response:
    """Take a file out of the agent's view."""
    await AsyncAgentFiles(library.app, agent_id).close(file_id)
    return json_answer(None)
