"""The Files tab of an agent: its folders, what each file became, and a search in them."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from starlette.datastructures import FormData
from starlette.requests import Request

from perdure.core.errors import AlreadyExists, PerdureError
from perdure.core.ids import FolderId
from perdure.core.text.reprs import attributes
from perdure.features.files.folder_service import AsyncFolder
from perdure.features.files.pages import COLUMNS, FOLDERS_MAX, file_shape, store_files, upload_notice
from perdure.features.files.units import FolderChanges
from perdure.library.agent import AsyncAgent
from perdure.library.parts.checks import Page
from perdure.library.perdure import AsyncPerdure
from perdure.search.ranking.hits import PassageHit
from perdure.ui.pages.home import agent_frame
from perdure.ui.render import Data, Notice, Pages, agent_of, field_of, form_of, in_order

FILES_MAX, HITS_MAX, HIT_CHARS = 500, 20, 600

pages = Pages()


@pages.get("/agents/{agent_id}/files", "agent_files.html")
async def files(request: Request, library: AsyncPerdure) -> Data:
    """The agent's folders with their files, other folders, and with `q` the passages of its files that match."""
    own, query = agent_of(request, library), request.query_params.get("q", "").strip()
    agent = await library.all_agents.resolve(own.id)
    folders = [folder.info for folder in await own.files.folders()]
    every = await library.folders.page(Page(FOLDERS_MAX, ascending=True))
    found = await own.files.list(limit=FILES_MAX)
    names = {folder.id: folder.name for folder in folders}
    shapes = [
        {
            **attributes(folder, "id", "name", "description", count="file_count"),
            "files": in_order(
                [{**file_shape(one.file), "is_open": one.is_open} for one in found if one.file.folder_id == folder.id],
                request,
                COLUMNS,
            ),
        }
        for folder in folders
    ]
    return agent_frame(agent, "Files", "files") | {
        "folders": shapes,
        "others": [{"id": one.id, "name": one.name} for one in every if one.id not in names],
        "working": any(not one.file.ended for one in found),
        "search": query,
        "hits": [_hit_shape(hit, names) for hit in await own.files.search(query, limit=HITS_MAX)] if query else [],
    }


def _hit_shape(hit: PassageHit, names: dict[Any, str]) -> Data:
    """A passage that a search found, with the file and lines where it stands."""
    source = hit.passage.source
    return {
        "id": hit.passage.id,
        "text": hit.passage.text[:HIT_CHARS],
        "file": f"{names.get(source.get('folder_id'), '')}/{source.get('file_name')}",
        "first_line": source.get("first_line"),
        "last_line": source.get("last_line"),
        "page": source.get("page"),
    }


@pages.post("/agents/{agent_id}/files/folders", shows=files)
async def attach(request: Request, library: AsyncPerdure) -> Notice:
    """Give the agent a folder."""
    agent, folder_id = agent_of(request, library), field_of(await form_of(request), "folder_id")
    folder = await library.folders.get(folder_id)
    await agent.files.attach(folder.id)
    undo = f"/agents/{agent.id}/files/folders/{folder.id}/detach"
    return Notice(f"The folder {folder.name} was attached.", undo=undo)


@pages.post("/agents/{agent_id}/files/folders/{folder_id}/detach", shows=files)
async def detach(request: Request, library: AsyncPerdure) -> Notice:
    """Take a folder away from the agent; it stays in the store."""
    agent, folder = agent_of(request, library), await library.folders.get(request.path_params["folder_id"])
    await agent.files.detach(folder.id)
    undo = f"/agents/{agent.id}/files/folders"
    text = f"The folder {folder.name} was detached; its files stay."
    return Notice(text, undo=undo, fields={"folder_id": folder.id})


@pages.post("/agents/{agent_id}/files/upload", shows=files)
async def upload(request: Request, library: AsyncPerdure) -> Notice:
    """Upload files to one of the agent's folders, or to a new one that is attached to it."""
    agent = await library.agent(agent_of(request, library).id)
    async with request.form() as form:
        chosen = str(form.get("folder_id") or "")
        if chosen:
            folder = library.folders.by_id(FolderId(chosen))
            names, refusals = await store_files(folder, form)
        else:
            _, names, refusals = await _store_in_new(library, agent, form)
    return upload_notice(names, refusals, f"{agent.name} can read what is completed below.")


@pages.post("/agents/{agent_id}/files/drop", shows=files)
async def drop(request: Request, library: AsyncPerdure) -> Notice:
    """Upload files that were dropped into the chat, to a folder that the agent gets with the first of them."""
    agent = await library.agent(agent_of(request, library).id)
    name = f"{agent.name}'s files"
    own = next((folder for folder in await agent.files.folders() if folder.info.name.startswith(name)), None)
    async with request.form() as form:
        if own is None:
            own, names, refusals = await _store_in_new(library, agent, form)
        else:
            names, refusals = await store_files(own, form)
    said = upload_notice(names, refusals, f"{agent.name} can read it in a moment:")
    return replace(said, link=(f"/agents/{agent.id}/files", f"the folder {own.name}"))


async def _store_in_new(
    library: AsyncPerdure, agent: AsyncAgent, form: FormData
) -> tuple[AsyncFolder, Sequence[str], Sequence[PerdureError]]:
    """Store a form's files in a new folder of the agent, or delete it if none was stored. Raises: as `store_files`."""
    folder = await _new_folder(library, f"{agent.name}'s files")
    try:
        names, refusals = await store_files(folder, form)
    except PerdureError:
        await folder.delete()
        raise
    await agent.files.attach(folder.id)
    return folder, names, refusals


async def _new_folder(library: AsyncPerdure, name: str) -> AsyncFolder:
    """Return a new folder of this name, with a number added if the name is taken."""
    number = 1
    while True:
        with contextlib.suppress(AlreadyExists):
            return await library.folders.add(FolderChanges(name=name if number == 1 else f"{name} {number}"))
        number += 1
