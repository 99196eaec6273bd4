"""Put a backup in the place of a store: copy it beside, check it, then swap both at once and keep the old one."""

from __future__ import annotations

import contextlib
import functools
import os
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from perdure.core.errors import InvalidInput, NotAStore, StoreBusy, StoreDamaged
from perdure.core.incoming.addresses import is_postgres, without_password
from perdure.core.tasks import Progress, run_in_thread
from perdure.core.vectors import Fault
from perdure.features.copies.moves import Address, same_address
from perdure.features.copies.shapes import OF_THE_FILE, Contents, Shape, contents_of
from perdure.features.copies.sqlite_side import SqliteSide, connect_unchanged
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
    """What is in a store: `version` of its tables."""

    agents: int
    messages: int
    version: int


@dataclass(frozen=True, slots=True)
class RestoreReport:
    """A backup that is in use now. `kept`: where the old store is; empty: there was none."""

    rows: int
    digest: str
    kept: str


@contextmanager
def _of_a_backup() -> Iterator[None]:
    """The errors of a damaged backup say what helps there."""
    try:
        yield
    except StoreDamaged as error:
        raise StoreDamaged(str(error).replace(DAMAGED_HELPS, ANOTHER_HELPS)) from error


@_of_a_backup()
def look_at_backup(path: Path) -> StoreSummary:
    """What is in a backup; nothing is changed. Raises: InvalidInput: there is none; StoreError: it can't be used."""
    if not path.is_file():
        raise InvalidInput(f"there is no backup at {path}")
    check_log(path)
    with closing(connect_unchanged(path)) as connection:
        try:
            tables = {row[0] for row in connection.execute("SELECT name FROM sqlite_master")}
            if "schema_migrations" not in tables:
                raise NotAStore(f"{path} is no store of Perdure: name a file that `perdure backup` has made")
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
    look_at_backup(path)
    if same_address(path, target):
        raise InvalidInput(f"{path} is the store itself: name a backup of it")
    swap: Callable[[Path, Progress], str]
    if is_postgres(target):
        from perdure.features.copies.postgres_swap import check_unused, copy_and_swap

        await run_in_thread(lambda tell: check_unused(str(target)), progress)
        place = path
        swap = functools.partial(copy_and_swap, address=str(target), at=at)
    else:
        file = Path(target)
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        await run_in_thread(lambda tell: _check_unused(file), progress)
        place = file
        swap = functools.partial(_swap_files, target=file, at=at)
    copy = place.with_name(f".{path.name}.restore-{os.getpid()}")
    _remove_leftovers(place.parent, path.name)
    try:
        with _of_a_backup():
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
    """Copy a backup, compare both, and bring the copy to this version; return its contents before that.

    Raises: StoreDamaged.
    """
    with closing(connect_unchanged(path)) as source:
        backup(source, copy, lambda done, total: tell("copying", done, total))
    contents = []
    for file in (path, copy):
        with closing(SqliteSide(file, unchanged=True)) as side, side.snapshot(lock=False):
            if faults := side.db.integrity():
                raise StoreDamaged(f"{file} is damaged ({faults[0]}): {ANOTHER_HELPS}")
            shapes = [
                Shape(name, sorted(shape.columns), shape.key)
                for name, shape in side.shapes().items()
                if name not in OF_THE_FILE
            ]
            total = sum(side.db.rows(f"SELECT COUNT(*) FROM {shape.name}", {})[0][0] for shape in shapes)
            contents.append(contents_of(side, shapes, tell=lambda rows, total=total: tell("comparing", rows, total)))
    if contents[0].digest != contents[1].digest:
        raise StoreDamaged(f"the copy of {path} differs from it: the disk fails. The store is as it was")
    with closing(connect(copy)) as connection:
        upgrade(connection, copy, at=at)
    return contents[0]


async def _check_rows(store: Store, total: int, progress: Progress) -> None:
    """Compare messages, passages and blocks with their checksums. Raises: StoreDamaged."""
    faults: list[Fault] = []
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
                part = await store.read(lambda tx, owner, seq: tx.upkeep.check(owner, from_seq=seq), owner, seq)
                faults, seq = [*faults, *part.faults], part.after
            done += owner.rows
            progress("checking", done, max(done, total))
    if damage := [fault for fault in faults if fault.kind == "damage"]:
        raise StoreDamaged(
            f"{sum(fault.count for fault in damage):,} rows of the backup are damaged ({damage[0].owner_id}:"
            f" {damage[0].text}): {ANOTHER_HELPS}"
        )


def _finish(copy: Path, swap: Callable[[Path, Progress], str], tell: Progress) -> str:
    """Bring the checked copy into one file that is on the disk, and swap."""
    with closing(connect(copy)) as connection:
        try:
            single_file(connection)
        except sqlite3.Error as error:
            raise store_error(error, copy) from error
    with copy.open("rb") as file:
        os.fsync(file.fileno())
    return swap(copy, tell)


def _swap_files(copy: Path, tell: Progress, *, target: Path, at: datetime) -> str:
    """Rename the copy to the store's name, the old store being kept under another one; return that."""
    kept = target.with_name(f"{target.name}.before-{at:%Y%m%d-%H%M%S}-{os.getpid()}")
    is_there = target.exists()
    with _alone(target):
        if is_there:
            try:
                os.link(target, kept)
            except OSError:  # a file system without links
                shutil.copyfile(target, kept)
        for suffix in ("-wal", "-shm"):  # of a store that can't be read; any other has none by now
            if (part := _beside(target, suffix)).exists():
                part.replace(_beside(kept, suffix))
        _flush_folder(target)
        copy.replace(target)
        _flush_folder(target)
    _beside(target, "-mark").unlink(missing_ok=True)
    return str(kept) if is_there else ""


@contextmanager
def _alone(path: Path) -> Iterator[None]:
    """Keep other processes from opening the store at this path, and take its log into it, if it can be read.

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
    try:
        with path.open("rb") as file:
            return file.read(len(HEADER)) == HEADER
    except OSError:
        return False


@contextmanager
def _file_locked(path: Path) -> Iterator[None]:
    """The same for a file that SQLite can't read, by the locks of its processes."""
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


def _check_unused(path: Path) -> None:
    with _file_locked(path):
        pass


def _in_use(path: Path) -> StoreBusy:
    return StoreBusy(f"a process has {without_password(path)} open: stop it (`perdure serve`, a chat), then try again")


def _remove_leftovers(folder: Path, name: str) -> None:
    """Remove the copies of restores that were killed."""
    for file in folder.glob(f".{name}.restore-*"):
        number = file.name.rpartition("-")[2]
        if number.isdecimal() and not _is_alive(int(number)):
            remove_files(file)


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True


def _beside(path: Path, suffix: str) -> Path:
    return path.with_name(f"{path.name}{suffix}")


def _flush_folder(path: Path) -> None:
    """Have the names of a folder on the disk."""
    with contextlib.suppress(OSError):  # Windows opens no folders
        folder = os.open(path.absolute().parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
