"""Put a backup in the place of a store: copy it beside, check it, then swap both at once and keep the old one."""

from __future__ import annotations

import contextlib
import functools
import os
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from perdure.core.errors import InvalidInput, NotAStore, StoreBusy, StoreDamaged
from perdure.core.incoming.addresses import is_postgres, without_password
from perdure.core.tasks import Progress, run_in_thread
from perdure.core.vectors import IndexFault
from perdure.features.copies.moves import Address, same_address
from perdure.features.copies.shapes import OF_THE_FILE, Contents, contents_of, sorted_shape
from perdure.features.copies.sqlite_side import SqliteCopySide, connect_unchanged
from perdure.storage.database.sqlite_errors import DAMAGED_HELPS, SQLITE_ERRORS, store_error
from perdure.storage.database.sqlite_file import check_log
from perdure.storage.migrations import MIGRATIONS, is_current
from perdure.storage.store import Store
from perdure.storage.stores.open import open_store
from perdure.storage.stores.sqlite import SqliteDatabase, backup, connect, remove_files, single_file, upgrade
from perdure.storage.tables.table import NOT_DELETED

HEADER = b"SQLite format 3\0"
LOCKED_FROM, LOCKED_BYTES = 0x40000000, 512
"""Where SQLite's processes lock a file that they have open."""
LOCK_WAIT_S = 0.5
ANOTHER_HELPS = "take another backup; the store is as it was"
CHECKED_AT_ONCE = 500


@dataclass(frozen=True, slots=True)
class StoreSummary:
    """What a store holds: how many agents and messages; `version` is the number of its last migration."""

    agents: int
    messages: int
    version: int


@dataclass(frozen=True, slots=True)
class RestoreReport:
    """A restored backup: its rows and their digest. `kept`: where the old store is now; empty: there was none."""

    rows: int
    digest: str
    kept: str


@contextmanager
def _backup_hints() -> Iterator[None]:
    """Inside the context, let errors about damage give advice for a damaged backup, not for a damaged store."""
    try:
        yield
    except StoreDamaged as error:
        raise StoreDamaged(str(error).replace(DAMAGED_HELPS, ANOTHER_HELPS)) from error


@_backup_hints()
def read_backup(path: Path) -> StoreSummary:
    """Read what a backup holds; nothing is changed. Raises: InvalidInput: no such file; StoreError: it is of no use."""
    if not path.is_file():
        raise InvalidInput(f"there is no backup at {path}")
    check_log(path)
    with closing(connect_unchanged(path)) as connection:
        try:
            tables = {row[0] for row in connection.execute("SELECT name FROM sqlite_master")}
            if "schema_migrations" not in tables:
                raise NotAStore(f"{path} is not a store of Perdure: name a file that `perdure backup` has made")
            is_current(SqliteDatabase(connection, read_only=True).rows, str(path), MIGRATIONS)
            (agents,) = connection.execute(f"SELECT COUNT(*) FROM agents WHERE {NOT_DELETED}").fetchone()
            (messages,) = connection.execute("SELECT COUNT(*) FROM messages").fetchone()
            (version,) = connection.execute("SELECT MAX(number) FROM schema_migrations").fetchone()
        except SQLITE_ERRORS as error:
            raise store_error(error, path) from error
    return StoreSummary(agents, messages, version)


async def restore(path: Path, target: Address, *, at: datetime, progress: Progress) -> RestoreReport:
    """Put a backup in the place of the store at `target`. The backup stays; the old store is kept under another name.

    Killed at any moment, it leaves the old store or the new one.
    Raises: InvalidInput: there is no backup; StoreBusy: a process has the store open; StoreDamaged: the backup, or the
        copy of it; StoreError. Then the store is as it was.
    """
    read_backup(path)
    if same_address(path, target):
        raise InvalidInput(f"{path} is the store itself: name a backup of it")
    swap: Callable[[Path, Progress], str]  # from the checked copy to where the old store is kept
    unused: AbstractContextManager[object]  # raises if a process has the store open
    if is_postgres(target):
        from perdure.features.copies.postgres_swap import copy_and_swap
        from perdure.features.copies.split import connect_exclusively

        unused, folder = connect_exclusively(str(target)), path.parent
        swap = functools.partial(copy_and_swap, address=str(target), at=at)
    else:
        file = Path(target)
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        unused, folder = _file_locked(file), file.parent
        swap = functools.partial(_swap_files, target=file, at=at)
    await run_in_thread(lambda tell: _enter(unused), progress)
    copy = folder / f".{path.name}.restore-{os.getpid()}"
    _remove_leftovers(folder, path.name)
    try:
        with _backup_hints():
            contents = await run_in_thread(lambda tell: _copy(path, copy, at, tell), progress)
            store = await open_store(copy, at=at)
            try:
                await _check_rows(store, contents.rows, progress)
            finally:
                await store.close()
        kept = await run_in_thread(lambda tell: _finish(copy, swap, tell), progress)
    finally:
        remove_files(copy)
    return RestoreReport(contents.rows, contents.digest, kept)


def _copy(path: Path, copy: Path, at: datetime, tell: Progress) -> Contents:
    """Copy a backup to the file `copy`, compare both, upgrade the copy to this version; return the backup's digests.

    Raises: StoreDamaged: the backup is damaged, or the copy differs from it.
    """
    with closing(connect_unchanged(path)) as source:
        backup(source, copy, lambda done, total: tell("copying", done, total))
    contents = []
    for file in (path, copy):
        with closing(SqliteCopySide(file, unchanged=True)) as side, side.snapshot(lock=False):
            if faults := side.db.integrity():
                raise StoreDamaged(f"{file} is damaged ({faults[0]}): {ANOTHER_HELPS}")
            shapes = [sorted_shape(shape) for name, shape in side.shapes().items() if name not in OF_THE_FILE]
            total = sum(side.db.rows(f"SELECT COUNT(*) FROM {shape.name}", {})[0][0] for shape in shapes)
            contents.append(contents_of(side, shapes, tell=lambda rows, total=total: tell("comparing", rows, total)))
    if contents[0].digest != contents[1].digest:
        raise StoreDamaged(f"the copy of {path} differs from it: the disk fails. The store is as it was")
    with closing(connect(copy)) as connection:
        upgrade(connection, copy, at=at)
    return contents[0]


async def _check_rows(store: Store, total: int, progress: Progress) -> None:
    """Compare messages, passages and blocks, about `total` rows, with their checksums. Raises: StoreDamaged."""
    faults: list[IndexFault] = []
    after: tuple[str, int] | None = ("", -1)
    while after is not None:
        blocks = await store.read(lambda tx, after: tx.upkeep.check_blocks(after=after), after)
        faults, after = [*faults, *blocks.faults], blocks.after
    done, last = 0, -1
    while owners := await store.read(lambda tx, last: tx.upkeep.owners(after=last, limit=CHECKED_AT_ONCE), last):
        last = owners[-1].number
        for owner in owners:
            seq: int | None = 0
            while seq is not None:
                check = await store.read(lambda tx, owner, seq: tx.upkeep.check(owner, from_seq=seq), owner, seq)
                faults, seq = [*faults, *check.faults], check.after
            done += owner.rows
            progress("checking", done, max(done, total))
    if damage := [fault for fault in faults if fault.kind == "damage"]:
        raise StoreDamaged(
            f"{sum(fault.count for fault in damage):,} rows of the backup are damaged ({damage[0].owner_id}:"
            f" {damage[0].text}): {ANOTHER_HELPS}"
        )


def _finish(copy: Path, swap: Callable[[Path, Progress], str], tell: Progress) -> str:
    """Write the log of the checked copy into its file, flush that to the disk, and return what `swap` returns."""
    with closing(connect(copy)) as connection:
        try:
            single_file(connection)
        except sqlite3.Error as error:
            raise store_error(error, copy) from error
    with copy.open("rb") as file:
        os.fsync(file.fileno())
    return swap(copy, tell)


def _swap_files(copy: Path, tell: Progress, *, target: Path, at: datetime) -> str:
    """Rename the file `copy` to `target`, and return where the old file is kept; empty: there was none."""
    kept = target.with_name(f"{target.name}.before-{at:%Y%m%d-%H%M%S}-{os.getpid()}")
    is_there = target.exists()
    with _lock_store(target):
        if is_there:
            try:
                os.link(target, kept)
            except OSError:  # a file system without links
                shutil.copyfile(target, kept)
        for suffix in ("-wal", "-shm"):  # of a store that can't be read; any other has none by now
            if (part := _neighbour_path(target, suffix)).exists():
                part.replace(_neighbour_path(kept, suffix))
        _flush_folder(target)
        copy.replace(target)
        _flush_folder(target)
    _neighbour_path(target, "-mark").unlink(missing_ok=True)
    return str(kept) if is_there else ""


@contextmanager
def _lock_store(path: Path) -> Iterator[None]:
    """Keep other processes from opening the store at this path; if SQLite can read it, write its log into its file.

    Raises: StoreBusy: a process has it open.
    """
    if not _has_header(path):  # SQLite would remove the log of such a file
        with _file_locked(path):
            yield
        return
    connection = sqlite3.connect(path, isolation_level=None, timeout=LOCK_WAIT_S)
    try:
        connection.execute("PRAGMA locking_mode = EXCLUSIVE")
        connection.execute("BEGIN EXCLUSIVE")
        connection.execute("COMMIT")
        single_file(connection)
    except sqlite3.Error as error:
        connection.close()
        if isinstance(store_error(error, path), StoreBusy):
            raise _in_use(path) from error
        with _file_locked(path):
            yield
        return
    with closing(connection):
        yield


def _has_header(path: Path) -> bool:
    """Whether a file begins as files of SQLite do; an absent one does not."""
    try:
        with path.open("rb") as file:
            return file.read(len(HEADER)) == HEADER
    except OSError:
        return False


@contextmanager
def _file_locked(path: Path) -> Iterator[None]:
    """Hold the lock of processes that have a store open, on the file itself. Raises: StoreBusy: one has it open."""
    try:
        import fcntl
    except ImportError:  # Windows has none, and does not rename an open file
        yield
        return
    if not path.exists():
        yield
        return
    with path.open("r+b") as file:
        try:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, LOCKED_BYTES, LOCKED_FROM)
        except OSError as error:
            raise _in_use(path) from error
        yield


def _enter(context: AbstractContextManager[object]) -> None:
    """Enter and leave a context, for what it raises."""
    with context:
        pass


def _in_use(path: Path) -> StoreBusy:
    return StoreBusy(f"a process has {without_password(path)} open: stop it (`perdure serve`, a chat), then try again")


def _remove_leftovers(folder: Path, name: str) -> None:
    """Remove copies of the backup `name` that restores in processes which have ended left in the folder."""
    for file in folder.glob(f".{name}.restore-*"):
        number = file.name.rpartition("-")[2]
        if number.isdecimal() and not _is_alive(int(number)):
            remove_files(file)


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:  # it is another user's
        return True
    return True


def _neighbour_path(path: Path, suffix: str) -> Path:
    return path.with_name(f"{path.name}{suffix}")


def _flush_folder(path: Path) -> None:
    """Flush the folder in which a file lies to the disk, so that a new name outlives a power cut."""
    with contextlib.suppress(OSError):  # Windows opens no folders
        folder = os.open(path.absolute().parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
