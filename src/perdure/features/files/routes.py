"""Folders and their files, and those of an agent. `sources` is the older name of folders on the wire."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, Any, TypeVar

from fastapi import Query, Request

from perdure.core import agents as core
from perdure.core.ids import AgentId
from perdure.features.files import wire
from perdure.features.files.file_service import FileState
from perdure.features.files.folder_service import AsyncAgentFiles
from perdure.features.files.values import IfExists
from perdure.library.parts.checks import Page
from perdure.library.perdure import AsyncPerdure
from perdure.server.routes.agents import AgentsPage, agent_answer
from perdure.server.wire.agents import WireAgent
from perdure.server.wire.archives import WirePassage
from perdure.server.wire.fields import AgentIdIn, FileIdIn, FolderIdIn
from perdure.server.wire.http import Library, Limit, Order, OrderBy, Router, ThisAgent, form_with_file, pages

router = Router(tags=["folders"])

FILE_BLOCKS_MAX = 100
"""The most files that an agent's answer shows as blocks; its list of files has all."""

Route = TypeVar("Route", bound=Callable[..., Any])


def _route(method: str, path: str, **options: Any) -> Callable[[Route], Route]:
    """Serve a route of folders, and the same one of `sources`, as clients up to 1.6 call it."""

    def add(function: Route) -> Route:
        """Add the route, and its older form under `/sources`."""
        router.add_api_route(path, function, methods=[method], **options)
        older = path.replace("folders", "sources")
        router.add_api_route(older, function, methods=[method], deprecated=True, **options)
        return function

    return add


@_route("POST", "/v1/folders/")
async def create(body: wire.FolderIn, library: Library) -> wire.Folder:
    """Create a folder that no agent has yet."""
    return wire.folder_shape((await library.folders.add(body.changes())).info, library.app.embedder)


@_route("GET", "/v1/folders/")
async def list_folders(
    library: Library,
    page: Annotated[Page, pages("folder", order="asc")],
    name: Annotated[str | None, Query(description="The whole name.")] = None,
) -> list[wire.Folder]:
    """List folders, oldest first by default."""
    return [wire.folder_shape(folder, library.app.embedder) for folder in await library.folders.page(page, name=name)]


@_route("GET", "/v1/folders/count")
async def count(library: Library) -> int:
    """Count the folders."""
    return await library.folders.count()


@_route("GET", "/v1/folders/metadata")
async def retrieve_metadata(library: Library, include_detailed_per_source_metadata: bool = False) -> wire.FolderSizes:
    """Count the folders, their files and bytes; with each folder's files if the request includes them."""
    return wire.FolderSizes.make(await library.folders.sizes(with_files=include_detailed_per_source_metadata))


@_route("GET", "/v1/folders/name/{folder_name}")
async def retrieve_id(folder_name: str, library: Library) -> FolderIdIn:
    """Get the id of the folder of this name."""
    return await library.folders.get_id(folder_name)


@_route("GET", "/v1/folders/{folder_id}")
async def retrieve(folder_id: FolderIdIn, library: Library) -> wire.Folder:
    """Get a folder."""
    return wire.folder_shape((await library.folders.get(folder_id)).info, library.app.embedder)


@_route("PATCH", "/v1/folders/{folder_id}")
async def update(folder_id: FolderIdIn, body: wire.FolderChangesIn, library: Library) -> wire.Folder:
    """Change the fields that are set."""
    return wire.folder_shape(
        (await library.folders.by_id(folder_id).update(**body.changes())).info, library.app.embedder
    )


@_route("DELETE", "/v1/folders/{folder_id}")
async def delete(folder_id: FolderIdIn, library: Library) -> None:
    """Take the folder from all agents and remove it with its files, in steps."""
    await library.folders.by_id(folder_id).delete()


@_route("GET", "/v1/folders/{folder_id}/agents")
async def list_agents(folder_id: FolderIdIn, library: Library, page: AgentsPage) -> Sequence[AgentIdIn]:
    """List the ids of the agents that have the folder, newest first by default."""
    return await library.folders.by_id(folder_id).list_agents(page)


@_route("GET", "/v1/folders/{folder_id}/passages")
async def list_passages(
    folder_id: FolderIdIn, library: Library, page: Annotated[Page, pages("passage", limit=100, order="asc")]
) -> list[WirePassage]:
    """List the passages of the folder's files, oldest first by default."""
    return [WirePassage.make(passage) for passage in await library.folders.by_id(folder_id).list_passages(page)]


# --- files


@_route("POST", "/v1/folders/{folder_id}/upload")
async def upload(
    folder_id: FolderIdIn,
    library: Library,
    request: Request,
    duplicate_handling: Annotated[IfExists, Query(description="What to do if the name is taken.")] = "suffix",
    name: Annotated[str | None, Query(description="The name in the folder, if not its own.")] = None,
    encoding: Annotated[str | None, Query(description="That of a text, such as gb18030; else it is guessed.")] = None,
) -> wire.File:
    """Store a file. It is durable at the reply; its text is extracted in the background."""
    await library.folders.get(folder_id)  # before the body is read
    async with form_with_file(request) as (_, part):
        file = await library.folders.by_id(folder_id).upload(
            part.file,
            name=name or part.filename or "",
            if_exists=duplicate_handling,
            media_type=part.content_type or "",
            original_name=name or part.filename or "",
            encoding=encoding or None,
        )
    return wire.File.make(FileState(file=file))


@_route("GET", "/v1/folders/{folder_id}/files")
async def list_files(
    folder_id: FolderIdIn,
    library: Library,
    page: Annotated[Page, pages("file", limit=1_000)],
    include_content: bool = False,
) -> list[wire.File]:
    """List the folder's files, newest first by default; with their text, up to a bounded size of the page."""
    files = await library.folders.by_id(folder_id).list_files(page, with_text=include_content)
    return [wire.File.make(file) for file in files]


@_route("GET", "/v1/folders/{folder_id}/files/{file_id}")
async def retrieve_file(
    folder_id: FolderIdIn, file_id: FileIdIn, library: Library, include_content: bool = False
) -> wire.File:
    """Get a file; with its text if the request includes it."""
    return wire.File.make(await library.folders.by_id(folder_id).file_state(file_id, with_text=include_content))


@_route("DELETE", "/v1/folders/{folder_id}/{file_id}", status_code=204)
async def delete_file(folder_id: FolderIdIn, file_id: FileIdIn, library: Library) -> None:
    """Remove a file with its text."""
    await library.folders.by_id(folder_id).delete_file(file_id)


# --- of an agent


@_route("GET", "/v1/agents/{agent_id}/folders")
async def list_of_agent(
    agent_id: AgentIdIn, library: Library, page: Annotated[Page, pages("folder", limit=100)]
) -> list[wire.Folder]:
    """List the agent's folders; `asc` is the order of creation."""
    folders = await library.folders.page(page, agent_id=agent_id)
    return [wire.folder_shape(folder, library.app.embedder) for folder in folders]


@_route("PATCH", "/v1/agents/{agent_id}/folders/attach/{folder_id}")
async def attach(agent_id: AgentIdIn, folder_id: FolderIdIn, library: Library) -> WireAgent:
    """Give the agent a folder, and the tools to read files; its files are opened while there is room."""
    await library.agent_of(agent_id).files.attach(folder_id)
    return await agent_answer(library, agent_id)


@_route("PATCH", "/v1/agents/{agent_id}/folders/detach/{folder_id}")
async def detach(agent_id: AgentIdIn, folder_id: FolderIdIn, library: Library) -> WireAgent:
    """Take a folder away, and with the last one the tools to read files."""
    await library.agent_of(agent_id).files.detach(folder_id)
    return await agent_answer(library, agent_id)


@router.get("/v1/agents/{agent_id}/files")
async def list_files_of_agent(
    agent_id: AgentIdIn,
    library: Library,
    limit: Limit = None,
    order: Order = "desc",
    before: Annotated[str | None, Query(description="The id of a file of the list.")] = None,
    after: Annotated[str | None, Query(description="The id of a file of the list.")] = None,
    cursor: Annotated[str | None, Query(description="The older name of `after`.")] = None,
    order_by: OrderBy = None,
    is_open: Annotated[bool | None, Query(description="Only the open files, or only the others.")] = None,
) -> wire.AgentFiles:
    """List the files of the agent's folders, each with its text in view."""
    cursors = [None if text is None else wire.file_id_of(agent_id, text) for text in (after or cursor, before)]
    page = Page(limit or 100, order == "asc", *cursors)
    result = await library.agent_of(agent_id).files.page(page, is_open=is_open)
    files = [wire.agent_file_shape(agent_id, file, text) for file, text in result.files]
    next_cursor = files[-1]["id"] if result.has_more else None
    return {"files": files, "next_cursor": next_cursor, "has_more": result.has_more}


# Before the routes that take a file's id, which `close-all` is not.
@router.patch("/v1/agents/{agent_id}/files/close-all")
async def close_all(agent: ThisAgent) -> list[str]:
    """Close all files, and answer with their paths."""
    return [file.path for file in await agent.files.close_all()]


@router.patch("/v1/agents/{agent_id}/files/{file_id}/open")
async def open_file(agent_id: AgentIdIn, file_id: FileIdIn, library: Library) -> list[str]:
    """Show a file to the agent, and answer with the paths of the files that were closed for it."""
    return [file.path for file in await library.agent_of(agent_id).files.open(file_id)]


@router.patch("/v1/agents/{agent_id}/files/{file_id}/close")
async def close_file(agent_id: AgentIdIn, file_id: FileIdIn, library: Library) -> None:
    """Close a file."""
    await library.agent_of(agent_id).files.close(file_id)


async def file_blocks(library: AsyncPerdure, agents: Sequence[core.Agent]) -> dict[AgentId, list[dict[str, Any]]]:
    """Agent -> the first files of its folders as blocks."""
    found = await AsyncAgentFiles(library.app).first(agents, limit=FILE_BLOCKS_MAX)
    return {id_: [wire.file_block_shape(id_, file, text) for file, text in files] for id_, files in found.items()}
