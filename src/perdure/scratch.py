"""Folders for temporary files, which are cleaned up after killed processes; and files written as a whole."""

from __future__ import annotations

import fcntl
import logging
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

log = logging.getLogger(__name__)

PREFIX = "perdure-scratch-"
"""How the names of these folders begin, and of no others."""
TREE = f"{PREFIX}tree-"
"""How the names of those begin that may have folders in them."""


@contextmanager
def scratch_folder(purpose: str, *, parent: Path | None = None, tree: bool = False) -> Iterator[Path]:
    """A new folder for files, with `tree` also for folders in it, that is removed at the end.

    A lock that ends with the process tells its folders from those that a killed process has left.

    Args:
        parent: where it lies; None: in the folder for temporary files.
    """
    folder, lock = _make(TREE if tree else PREFIX, purpose, parent)
    try:
        yield folder
    finally:
        try:
            _remove(folder, lock)
        except OSError as error:  # the next start removes it; this must not take the place of the body's own end
            log.warning("%s stays until the next start: %s", folder, error)
        finally:
            os.close(lock)


def remove_leftovers(*parents: Path) -> None:
    """Remove what killed processes of this user have left in the folder for temporary files and in these."""
    import tempfile

    with suppress(OSError):  # without a folder for temporary files that can be written to, nothing is left in one
        parents = (Path(tempfile.gettempdir()), *parents)
    for parent in parents:
        _remove_leftovers_in(parent)


def user_path(path: str | Path) -> Path:
    """Return a path with the user's folder in place of `~`. That of an unknown user stays as it is, as in a shell: a
    file may be called `~$letter.docx`."""
    return Path(os.path.expanduser(path))  # noqa: PTH111  # pathlib raises


def replace_file(path: Path, data: bytes) -> None:
    """Write a file at once or not at all, and to the disk. It has the permissions and the owner of the one that is
    there; a new one is for its owner only. Raises: OSError."""
    _remove_leftovers_in(path.parent)
    with scratch_folder("file", parent=path.parent) as folder:
        new = folder / path.name
        with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        with suppress(FileNotFoundError):
            known = path.stat()
            with suppress(PermissionError):
                os.chown(new, known.st_uid, known.st_gid)
            new.chmod(stat.S_IMODE(known.st_mode))
        new.replace(path)


def _remove_leftovers_in(parent: Path) -> None:
    """Remove what killed processes of this user have left in a folder; what can't be removed stays."""
    with suppress(OSError), os.scandir(parent) as found:  # there may be many others, of which a `Path` takes long
        for folder in [Path(one.path) for one in found if one.name.startswith(PREFIX)]:
            with suppress(OSError):  # it belongs to a living process or to another user, or it is gone
                _remove_leftover(folder)


def _make(prefix: str, purpose: str, parent: Path | None) -> tuple[Path, int]:
    """Create a folder; return it, and the open file that holds its lock."""
    import tempfile

    while True:
        folder = Path(tempfile.mkdtemp(prefix=f"{prefix}{purpose}-", dir=parent))
        # Before it is locked, another process that starts may take it for a leftover: then there is no such folder.
        with suppress(FileNotFoundError):
            lock = _open(folder)
            with suppress(OSError):  # some network disks know no such locks; there it is never a leftover either
                fcntl.flock(lock, fcntl.LOCK_EX)
            if folder.exists():
                return folder, lock
            os.close(lock)


def _remove_leftover(folder: Path) -> None:
    """Remove a folder whose process is gone. Raises: OSError: it is not, or this is something else."""
    lock = _open(folder)
    try:
        found = os.fstat(lock)
        if found.st_uid == os.geteuid() and found.st_dev == folder.parent.stat().st_dev:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            _remove(folder, lock)
    finally:
        os.close(lock)


def _open(folder: Path) -> int:
    """The open folder. Raises: OSError: there is none of this name itself."""
    return os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)


def _remove(folder: Path, opened: int) -> None:
    """Remove the files of an open folder, then the folder; follow no link, enter folders only where expected."""
    with suppress(FileNotFoundError):  # somebody who cleans up was faster
        if folder.name.startswith(TREE):
            import shutil

            for name in os.listdir(opened):
                if stat.S_ISDIR(os.stat(name, dir_fd=opened, follow_symlinks=False).st_mode):
                    shutil.rmtree(name, dir_fd=opened)
        for name in os.listdir(opened):
            os.unlink(name, dir_fd=opened)
        folder.rmdir()
