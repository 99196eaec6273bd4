"""A backup of any database as a store file, which opens everywhere."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

from perdure.core.tasks import Progress, run_in_thread
from perdure.features.copies.copier import copy_store
from perdure.features.copies.moves import open_side
from perdure.features.copies.sqlite_side import SqliteCopySide
from perdure.storage.database.row_format import iso
from perdure.storage.stores.sqlite import make_new_file, remove_files


async def backup_database(address: str, path: Path, progress: Callable[[int, int], None]) -> None:
    """Copy a PostgreSQL database, in use or not, to a new store file. `progress`: rows done, and all rows.

    Raises: InvalidInput: the file can't be a new one; StoreError. Then there is no file.
    """

    def work(tell: Progress) -> None:
        """Copy the database to a new file, which is removed if that fails."""
        make_new_file(path)
        try:
            with closing(open_side(address)) as source, closing(SqliteCopySide(path, new=True)) as target:
                copy_store(source, target, command="perdure backup", at=iso(datetime.now(UTC)), progress=tell)
        except BaseException:
            remove_files(path)
            raise

    await run_in_thread(work, lambda step, done, total: progress(done, total))
