"""The cache folder of installed package sets: locks, sizes, and the removal of old sets when it is full.

A set is held by a shared lock on its lock file while a call uses it, and by an exclusive one while it is made or
removed. Several processes may share the folder.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import stat
from collections.abc import Iterator
from pathlib import Path

LOCK_POLL_S = 0.1
ENTRY_BYTES = 4_096
"""The least that a file or folder counts, so that many small ones count too."""

_LOCK = ".lock"
SCRATCH = ".new-"
"""How the name of the folder begins in which a set is made, by the holder of its lock."""


class CacheFull(Exception):
    """All installed sets are in use, and they take all the room that is allowed."""


class SetLock:
    """The lock file of a set, or of one of the installers; open until `close`."""

    def __init__(self, cache: Path, name: str) -> None:
        self._fd = os.open(cache / f".{name}{_LOCK}", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def share(self) -> bool:
        """Lock it together with readers, in place of an earlier lock; return False if a writer has it."""
        return self._lock(fcntl.LOCK_SH)

    def claim(self) -> bool:
        """Lock it exclusively, in place of a lock held before; return False if another has it; then no lock is held."""
        return self._lock(fcntl.LOCK_EX)

    def touch(self) -> None:
        """Record that the set is used now: `make_room` removes the least recently used sets first."""
        os.utime(self._fd)

    def close(self) -> None:
        os.close(self._fd)

    def _lock(self, kind: int) -> bool:
        """Take a lock of this kind (`fcntl.LOCK_SH`, `LOCK_EX`) without waiting. False: others hold one against it."""
        try:
            fcntl.flock(self._fd, kind | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno not in {errno.EAGAIN, errno.EACCES}:
                raise
            return False
        return True


def make_room(cache: Path, bytes_max: int) -> None:
    """Remove package sets, the least recently used first, until those that are left take at most `bytes_max`.

    A set in use is never removed, an unfinished one of a dead process always. Raises: CacheFull: too much is in use.
    """
    sets = sorted(_package_sets(cache))
    total = sum(size for _, _, size in sets)
    for _, folder, size in sets:
        complete = not folder.name.startswith(SCRATCH)
        if complete and total <= bytes_max:
            continue
        lock = SetLock(cache, folder.name.removeprefix(SCRATCH))
        try:
            if lock.claim():
                remove_tree(folder)
                total -= size
        finally:
            lock.close()
    if total > bytes_max:
        raise CacheFull(f"the requirements in use take {total:,} bytes, and only {bytes_max:,} are free for them")


def _package_sets(cache: Path) -> Iterator[tuple[float, Path, int]]:
    """Yield (last use in seconds since 1970, folder, bytes) of the sets in a cache, unfinished ones too."""
    for folder in cache.iterdir():
        name = folder.name.removeprefix(SCRATCH)
        if folder.is_symlink() or not folder.is_dir() or name.startswith("."):
            continue
        try:
            used_at = (cache / f".{name}{_LOCK}").stat().st_mtime
        except FileNotFoundError:
            used_at = 0.0
        yield used_at, folder, tree_bytes(folder)


def walk_entries(folder: Path) -> Iterator[os.DirEntry[str]]:
    """Yield all entries below a folder, at any depth, except those removed meanwhile."""
    folders = [str(folder)]
    while folders:
        with contextlib.suppress(FileNotFoundError), os.scandir(folders.pop()) as entries:
            for entry in entries:
                yield entry
                if entry.is_dir(follow_symlinks=False):
                    folders.append(entry.path)


def tree_bytes(folder: Path) -> int:
    """The size of a folder with all entries below it, in bytes; each counts at least 4,096."""
    total = 0
    for entry in walk_entries(folder):
        with contextlib.suppress(FileNotFoundError):
            total += max(ENTRY_BYTES, entry.stat(follow_symlinks=False).st_size)
    return total


def remove_tree(folder: Path) -> None:
    """Remove a folder with its contents, file by file, without leaving its device. Raises: OSError."""
    device = folder.lstat().st_dev
    folders = [folder]
    for inner in folders:
        for entry in sorted(inner.iterdir()):
            facts = entry.lstat()
            if facts.st_dev != device:
                raise OSError(errno.EXDEV, f"{entry} lies on another device: it was not removed")
            if stat.S_ISDIR(facts.st_mode):
                folders.append(entry)
            else:
                entry.unlink()
    for inner in reversed(folders):
        inner.rmdir()
