"""Folders and their files on the page of data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from starlette.datastructures import FormData, UploadFile
from starlette.requests import Request

from perdure.core.agents import AgentFilter
from perdure.core.errors import InvalidInput, PerdureError
from perdure.core.ids import FolderId
from perdure.core.text.reprs import attributes, plural
from perdure.features.files.folder_service import AsyncFolderById
from perdure.features.files.units import FolderChanges
from perdure.features.files.values import File
from perdure.library.parts.checks import Page
from perdure.library.perdure import AsyncPerdure
from perdure.ui.render import Data, Notice, Section, field_of, form_of, in_order, sort_of

FOLDERS_MAX, FILES_MAX, NAMED_AGENTS = 100, 100, 5
SORTED_MAX = 1_000
"""So many files stand on a page whose columns are sorted."""
COLUMNS = {"file": "name", "became": "passages", "size": "bytes", "state": "status", "added": "at"}
"""The columns by which files are sorted -> their fields."""
_AGENTS = Page(100, ascending=False)


async def load(request: Request, library: AsyncPerdure) -> Data:
    """The folders, and a page of files of the request's folder or the only one; its agents, and other agents."""
    query = request.query_params
    folders = await library.folders.page(Page(FOLDERS_MAX, ascending=True))
    opened = getattr(request.state, "folder", query.get("folder")) or (folders[0].id if len(folders) == 1 else None)
    limit = SORTED_MAX if sort_of(request) else FILES_MAX
    page = Page(limit, ascending=False, after=query.get("after") or None)
    folder = None if opened is None else library.folders.by_id(FolderId(opened))
    files = [] if folder is None else await folder.list_files(page)
    readers = set() if folder is None else {*await folder.agents()}
    agents = [] if folder is None else await library.all_agents.page(AgentFilter(hidden=False), _AGENTS, "used")
    return {
        "folders": [{"id": one.id, "name": one.name, "files": one.file_count} for one in folders],
        "folder": opened,
        "files": in_order([file_shape(state.file) for state in files], request, COLUMNS),
        "readers": [{"id": one.id, "name": one.name} for one in agents if one.id in readers],
        "agents": [{"id": agent.id, "name": agent.name} for agent in agents if agent.id not in readers],
        "after": files[-1].file.id if len(files) == limit else None,
    }


def file_shape(file: File) -> Data:
    """A file as pages show it: how far its processing is, and what it became."""
    own = ("id", "name", "status", "ended", "problem", "warnings", "done", "total", "title", "kind")
    counts = {"pages": file.page_count, "lines": file.line_count, "passages": file.chunk_count}
    return {
        **attributes(file, *own, bytes="size_bytes", at="created_at"),
        **counts,
        "is_open": False,
        "became": [plural(count, name[:-1]) for name, count in counts.items() if count],
    }


async def create_folder(request: Request, library: AsyncPerdure) -> Notice:
    """Create a folder."""
    folder = await library.folders.add(FolderChanges(name=field_of(await form_of(request), "name")))
    request.state.folder = folder.id
    return Notice(f"Folder {folder.name!r} was created.", location=f"/data?folder={folder.id}")


async def upload(request: Request, library: AsyncPerdure) -> Notice:
    """Upload files to a folder; their text is read in the background."""
    folder = await library.folders.get(request.path_params["folder_id"])
    async with request.form() as form:
        names, refusals = await store_files(folder, form)
    readers = [(await library.all_agents.resolve(agent)).name for agent in (await folder.agents())[:NAMED_AGENTS]]
    if readers:
        return upload_notice(names, refusals, f"{' and '.join(readers)} can read what is completed below.")
    notice = upload_notice(names, refusals, f"No agent has the folder {folder.name} yet:")
    return replace(notice, link=("#readers", "choose who reads it"))


async def store_files(folder: AsyncFolderById, form: FormData) -> tuple[Sequence[str], Sequence[PerdureError]]:
    """Store the files of a form in a folder; the names of those that arrived, and why others did not. Raises:
    InvalidInput, or why the first was refused: none arrived."""
    names, refusals = list[str](), list[PerdureError]()
    encoding = str(form.get("encoding") or "").strip() or None
    for file in form.getlist("file"):
        if isinstance(file, UploadFile) and file.filename:
            try:
                names.append((await folder.upload(file.file, name=file.filename, encoding=encoding)).name)
            except PerdureError as error:
                refusals.append(error)
    if not names:
        raise refusals[0] if refusals else InvalidInput("file: no file was chosen")
    return names, refusals


def upload_notice(names: Sequence[str], refusals: Sequence[PerdureError], goes_on: str) -> Notice:
    """What became of an upload; `goes_on` says who reads the files."""
    said = [f"{', '.join(names)} arrived.", *(f"{error}." for error in refusals), goes_on]
    return Notice(" ".join(said), is_error=bool(refusals))


async def attach(request: Request, library: AsyncPerdure) -> Notice:
    """Give an agent a folder."""
    folder = await library.folders.get(request.path_params["folder_id"])
    agent = await library.agent(field_of(await form_of(request), "agent_id"))
    await agent.files.attach(folder.id)
    undo = f"/agents/{agent.id}/files/folders/{folder.id}/detach"
    return Notice(f"{agent.name} reads the folder {folder.name} now.", undo=undo)


async def delete_file(request: Request, library: AsyncPerdure) -> Notice:
    """Delete a file of a folder."""
    folder_id = FolderId(request.path_params["folder_id"])
    await library.folders.by_id(folder_id).delete_file(request.path_params["file_id"])
    return Notice("The file was deleted.")


async def delete_folder(request: Request, library: AsyncPerdure) -> Notice:
    """Delete a folder with its files."""
    await library.folders.by_id(FolderId(request.path_params["folder_id"])).delete()
    return Notice("The folder was deleted with its files.", location="/data")


SECTION = Section(
    name="folders",
    load=load,
    is_of_page=True,
    actions={
        "/data/folders": create_folder,
        "/data/folders/{folder_id}/files": upload,
        "/data/folders/{folder_id}/agents": attach,
        "/data/folders/{folder_id}/files/{file_id}/delete": delete_file,
        "/data/folders/{folder_id}/delete": delete_folder,
    },
)
