"""A backup on the page of data: made, and downloaded once."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import BinaryIO

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from perdure.core.errors import InvalidInput, PerdureError
from perdure.library.perdure import AsyncPerdure
from perdure.scratch import scratch_folder
from perdure.server.wire.http import is_whole_server
from perdure.server.wire.sse import Streams
from perdure.ui.render import HEADERS, Data, Notice, Pages, Section

pages = Pages()


async def load(request: Request, library: AsyncPerdure) -> Data | None:
    """Return the state of the server's backup; None: the sender may not see data of all organisations."""
    return Backup.of(request).shape() if is_whole_server(request) else None


async def make_backup(request: Request, library: AsyncPerdure) -> Notice:
    """Begin a backup, and wait `SMALL_S`, in which a small one gets ready."""
    backup = Backup.of(request)
    await backup.begin(library, request.app.state.streams)
    return Notice("The backup is ready to download." if backup.file is not None else "The backup is being made.")


async def download_backup(request: Request) -> Response:
    """Send the backup that is ready, and forget it. Raises: HTTPException: 404, there is none."""
    backup = Backup.of(request)
    if backup.file is None:
        raise HTTPException(404)
    size, name = backup.shape()["bytes"], f"perdure-{datetime.now(UTC):%Y-%m-%d-%H%M}.db"
    headers = {**HEADERS, "content-disposition": f'attachment; filename="{name}"', "content-length": str(size)}
    return StreamingResponse(backup.read(), media_type="application/vnd.sqlite3", headers=headers)


pages.add("/data/backup", download_backup)


SECTION = Section(name="backup", load=load, actions={"/data/backup": make_backup})

SMALL_S = 0.5
"""How long the page waits for a backup before it shows a bar."""

CHUNK_BYTES = 1 << 20


class Backup:
    """The newest backup of a server; `file` is open once it is complete.

    Its file loses its name then, so nothing stays on the disk when the server ends. As no other process can open it, a
    server of several `workers` makes none.
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
        """Begin a backup, unless one is under way; wait up to `SMALL_S` for it. Raises: InvalidInput: it failed."""
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

    def shape(self) -> Data:
        """The state for the page: `done` of `total` pages of the file, `bytes` once it is ready, and a `problem`."""
        return {
            "workers": self._workers,
            "running": self._task is not None and not self._task.done(),
            "done": self._done,
            "total": self._total,
            "bytes": None if self.file is None else os.fstat(self.file.fileno()).st_size,
            "problem": self._problem,
        }

    async def read(self) -> AsyncIterator[bytes]:
        """Yield the bytes of the file, and close it after the last one; a download that broke off can begin again."""
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
        """Close the file, whose bytes the disk frees then."""
        if self.file is not None:
            self.file.close()
            self.file = None

    async def _make(self, library: AsyncPerdure) -> None:
        """Make the backup, and set `file`, or `_problem` if that fails."""
        # Beside the store there is a disk that is large enough; the folder for temporary files may lie in memory.
        parent = None if library.path is None else library.path.parent
        try:
            with scratch_folder("backup", parent=parent) as folder:
                path = folder / "backup.db"
                await library.app.ports.store.backup(path, self._note_progress)
                self.file = path.open("rb")
        except (PerdureError, OSError) as error:
            self._problem = str(error)

    def _note_progress(self, done: int, total: int) -> None:
        self._done, self._total = done, total
