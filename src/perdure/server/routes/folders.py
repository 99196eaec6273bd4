"""Folders and their files: making, filling, reading and removing them. `sources` is their older name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.datastructures import UploadFile

from perdure.core.files import File, Folder, IfExists
from perdure.core.ids import FileId, FolderId
from perdure.domain.files.folders import create_folder, update_folder
from perdure.domain.files.text import read_text
from perdure.library.folders import AsyncFolder, embedding
from perdure.library.paging import Page
from perdure.library.uploads import upload as take
from perdure.server.deps import Library
from perdure.server.encoding import json_answer
from perdure.server.ids import FilePath, FolderPath
from perdure.server.routes.archive_passages import passages_page
from perdure.server.wire.folders import FolderChangesIn, FolderIn, file_shape, folder_shape
from perdure.server.wire.paging import pages
from perdure.server.wire.passages import passage_shape
from perdure.storage.tx import Tx

__all__ = ["router"]

router = APIRouter(tags=["folders"])

CONTENT_CHARS = 20_000_000
LISTED_CONTENT_CHARS = 10_000_000  # of all files of one page together
_OrderBy = Annotated[Literal["created_at"] | None, Query()]


@router.post("/v1/folders/")
async def create(body: FolderIn, library: Library) -> Response:
    """Make a folder that no agent has yet."""
    ports = library.app.ports
    changes = body.changes()
    folder = await ports.store.write(
        create_folder,
        changes["name"],
        ids=ports.ids,
        at=ports.clock.now(),
        description=changes.get("description"),
        instructions=changes.get("instructions"),
        metadata=changes.get("metadata"),
    )
    return json_answer(folder_shape(folder, library.app.embedder))


@router.get("/v1/folders/")
async def list_folders(
    library: Library,
    page: Annotated[Page, pages("folder", limit=50, order="asc")],
    name: Annotated[str | None, Query(description="The whole name.")] = None,
    order_by: _OrderBy = None,
) -> Response:
    """Folders, oldest first by default. `before` and `after` are relative to the order."""

    def unit(tx: Tx) -> Sequence[Folder]:
        after, before = (
            None if cursor is None else tx.folders.get(FolderId(cursor)).number for cursor in (page.after, page.before)
        )
        above, below, newest_first, reverse = _bounds(page, after, before)
        found = tx.folders.list(name=name, above=above, below=below, newest_first=newest_first, limit=page.limit)
        return found[::-1] if reverse else found

    return json_answer([folder_shape(one, library.app.embedder) for one in await library.app.store.read(unit)])


@router.get("/v1/folders/count")
async def count(library: Library) -> Response:
    """How many folders there are."""
    return json_answer(await library.app.store.read(lambda tx: tx.folders.count()))


@router.get("/v1/folders/{folder_id}")
async def retrieve(folder_id: FolderPath, library: Library) -> Response:
    """One folder."""
    folder = await library.app.store.read(lambda tx: tx.folders.get(folder_id))
    return json_answer(folder_shape(folder, library.app.embedder))


@router.patch("/v1/folders/{folder_id}")
async def update(folder_id: FolderPath, body: FolderChangesIn, library: Library) -> Response:
    """Change what is given."""
    ports = library.app.ports
    folder = await ports.store.write(update_folder, folder_id, body.changes(), at=ports.clock.now())
    return json_answer(folder_shape(folder, library.app.embedder))


@router.delete("/v1/folders/{folder_id}")
async def delete(folder_id: FolderPath, library: Library) -> Response:
    """Take the folder from all agents and remove it with its files, in steps."""
    await library.folders.delete(folder_id)
    return json_answer(None)


@router.get("/v1/folders/{folder_id}/agents")
async def list_agents(
    folder_id: FolderPath,
    library: Library,
    page: Annotated[Page, pages("agent", limit=50, order="desc")],
    order_by: _OrderBy = None,
) -> Response:
    """The ids of the agents that have the folder, newest first by default."""
    agents = await library.app.store.read(lambda tx: tx.folders.agents(folder_id))
    return json_answer(page.select(agents, kind="agent of this folder", id_of=str))


@router.get("/v1/folders/{folder_id}/passages")
async def list_passages(
    folder_id: FolderPath, library: Library, page: Annotated[Page, pages("passage", limit=100, order="asc")]
) -> Response:
    """What is found of the folder's files, in their order by default. `before` and `after` are relative to it."""
    found = await library.app.store.read(lambda tx: passages_page(tx, tx.folders.get(folder_id).archive_id, page))
    return json_answer([passage_shape(passage) for passage in found])


# --- files


@router.post("/v1/folders/{folder_id}/upload")
async def upload(
    folder_id: FolderPath,
    library: Library,
    request: Request,
    duplicate_handling: Annotated[IfExists, Query(description="What to do if the name is taken.")] = "suffix",
    name: Annotated[str | None, Query(description="Its name in the folder, in place of its own.")] = None,
) -> Response:
    """Take a file in. It is durable when this is answered; its text is made in the background."""
    app = library.app
    await app.store.read(lambda tx: tx.folders.get(folder_id))
    async with request.form(max_files=1, max_fields=20) as form:
        sent = form.get("file")
        if not isinstance(sent, UploadFile):
            error = {"type": "missing", "loc": ("body", "file"), "msg": "a file is needed, as multipart/form-data"}
            raise RequestValidationError([error])
        called = name or sent.filename or ""
        file, _ = await take(
            app,
            folder_id,
            sent.file,
            name=called,
            if_exists=duplicate_handling,
            media_type=sent.content_type or "",
            original_name=sent.filename or "",
        )
    return json_answer(_shape(library, file))


@router.get("/v1/folders/{folder_id}/files")
async def list_files(
    folder_id: FolderPath,
    library: Library,
    page: Annotated[Page, pages("file", limit=1_000, order="desc")],
    order_by: _OrderBy = None,
    include_content: bool = False,
) -> Response:
    """The folder's files, newest first by default; with their text, as long as the page is of a bounded size."""

    def unit(tx: Tx) -> list[dict[str, Any]]:
        tx.folders.get(folder_id)
        after, before = (
            None if cursor is None else tx.files.get(FileId(cursor)).number for cursor in (page.after, page.before)
        )
        above, below, newest_first, reverse = _bounds(page, after, before)
        found = tx.files.list(folder_id, above=above, below=below, newest_first=newest_first, limit=page.limit)
        waiting = tx.files.unembedded(folder_id)
        left = LISTED_CONTENT_CHARS
        shapes: list[dict[str, Any]] = []
        for file in embedding(tx, folder_id, found[::-1] if reverse else found):
            content = read_text(tx, file.id, max_chars=left) if include_content and file.char_count <= left else None
            left -= len(content or "")
            shapes.append(_shape(library, file, waiting=waiting.get(file.id, 0), content=content))
        return shapes

    return json_answer(await library.app.store.read(unit))


@router.get("/v1/folders/{folder_id}/files/{file_id}")
async def retrieve_file(
    folder_id: FolderPath, file_id: FilePath, library: Library, include_content: bool = False
) -> Response:
    """One file, with its text if it is asked for."""
    folder = await _folder(library, folder_id)
    file = await folder.file(file_id)

    def unit(tx: Tx) -> tuple[int, str | None]:
        waiting = tx.files.unembedded(folder_id).get(file_id, 0)
        return waiting, read_text(tx, file_id, max_chars=CONTENT_CHARS) if include_content else None

    waiting, content = await library.app.store.read(unit)
    return json_answer(_shape(library, file, waiting=waiting, content=content))


@router.delete("/v1/folders/{folder_id}/{file_id}", status_code=204)
async def delete_file(folder_id: FolderPath, file_id: FilePath, library: Library) -> Response:
    """Remove a file with what it said."""
    await (await _folder(library, folder_id)).delete_file(file_id)
    return Response(status_code=204)


async def _folder(library: Library, folder_id: FolderId) -> AsyncFolder:
    return await library.folders.get(folder_id)


def _shape(library: Library, file: File, *, waiting: int = 0, content: str | None = None) -> dict[str, Any]:
    return file_shape(file, waiting=waiting, embedded=library.app.embedder is not None, content=content)


def _bounds(page: Page, after: int | None, before: int | None) -> tuple[int | None, int | None, bool, bool]:
    """Above and below which numbers, whether the newest come first, and whether what is read has to be turned round:
    with `before` alone the page is read from its end."""
    above, below = (after, before) if page.ascending else (before, after)
    reverse = before is not None and after is None
    return above, below, page.ascending is reverse, reverse
