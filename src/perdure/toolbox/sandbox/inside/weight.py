"""How much memory a call takes: its processes together, and what the kernel holds for them.

The kernel limits each process; this is for the sum, and for what no limit of a process counts: page tables, and the
buffers of sockets. Pages of files don't count: those of libraries are shared, and the work folder has its own limit.
"""

from __future__ import annotations

import os
import re

_PROCESSES_MAX = 10_000
_BUFFER_BYTES = 212_992
_LAST_MESSAGE_BYTES = 64 << 10
_HELD = re.compile(r"^(?:RssAnon|VmPTE|VmSwap):\s+(\d+) kB$", re.MULTILINE)
_SOCKETS = re.compile(r"^sockets: used (\d+)$", re.MULTILINE)


def host_pid(pidfd: int, proc: int) -> int:
    """The number of a process as /proc shows it, which may be of another process namespace than this one's."""
    for line in _read(f"self/fdinfo/{pidfd}", proc).splitlines():
        if line.startswith("Pid:"):
            return int(line.split()[1])
    raise ProcessLookupError(pidfd)


def own_bytes(proc: int) -> int:
    """What this process holds: its children begin with the same pages, which are counted once."""
    return _held_bytes("self", proc)


def full_socket_bytes(proc: int) -> int:
    """What a socket takes whose buffer has its usual size and is full: the kernel takes one message past that."""
    try:
        return int(_read("sys/net/core/wmem_default", proc)) + _LAST_MESSAGE_BYTES
    except (OSError, ValueError):
        return _BUFFER_BYTES + _LAST_MESSAGE_BYTES


def weight_bytes(pid: int, proc: int, *, shared_bytes: int) -> int:
    """What a process and all below it hold in memory and page tables, each without what it was forked with."""
    total, left = 0, [pid]
    for _ in range(_PROCESSES_MAX):
        if not left:
            break
        pid = left.pop()
        try:
            total += max(0, _held_bytes(str(pid), proc) - shared_bytes)
            for thread in _tasks(pid, proc):
                left += map(int, _read(f"{pid}/task/{thread}/children", proc).split())
        except (OSError, ValueError):  # it has ended meanwhile
            continue
    return total


def sockets_bytes(pid: int, proc: int, *, each: int) -> int:
    """What all sockets of a process's network namespace take if they are full, those on their way between processes
    among them."""
    found = _SOCKETS.search(_read(f"{pid}/net/sockstat", proc))
    return int(found[1]) * each if found else 0


def _held_bytes(name: str, proc: int) -> int:
    return 1024 * sum(map(int, _HELD.findall(_read(f"{name}/status", proc))))


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
