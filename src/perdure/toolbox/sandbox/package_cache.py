"""The cache folder of installed sets: how large it is, what goes when it is full, what is never touched.

A set is held by a shared lock on its lock file while a call uses it, and by an exclusive one while it is made or
removed. Several processes may share the folder.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import fcntl
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

LOCK_POLL_S = 0.1
ENTRY_BYTES = 4_096
"""What a file or folder counts at least, so that many small ones count too."""

_LOCK, _SCRATCH = ".lock", ".new-"


class CacheFull(Exception):
    """Everything that is installed is in use, and takes all the room there may be."""


class SetLock:
    """The lock file of one set, or of a place; open until `close`."""

    def __init__(self, cache: Path, name: str) -> None:
        self._fd = os.open(cache / f".{name}{_LOCK}", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def share(self) -> bool:
        """Take it together with others that share it, in place of what is held; False: somebody has it alone."""
        return self._take(fcntl.LOCK_SH)

    def take(self) -> bool:
        """Take it alone, in place of what is held; False: somebody has it, and now nothing is held."""
        return self._take(fcntl.LOCK_EX)

    def touch(self) -> None:
        """Record that the set is used now: `make_room` removes the least recently used sets first."""
        os.utime(self._fd)

    def close(self) -> None:
        os.close(self._fd)

    def _take(self, kind: int) -> bool:
        try:
            fcntl.flock(self._fd, kind | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno not in {errno.EAGAIN, errno.EACCES}:
                raise
            return False
        return True


async def free_lock(locks: list[SetLock]) -> SetLock:
    """The first of these that gets free, taken."""
    while True:
        for lock in locks:
            if lock.take():
                return lock
        await asyncio.sleep(LOCK_POLL_S)


def scratch_of(cache: Path, name: str) -> Path:
    """Where a set is made, by whoever has its lock alone."""
    return cache / f"{_SCRATCH}{name}"


@dataclass(frozen=True, slots=True)
class _PackageSet:
    name: str
    folder: Path
    bytes: int
    used_at: float


def make_room(cache: Path, bytes_max: int) -> None:
    """Remove package sets, the least recently used first, until the rest take at most `bytes_max`.

    A set that is in use stays. Unfinished sets of dead processes are always removed. Raises: CacheFull.
    """
    sets = sorted(_package_sets(cache), key=lambda one: one.used_at)
    total = sum(one.bytes for one in sets)
    for one in sets:
        complete = not one.folder.name.startswith(_SCRATCH)
        if complete and total <= bytes_max:
            continue
        lock = SetLock(cache, one.name)
        try:
            if lock.take():
                remove_tree(one.folder)
                total -= one.bytes
        finally:
            lock.close()
    if total > bytes_max:
        raise CacheFull(f"the requirements in use take {total:,} bytes, and only {bytes_max:,} are free for them")


def _package_sets(cache: Path) -> Iterator[_PackageSet]:
    """The package sets in the cache folder, in any order, unfinished ones too."""
    for folder in cache.iterdir():
        name = folder.name.removeprefix(_SCRATCH)
        if folder.is_symlink() or not folder.is_dir() or name.startswith("."):
            continue
        try:
            used_at = (cache / f".{name}{_LOCK}").stat().st_mtime
        except FileNotFoundError:
            used_at = 0.0
        yield _PackageSet(name, folder, tree_bytes(folder), used_at)


def entries_of(folder: Path) -> Iterator[os.DirEntry[str]]:
    """All that is in a folder, at whatever depth: a package may nest deeper than functions can. What goes meanwhile is
    left out."""
    waiting = [str(folder)]
    while waiting:
        with contextlib.suppress(FileNotFoundError), os.scandir(waiting.pop()) as entries:
            for entry in entries:
                yield entry
                if entry.is_dir(follow_symlinks=False):
                    waiting.append(entry.path)


def tree_bytes(folder: Path) -> int:
    """What a folder and all in it take, in bytes; each entry at least 4,096."""
    total = 0
    for entry in entries_of(folder):
        with contextlib.suppress(FileNotFoundError):
            total += max(ENTRY_BYTES, entry.stat(follow_symlinks=False).st_size)
    return total


def remove_tree(folder: Path) -> None:
    """Remove a folder of ours and what is in it, file by file, never past the device that it lies on."""
    device = folder.lstat().st_dev
    folders = [folder]
    for inner in folders:
        for entry in sorted(inner.iterdir()):
            found = entry.lstat()
            if found.st_dev != device:
                raise OSError(errno.EXDEV, f"{entry} lies on another device: it was not removed")
            if stat.S_ISDIR(found.st_mode):
                folders.append(entry)
            else:
                entry.unlink()
    for inner in reversed(folders):
        inner.rmdir()
