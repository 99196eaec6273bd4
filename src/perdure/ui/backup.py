"""The backup that the data page makes: how far it is, and its file until it is downloaded."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from typing import Any, BinaryIO

from starlette.requests import Request

from perdure.core.errors import InvalidInput, PerdureError
from perdure.library.perdure import AsyncPerdure
from perdure.scratch import scratch_folder
from perdure.server.sse import Streams

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
                await library.services.upkeep.backup(path, self._note)
                self.file = path.open("rb")
        except (PerdureError, OSError) as error:
            self._problem = str(error)

    def _note(self, done: int, total: int) -> None:
        self._done, self._total = done, total
