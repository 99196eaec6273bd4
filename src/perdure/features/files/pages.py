"""Folders and their files on the page of data."""

from __future__ import annotations

from starlette.datastructures import UploadFile
from starlette.requests import Request

from perdure.core.errors import InvalidInput, PerdureError
from perdure.core.ids import FolderId
from perdure.features.files.units import FolderChanges
from perdure.library.parts.checks import Page
from perdure.library.perdure import AsyncPerdure
from perdure.ui.render import Data, Notice, Section, field_of, form_of

FOLDERS_MAX, FILES_MAX = 100, 100


async def load(request: Request, library: AsyncPerdure) -> Data:
    """The folders, and a page of the files of the folder that the request names, or of the only one."""
    query = request.query_params
    folders = await library.folders.page(Page(FOLDERS_MAX, ascending=True))
    opened = getattr(request.state, "folder", query.get("folder")) or (folders[0].id if len(folders) == 1 else None)
    page = Page(FILES_MAX, ascending=False, after=query.get("after") or None)
    files = [] if opened is None else await library.folders.by_id(FolderId(opened)).list_files(page)
    return {
        "folders": [{"id": one.id, "name": one.name, "files": one.file_count} for one in folders],
        "folder": opened,
        "files": [
            {
                "id": state.file.id,
                "name": state.file.name,
                "bytes": state.file.size_bytes,
                "status": state.file.status,
                "ended": state.file.ended,
                "problem": state.file.problem,
                "warnings": state.file.warnings,
                "done": state.file.done,
                "total": state.file.total,
                "at": state.file.created_at,
            }
            for state in files
        ],
        "after": files[-1].file.id if len(files) == FILES_MAX else None,
    }


async def create_folder(request: Request, library: AsyncPerdure) -> Notice:
    """Create a folder."""
    folder = await library.folders.add(FolderChanges(name=field_of(await form_of(request), "name")))
    request.state.folder = folder.id
    return Notice(f"Folder {folder.name!r} was created.", location=f"/data?folder={folder.id}")


async def upload(request: Request, library: AsyncPerdure) -> Notice:
    """Upload files to a folder; their text is read in the background."""
    folder, names, refusals = library.folders.by_id(FolderId(request.path_params["folder_id"])), [], []
    async with request.form() as form:
        encoding = str(form.get("encoding") or "").strip() or None
        for file in form.getlist("file"):
            if isinstance(file, UploadFile) and file.filename:
                try:
                    stored = await folder.upload(file.file, name=file.filename, encoding=encoding)
                except PerdureError as error:
                    refusals.append(error)
                else:
                    names.append(stored.name)
    if not names:
        raise refusals[0] if refusals else InvalidInput("file: no file was chosen")
    text = f"{', '.join(names)} arrived; agents can read it in a moment."
    return Notice("; ".join([text.rstrip("."), *map(str, refusals)]) if refusals else text, is_error=bool(refusals))


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
        "/data/folders/{folder_id}/files/{file_id}/delete": delete_file,
        "/data/folders/{folder_id}/delete": delete_folder,
    },
)
