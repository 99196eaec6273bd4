"""Folders and their files. `sources` is their older name on the wire."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.datastructures import UploadFile

from perdure.core.files import IfExists
from perdure.library.paging import Page
from perdure.library.services.files import FileState
from perdure.server.deps import Library
from perdure.server.encoding import json_answer
from perdure.server.ids import FilePath, FolderPath
from perdure.server.wire.folders import FolderChangesIn, FolderIn, file_shape, folder_shape
from perdure.server.wire.paging import pages
from perdure.server.wire.passages import passage_shape

router = APIRouter(tags=["folders"])

_OrderBy = Annotated[Literal["created_at"] | None, Query()]


@router.post("/v1/folders/")
async def create(body: FolderIn, library: Library) -> Response:
    """Create a folder that no agent has yet."""
    folder = await library.services.folders.create(**body.changes())
    return json_answer(folder_shape(folder, library.app.embedder))


@router.get("/v1/folders/")
async def list_folders(
    library: Library,
    page: Annotated[Page, pages("folder", limit=50, order="asc")],
    name: Annotated[str | None, Query(description="The whole name.")] = None,
    order_by: _OrderBy = None,
) -> Response:
    """Folders, oldest first by default. `before` and `after` are relative to the order."""
    folders = await library.services.folders.list(page, name=name)
    return json_answer([folder_shape(folder, library.app.embedder) for folder in folders])


@router.get("/v1/folders/count")
async def count(library: Library) -> Response:
    """How many folders there are."""
    return json_answer(await library.services.folders.count())


@router.get("/v1/folders/{folder_id}")
async def retrieve(folder_id: FolderPath, library: Library) -> Response:
    """One folder."""
    folder = await library.services.folders.get(folder_id)
    return json_answer(folder_shape(folder, library.app.embedder))


@router.patch("/v1/folders/{folder_id}")
async def update(folder_id: FolderPath, body: FolderChangesIn, library: Library) -> Response:
    """Change the fields that are set."""
    folder = await library.services.folders.update(folder_id, body.changes())
    return json_answer(folder_shape(folder, library.app.embedder))


@router.delete("/v1/folders/{folder_id}")
async def delete(folder_id: FolderPath, library: Library) -> Response:
    """Take the folder from all agents and remove it with its files, in steps."""
    await library.services.folders.delete(folder_id)
    return json_answer(None)


@router.get("/v1/folders/{folder_id}/agents")
async def list_agents(
    folder_id: FolderPath,
    library: Library,
    page: Annotated[Page, pages("agent", limit=50, order="desc")],
    order_by: _OrderBy = None,
) -> Response:
    """The ids of the agents that have the folder, newest first by default."""
    return json_answer(await library.services.folders.list_agents(folder_id, page))


@router.get("/v1/folders/{folder_id}/passages")
async def list_passages(
    folder_id: FolderPath, library: Library, page: Annotated[Page, pages("passage", limit=100, order="asc")]
) -> Response:
    """The passages of the folder's files, oldest first by default. `before` and `after` are relative to the order."""
    passages = await library.services.folders.list_passages(folder_id, page)
    return json_answer([passage_shape(passage) for passage in passages])


# --- files


@router.post("/v1/folders/{folder_id}/upload")
async def upload(
    folder_id: FolderPath,
    library: Library,
    request: Request,
    duplicate_handling: Annotated[IfExists, Query(description="What to do if the name is taken.")] = "suffix",
    name: Annotated[str | None, Query(description="Its name in the folder, in place of its own.")] = None,
) -> Response:
    """Take a file in. It is durable at the reply; its text is made in the background."""
    await library.services.folders.get(folder_id)  # before the body is read
    async with request.form(max_files=1, max_fields=20) as form:
        part = form.get("file")
        if not isinstance(part, UploadFile):
            error = {"type": "missing", "loc": ("body", "file"), "msg": "a file is needed, as multipart/form-data"}
            raise RequestValidationError([error])
        file = await library.services.files.upload(
            folder_id,
            part.file,
            name=name or part.filename or "",
            if_exists=duplicate_handling,
            media_type=part.content_type or "",
            original_name=part.filename or "",
        )
    return json_answer(_shape(library, FileState(file=file)))


@router.get("/v1/folders/{folder_id}/files")
async def list_files(
    folder_id: FolderPath,
    library: Library,
    page: Annotated[Page, pages("file", limit=1_000, order="desc")],
    order_by: _OrderBy = None,
    include_content: bool = False,
) -> Response:
    """The folder's files, newest first by default; with their text, as long as the page is of a bounded size."""
    files = await library.services.files.list(folder_id, page, with_text=include_content)
    return json_answer([_shape(library, file) for file in files])


@router.get("/v1/folders/{folder_id}/files/{file_id}")
async def retrieve_file(
    folder_id: FolderPath, file_id: FilePath, library: Library, include_content: bool = False
) -> Response:
    """One file; with its text if the request includes it."""
    file = await library.services.files.get(folder_id, file_id, with_text=include_content)
    return json_answer(_shape(library, file))


@router.delete("/v1/folders/{folder_id}/{file_id}", status_code=204)
async def delete_file(folder_id: FolderPath, file_id: FilePath, library: Library) -> Response:
    """Remove a file with its text."""
    await library.services.files.delete(folder_id, file_id)
    return Response(status_code=204)


def _shape(library: Library, state: FileState) -> dict[str, Any]:
    embedded = library.app.embedder is not None
    return file_shape(state.file, waiting=state.waiting, embedded=embedded, content=state.text)
