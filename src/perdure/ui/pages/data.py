"""Data: archives to export, where the store is, and a backup of it; what features show beside them."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, BinaryIO

from starlette.datastructures import UploadFile
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from perdure.core.errors import InvalidInput, PerdureError
from perdure.core.text.reprs import plural
from perdure.library.checks import Page
from perdure.library.perdure import AsyncPerdure
from perdure.library.transfer import check_lines
from perdure.scratch import scratch_folder
from perdure.server.http import is_whole_server, library_of
from perdure.server.sse import Streams
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
        "archives": [{"id": one.id, "name": one.name, "at": one.created_at} for one in archives],
        "store": None
        if not is_whole_server(request)
        else {
            "place": library.upkeep.place,
            "is_file": path is not None,
            "bytes": None if path is None else _bytes_of(path) + _bytes_of(path.with_name(f"{path.name}-wal")),
        },
        "backup": Backup.of(request).shape() if is_whole_server(request) else None,
    }


@pages.post("/data/backup", shows=data)
async def make_backup(request: Request, library: AsyncPerdure) -> Notice:
    """Begin a backup; a small one is ready with the answer."""
    backup = Backup.of(request)
    await backup.begin(library, request.app.state.streams)
    return Notice("The backup is ready to download." if backup.file is not None else "The backup is being made.")


async def download_backup(request: Request) -> Response:
    """The backup that is ready. It is gone after one download."""
    backup = Backup.of(request)
    if backup.file is None:
        raise HTTPException(404)
    size, name = backup.shape()["bytes"], f"perdure-{datetime.now(UTC):%Y-%m-%d-%H%M}.db"
    headers = {**HEADERS, "content-disposition": f'attachment; filename="{name}"', "content-length": str(size)}
    return StreamingResponse(backup.read(), media_type="application/vnd.sqlite3", headers=headers)


pages.add("/data/backup", download_backup)


@pages.post("/data/archives", shows=data)
async def import_archive(request: Request, library: AsyncPerdure) -> Notice:
    """Import archives from a file that `export` wrote, or with `choice` `check` only say what it holds."""
    async with request.form() as form:
        file = form.get("file")
        if not isinstance(file, UploadFile) or not file.filename:
            raise InvalidInput("file: no file was chosen")
        count = await asyncio.to_thread(check_lines, _lines(file.file))
        if form.get("choice") == "check":
            return Notice(f"{file.filename} holds {plural(count, 'passage')}. Nothing was imported yet.")
        found = await library.transfer.import_archives(_lines(file.file))
    names = ", ".join(archive.name for archive in found.archives)
    skipped = f"; {found.skipped:,} were there already" if found.skipped else ""
    return Notice(
        f"Imported {plural(found.imported, 'passage')} into {names}{skipped}. Attach it to an agent to use it."
    )


def _lines(file: BinaryIO) -> Iterator[str]:
    """The lines of a file, from its beginning. Raises: InvalidInput: it is no text."""
    file.seek(0)
    for number, line in enumerate(file, 1):
        try:
            yield line.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            raise InvalidInput(f"line {number}: it is no text in UTF-8 ({error.reason})") from error


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


SMALL_S = 0.5
"""How long the page waits for a backup before it shows a bar."""

CHUNK_BYTES = 1 << 20

Report = Callable[[int, int], None]
"""Takes how many pages are copied, and how many there are."""


class Backup:
    """The newest backup of a server.

    Its file loses its name as soon as it is complete, so nothing stays on the disk when the server ends. So no other
    worker of the same address can send it, and with several there is none.
    """

    def __init__(self, workers: int) -> None:
        self._workers = workers
        self.file: BinaryIO | None = None
        self._task: asyncio.Task[None] | None = None
        self._done, self._total = 0, 0
        self._problem: str | None = None

    @staticmethod
    def of(request: Request) -> Backup:
        """The backup of the server that got this request."""
        state = request.app.state
        if not hasattr(state, "backup"):
            state.backup = Backup(state.workers)
        backup: Backup = state.backup
        return backup

    async def begin(self, library: AsyncPerdure, streams: Streams) -> None:
        """Begin a new backup, unless one is being made; wait a moment for it. Raises: PerdureError."""
        if self._workers > 1:
            text = f"{self._workers} workers serve this address, and the next one would not have the file"
            raise InvalidInput(f"{text}: `perdure backup copy.db` makes a backup from a terminal")
        if self._task is None or self._task.done():
            self.close()
            self._done, self._total, self._problem = 0, 0, None
            self._task = streams.track(self._make(library))
        await asyncio.wait({self._task}, timeout=SMALL_S)
        if self._problem is not None:
            raise InvalidInput(self._problem)

    def shape(self) -> dict[str, Any]:
        """How far it is, in pages of the file; the size of its file once it is ready; what went wrong."""
        return {
            "workers": self._workers,
            "running": self._task is not None and not self._task.done(),
            "done": self._done,
            "total": self._total,
            "bytes": None if self.file is None else os.fstat(self.file.fileno()).st_size,
            "problem": self._problem,
        }

    async def read(self) -> AsyncIterator[bytes]:
        """The bytes of the file. After the last one it is gone; a download that breaks off can be made again."""
        if (file := self.file) is None:
            return
        own, offset = os.dup(file.fileno()), 0
        try:
            while part := await asyncio.to_thread(os.pread, own, CHUNK_BYTES, offset):
                offset += len(part)
                yield part
        finally:
            os.close(own)
        if self.file is file:
            self.close()

    def close(self) -> None:
        """Let go of the file."""
        if self.file is not None:
            self.file.close()
            self.file = None

    async def _make(self, library: AsyncPerdure) -> None:
        # Beside the store there is a disk that is large enough; the folder for temporary files may lie in memory.
        parent = None if library.path is None else library.path.parent
        try:
            with scratch_folder("backup", parent=parent) as folder:
                path = folder / "backup.db"
                await library.upkeep.backup(path, self._note)
                self.file = path.open("rb")
        except (PerdureError, OSError) as error:
            self._problem = str(error)

    def _note(self, done: int, total: int) -> None:
        self._done, self._total = done, total
