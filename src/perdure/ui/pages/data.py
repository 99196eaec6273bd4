"""Data: archives to export, and where the store is; what features show beside them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from starlette.datastructures import UploadFile
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from perdure.core.errors import InvalidInput
from perdure.core.text.reprs import plural
from perdure.library.parts.checks import Page
from perdure.library.perdure import AsyncPerdure
from perdure.library.transfer import check_lines
from perdure.server.wire.http import is_whole_server, library_of
from perdure.ui.render import HEADERS, Data, Notice, Pages

ARCHIVES_MAX = 100

pages = Pages()


@pages.get("/data", "data.html", sections="data")
async def data(request: Request, library: AsyncPerdure) -> Data:
    """The archives, and the size of the store."""
    archives = await library.archives.page(Page(ARCHIVES_MAX, ascending=False))
    path = library.path
    return {
        "title": "Data",
        "archives": [{"id": archive.id, "name": archive.name, "at": archive.created_at} for archive in archives],
        "store": None
        if not is_whole_server(request)
        else {
            "place": library.upkeep.place,
            "is_file": path is not None,
            "bytes": None if path is None else _bytes_of(path) + _bytes_of(path.with_name(f"{path.name}-wal")),
        },
    }


@pages.post("/data/archives", shows=data)
async def import_archive(request: Request, library: AsyncPerdure) -> Notice:
    """Import archives from a file that `export` wrote, or with `choice` `check` only say what it holds."""
    async with request.form() as form:
        file = form.get("file")
        if not isinstance(file, UploadFile) or not file.filename:
            raise InvalidInput("file: no file was chosen")
        count = await asyncio.to_thread(check_lines, _lines(file.file))
        if form.get("choice") == "check":
            return Notice(f"{file.filename} holds {plural(count, 'passage')}. Nothing has been imported yet.")
        found = await library.transfer.import_archives(_lines(file.file))
    names = ", ".join(archive.name for archive in found.archives)
    skipped = f"; {found.skipped:,} were there already" if found.skipped else ""
    return Notice(
        f"Imported {plural(found.imported, 'passage')} into {names}{skipped}. Attach it to an agent to use it."
    )


def _lines(file: BinaryIO) -> Iterator[str]:
    """Yield the lines of a file. Raises: InvalidInput: it is no text."""
    file.seek(0)
    for number, line in enumerate(file, 1):
        try:
            yield line.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            raise InvalidInput(f"line {number}: it is not text in UTF-8 ({error.reason})") from error


def _bytes_of(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


async def export(request: Request) -> Response:
    """An archive as JSON lines, which `perdure archive import` reads."""
    library = library_of(request)
    archive = (await library.archives.get(request.path_params["archive_id"])).info
    lines = (f"{line}\n" async for line in library.transfer.export_archive(archive.id))
    headers = {**HEADERS, "content-disposition": f'attachment; filename="{archive.id}.jsonl"'}
    return StreamingResponse(lines, media_type="application/x-ndjson", headers=headers)


pages.add("/data/archives/{archive_id}", export)
