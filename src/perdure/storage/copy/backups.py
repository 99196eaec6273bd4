"""A backup of any database as a store file, which opens everywhere; and long work in a thread."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeVar

from perdure.core.errors import StoreClosed
from perdure.storage.copy.copier import Progress, copy_store
from perdure.storage.copy.shapes import Side
from perdure.storage.copy.sqlite_side import SqliteSide
from perdure.storage.database.row_format import iso
from perdure.storage.database.sqlite import make_new_file, remove_files

T = TypeVar("T")


async def backup_database(open_source: Callable[[], Side], path: Path, progress: Callable[[int, int], None]) -> None:
    """Copy a database as it is now to a new store file; others read and write meanwhile.

    Raises: InvalidInput: the file can't be a new one; StoreError. Then there is no file.
    """

    def work(tell: Progress) -> None:
        make_new_file(path)
        try:
            with closing(open_source()) as source, closing(SqliteSide(path, new=True)) as target:
                copy_store(source, target, command="perdure backup", at=iso(datetime.now(UTC)), progress=tell)
        except BaseException:
            remove_files(path)
            raise

    await run_in_thread(work, lambda step, done, total: progress(done, total))


async def run_in_thread(work: Callable[[Progress], T], progress: Progress) -> T:
    """Run long work in a thread. If the caller is cancelled, the work ends at its next report; this waits for that."""
    stopped = threading.Event()

    def report(step: str, done: int, total: int) -> None:
        if stopped.is_set():
            raise StoreClosed
        progress(step, done, total)

    working = asyncio.get_running_loop().run_in_executor(None, work, report)
    try:
        return await asyncio.shield(working)
    except asyncio.CancelledError:
        stopped.set()
        await asyncio.wait({working})
        raise
