"""A control group (version 2) around the fork server and all its calls.

It is made only in a group that was delegated to Perdure: groups that others manage are left alone, even by root. A call
sets its own limits itself.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

PREFIX = "perdure-sandbox-"
CONTROLLERS = frozenset({"memory", "pids"})
REMOVE_TRIES, REMOVE_WAIT_S = 20, 0.01
_MARKS = ("user.delegate", "trusted.delegate")


@dataclass(frozen=True, slots=True)
class DelegatedGroup:
    """The folder of the control group in which Perdure may make groups of its own, or why there is none."""

    folder: Path | None
    why: str = ""


def is_delegated(folder: Path) -> bool:
    """Whether systemd marked a control group (its folder) as delegated. Its owner proves nothing, as a user's session
    slices belong to the user, but are managed by the user's systemd."""
    for mark in _MARKS:
        with contextlib.suppress(OSError):
            if os.getxattr(folder, mark) == b"1":
                return True
    return False


def find_delegated_group(
    proc: Path = Path("/proc/self"), *, is_marked: Callable[[Path], bool] = is_delegated
) -> DelegatedGroup:
    """Return the control group in which this process, with the folder `proc` in /proc, may create others: its parent
    group, or its own. `is_marked`: whether a group was delegated."""
    try:
        own, top = _find_own_group(proc)
    except (OSError, ValueError) as error:
        return DelegatedGroup(None, str(error))
    why = ""
    for folder in dict.fromkeys((own.parent if own != top else own, own)):
        try:
            problem = _enable_controllers(folder, is_marked)
        except OSError as error:
            problem = f"{folder}: {error.strerror or error}"
        if not problem:
            return DelegatedGroup(folder)
        why = why or problem
    return DelegatedGroup(None, why)


def _find_own_group(proc: Path) -> tuple[Path, Path]:
    """(the group of this process, the uppermost visible one). Raises: OSError; ValueError: there is none."""
    lines = (proc / "cgroup").read_text(encoding="utf-8").splitlines()
    path = next((line[3:] for line in lines if line.startswith("0::")), None)
    mount = next(_cgroup_mounts((proc / "mountinfo").read_text(encoding="utf-8")), None)
    if path is None or mount is None:
        raise ValueError("this machine has no control groups of version 2")
    root, top = mount
    own = top / path.removeprefix(root).lstrip("/")
    if not Path(path).is_relative_to(root) or ".." in Path(path).parts or not own.is_dir():
        raise ValueError("the control group of this process is not seen from here")
    return own, top


def _cgroup_mounts(mountinfo: str) -> Iterator[tuple[str, Path]]:
    """(root, mount point) of every mount of control groups of version 2."""
    for line in mountinfo.splitlines():
        mount, _, kind = line.partition(" - ")
        if kind.split(" ", 1)[0] == "cgroup2":
            fields = mount.split(" ")
            yield fields[3], Path(fields[4].replace("\\040", " "))


def _enable_controllers(folder: Path, is_marked: Callable[[Path], bool]) -> str:
    """Turn on the controllers of a group, so that others can be made in it. Returns why that can't be; empty: it can.

    Raises: OSError.
    """
    missing = CONTROLLERS - {*_read_words(folder / "cgroup.controllers")}
    if missing:
        return f"{folder} has no controller for {' and '.join(sorted(missing))}"
    if not is_marked(folder):
        return f"{folder} was not delegated: it has no mark of it ({' or '.join(_MARKS)}), as Delegate= of systemd sets"
    if not os.access(folder, os.W_OK) or not os.access(folder / "cgroup.procs", os.W_OK):
        return f"{folder} was delegated to another user than this process has"
    if {*_read_words(folder / "cgroup.subtree_control")} >= CONTROLLERS:
        return ""
    if _read_words(folder / "cgroup.procs"):
        return (
            f"{folder} has processes of its own, so its controllers can't be turned on (DelegateSubgroup= of systemd)"
        )
    (folder / "cgroup.subtree_control").write_text(" ".join(f"+{name}" for name in sorted(CONTROLLERS)))
    return ""


def _read_words(file: Path) -> list[str]:
    """The words of a file of the kernel, which spaces and line breaks separate."""
    return file.read_text(encoding="utf-8").split()


class ControlGroup:
    """A control group of Perdure, with limits for all of its processes together."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @classmethod
    def create(cls, parent: Path, *, memory_bytes: int, processes: int) -> ControlGroup:
        """Make a group without processes, and remove those that dead servers have left.

        Raises: OSError: it could not be made, or not be limited; then nothing is left of it.
        """
        _remove_abandoned(parent)
        folder = parent / f"{PREFIX}{os.getpid()}-{secrets.token_hex(4)}"
        folder.mkdir()
        group = cls(folder)
        try:
            (folder / "memory.max").write_text(str(memory_bytes))
            with contextlib.suppress(OSError):  # not every kernel counts swap
                (folder / "memory.swap.max").write_text("0")
            (folder / "pids.max").write_text(str(processes))
        except OSError:
            group.remove()
            raise
        return group

    def add_process(self, pid: int) -> None:
        """Add a process, and all that it starts from now on. Raises: OSError."""
        (self.folder / "cgroup.procs").write_text(str(pid))

    def remove(self) -> None:
        """Remove the group when its processes have ended, which may take a moment."""
        for _ in range(REMOVE_TRIES):
            try:
                self.folder.rmdir()
            except FileNotFoundError:
                return
            except OSError:
                time.sleep(REMOVE_WAIT_S)


def _remove_abandoned(parent: Path) -> None:
    """Remove the groups below a folder whose servers have ended. The kernel keeps those with processes."""
    for folder in parent.glob(f"{PREFIX}*"):
        pid = folder.name.removeprefix(PREFIX).partition("-")[0]
        if not Path("/proc", pid).exists():
            with contextlib.suppress(OSError):
                folder.rmdir()
