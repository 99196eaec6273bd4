"""Data: folders and their files, archives to export, and where the store is."""

from __future__ import annotations

from starlette.datastructures import UploadFile
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from perdure.core.errors import InvalidInput
from perdure.core.ids import ArchiveId, FolderId
from perdure.domain.files.folders import FolderChanges
from perdure.library.paging import Page
from perdure.library.perdure import AsyncPerdure
from perdure.ui.render import HEADERS, Data, Notice, Pages, field_of, form_of

FOLDERS_MAX, FILES_MAX, ARCHIVES_MAX = 100, 100, 100

pages = Pages()


@pages.get("/data", "data.html")
async def data(request: Request, library: AsyncPerdure) -> Data:
    """The folders, with `folder` the files of one; the archives; the size of the store."""
    services, query = library.services, request.query_params
    folders = await services.folders.list(Page(FOLDERS_MAX, ascending=True))
    opened = query.get("folder") or (folders[0].id if len(folders) == 1 else None)
    page = Page(FILES_MAX, ascending=False, after=query.get("after"))
    files = [] if opened is None else await services.files.list(FolderId(opened), page)
    archives = await services.archives.list(Page(ARCHIVES_MAX, ascending=False))
    path = library.app.settings.store_path
    return {
        "title": "Data",
        "folders": [{"id": one.id, "name": one.name, "files": one.file_count} for one in folders],
        "folder": opened,
        "files": [
            {
                "id": state.file.id,
                "name": state.file.name,
                "bytes": state.file.size_bytes,
                "status": state.file.status,
                "problem": state.file.problem,
                "done": state.file.done,
                "total": state.file.total,
                "at": state.file.created_at,
            }
            for state in files
        ],
        "after": files[-1].file.id if len(files) == FILES_MAX else None,
        "archives": [{"id": one.id, "name": one.name, "at": one.created_at} for one in archives],
        "store": {"path": str(path), "bytes": path.stat().st_size if path.exists() else None},
    }


@pages.post("/data/folders", shows=data)
async def create_folder(request: Request, library: AsyncPerdure) -> Notice:
    """Create a folder."""
    folder = await library.services.folders.create(FolderChanges(name=field_of(await form_of(request), "name")))
    return Notice(f"Folder {folder.name!r} was created.", location=f"/data?folder={folder.id}")


@pages.post("/data/folders/{folder_id}/files", shows=data)
async def upload(request: Request, library: AsyncPerdure) -> Notice:
    """Upload files to a folder; their text is read in the background."""
    folder_id, names = FolderId(request.path_params["folder_id"]), []
    async with request.form() as form:
        for file in form.getlist("file"):
            if isinstance(file, UploadFile) and file.filename:
                stored = await library.services.files.upload(folder_id, file.file, name=file.filename)
                names.append(stored.name)
    if not names:
        raise InvalidInput("file: no file was chosen")
    return Notice(f"{', '.join(names)} arrived; agents can read it in a moment.")


@pages.post("/data/folders/{folder_id}/files/{file_id}/delete", shows=data)
async def delete_file(request: Request, library: AsyncPerdure) -> Notice:
    """Delete a file of a folder."""
    folder_id = FolderId(request.path_params["folder_id"])
    await library.services.files.delete(folder_id, request.path_params["file_id"])
    return Notice("The file was deleted.")


@pages.post("/data/folders/{folder_id}/delete", shows=data)
async def delete_folder(request: Request, library: AsyncPerdure) -> Notice:
    """Delete a folder with its files."""
    await library.services.folders.delete(FolderId(request.path_params["folder_id"]))
    return Notice("The folder was deleted with its files.", location="/data")


async def export(request: Request) -> Response:
    """An archive as JSON lines, which `perdure archive import` reads."""
    library: AsyncPerdure = request.app.state.perdure
    archive = await library.services.archives.get(ArchiveId(request.path_params["archive_id"]))
    lines = (f"{line}\n" async for line in library.services.transfer.export_archive(archive.id))
    headers = {**HEADERS, "content-disposition": f'attachment; filename="{archive.id}.jsonl"'}
    return StreamingResponse(lines, media_type="application/x-ndjson", headers=headers)


pages.add("/data/archives/{archive_id}", export)
