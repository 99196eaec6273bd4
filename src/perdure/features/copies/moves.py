"""Move a store to another database."""

from __future__ import annotations

import shlex
from contextlib import closing
from datetime import datetime
from pathlib import Path

from perdure.core.errors import ExtraMissing, InvalidInput
from perdure.core.incoming.addresses import is_postgres, without_password
from perdure.core.tasks import Progress, run_in_thread
from perdure.features.copies.copier import CopyReport, copy_store
from perdure.features.copies.shapes import CopySide
from perdure.features.copies.sqlite_side import SqliteCopySide
from perdure.storage.database.row_format import iso
from perdure.storage.stores.open import open_store

Address = str | Path


async def migrate_db(source: Address, target: Address, *, at: datetime, progress: Progress) -> CopyReport:
    """Copy a store to another, empty database; a copy that was killed goes on where it was.

    Nobody may write to the source meanwhile. The target can't be opened until it is whole.
    Raises: InvalidInput: there is no source, or the target is not empty; Conflict: the source has changed since a part
        of it was copied; StoreBusy: somebody writes to the source; StoreError.
    """
    check_source(source)
    if same_address(source, target):
        raise InvalidInput(f"{without_password(source)} would be copied to itself: name another target")
    await (await open_store(source, at=at)).close()  # raises if it is damaged or incomplete, and brings it up to date
    command = shlex.join(["perdure", "migrate-db", without_password(source), without_password(target)])

    def work(tell: Progress) -> CopyReport:
        """Copy all rows, with the source locked against writers."""
        with closing(open_side(source)) as from_, closing(open_side(target, new=True)) as to:
            return copy_store(from_, to, command=command, at=iso(at), progress=tell, lock=True)

    return await run_in_thread(work, progress)


def check_source(address: Address) -> None:
    """Raises: InvalidInput: the address is not PostgreSQL's, and no file is there."""
    if not is_postgres(address) and not Path(address).is_file():
        raise InvalidInput(f"there is no store at {address}")


def same_address(one: Address, other: Address) -> bool:
    """Whether two addresses lead to one store; of databases on PostgreSQL, only if they are written alike."""
    if is_postgres(one) or is_postgres(other):
        return str(one) == str(other)
    return Path(one).resolve() == Path(other).resolve()


def open_side(address: Address, *, new: bool = False) -> CopySide:
    """Connect to a database to copy from; `new`: to copy to, and a file is made. Raises: ExtraMissing; StoreError."""
    if not is_postgres(address):
        path = Path(address)
        if new:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            path.touch(mode=0o600)  # private to the user
        return SqliteCopySide(path, new=new)
    try:
        from perdure.features.copies.postgres_side import PostgresCopySide
        from perdure.storage.stores.postgres_store import PostgresDatabase
    except ImportError as error:
        raise ExtraMissing("a store on PostgreSQL", extra="postgres") from error
    return PostgresCopySide(str(address), PostgresDatabase)


async def split(address: Address, parts: int, *, progress: Progress) -> int:
    """Split the tables of a store on PostgreSQL into `parts` hash partitions each; return how many tables it split.

    Raises: InvalidInput: it is a file, there is no store, or so many parts are not possible; StoreBusy: a process has
        it open; ExtraMissing: psycopg; StoreError.
    """
    if not is_postgres(address):
        raise InvalidInput(f"{address} is a file: only a store on PostgreSQL has partitions")
    try:
        from perdure.features.copies.split import split_store
    except ImportError as error:
        raise ExtraMissing("a store on PostgreSQL", extra="postgres") from error
    return await run_in_thread(lambda tell: split_store(str(address), parts, tell), progress)
