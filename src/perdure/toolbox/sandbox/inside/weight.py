"""How much memory the processes of a call take together. The kernel limits each of them; this is for the sum."""

from __future__ import annotations

import os
import resource

__all__ = ["host_pid", "own_pages", "weight_bytes"]

_PAGE = resource.getpagesize()
_PROCESSES_MAX = 10_000


def host_pid(pidfd: int, proc: int) -> int:
    """The number of a process as /proc shows it, which may be of another process namespace than this one's."""
    for line in _read(f"self/fdinfo/{pidfd}", proc).splitlines():
        if line.startswith("Pid:"):
            return int(line.split()[1])
    raise ProcessLookupError(pidfd)


def own_pages(proc: int) -> int:
    """What this process holds: its children begin with the same pages, which are counted once."""
    return int(_read("self/statm", proc).split()[1])


def weight_bytes(pid: int, proc: int, *, shared_pages: int) -> int:
    """What a process and all below it hold in memory, each without the pages it was forked with."""
    total, left = 0, [pid]
    for _ in range(_PROCESSES_MAX):
        if not left:
            break
        pid = left.pop()
        try:
            total += max(0, int(_read(f"{pid}/statm", proc).split()[1]) - shared_pages)
            for thread in _tasks(pid, proc):
                left += map(int, _read(f"{pid}/task/{thread}/children", proc).split())
        except (OSError, IndexError, ValueError):  # it has ended meanwhile
            continue
    return total * _PAGE


def _tasks(pid: int, proc: int) -> list[str]:
    fd = os.open(f"{pid}/task", os.O_RDONLY | os.O_DIRECTORY, dir_fd=proc)
    try:
        with os.scandir(fd) as threads:
            return [thread.name for thread in threads]
    finally:
        os.close(fd)


def _read(name: str, proc: int) -> str:
    fd = os.open(name, os.O_RDONLY, dir_fd=proc)
    try:
        return os.read(fd, 1 << 16).decode(errors="replace")
    finally:
        os.close(fd)
