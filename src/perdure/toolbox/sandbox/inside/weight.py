"""Measure how much memory a call takes: its processes together, and what the kernel holds for them.

The kernel limits each process. This counts the sum, and what no limit of a process counts: page tables, and the buffers
of sockets. Pages of files don't count: those of libraries are shared, and the work folder has its own limit.

`proc` is an open /proc everywhere.
"""

from __future__ import annotations

import os
import re

_PROCESSES_MAX = 10_000
_BUFFER_BYTES = 212_992
_LAST_MESSAGE_BYTES = 64 << 10
_MEMORY_LINES = re.compile(r"^(?:RssAnon|VmPTE|VmSwap):\s+(\d+) kB$", re.MULTILINE)
_SOCKETS_LINE = re.compile(r"^sockets: used (\d+)$", re.MULTILINE)


def host_pid(pidfd: int, proc: int) -> int:
    """The number of a process in /proc, which may belong to another process namespace than this one's."""
    for line in _read(f"self/fdinfo/{pidfd}", proc).splitlines():
        if line.startswith("Pid:"):
            return int(line.split()[1])
    raise ProcessLookupError(pidfd)


def own_bytes(proc: int) -> int:
    """The memory of this process. Its children begin with the same pages, which are counted once."""
    return _memory_bytes("self", proc)


def full_socket_bytes(proc: int) -> int:
    """The memory of a socket with a full buffer of the usual size: the kernel takes one message past that."""
    try:
        return int(_read("sys/net/core/wmem_default", proc)) + _LAST_MESSAGE_BYTES
    except (OSError, ValueError):
        return _BUFFER_BYTES + _LAST_MESSAGE_BYTES


def weight_bytes(pid: int, proc: int, *, shared_bytes: int) -> int:
    """The memory and page tables of a process and all below it, each without what it was forked with."""
    total, pids = 0, [pid]
    for _ in range(_PROCESSES_MAX):
        if not pids:
            break
        pid = pids.pop()
        try:
            total += max(0, _memory_bytes(str(pid), proc) - shared_bytes)
            for thread in _thread_ids(pid, proc):
                pids += map(int, _read(f"{pid}/task/{thread}/children", proc).split())
        except (OSError, ValueError):  # it has ended meanwhile
            continue
    return total


def sockets_bytes(pid: int, proc: int, *, each: int) -> int:
    """The memory of all sockets of a process's network namespace if they are full, at `each` bytes. Those on their way
    between processes count."""
    match = _SOCKETS_LINE.search(_read(f"{pid}/net/sockstat", proc))
    return int(match[1]) * each if match else 0


def _memory_bytes(name: str, proc: int) -> int:
    """The anonymous memory, swap and page tables of a process, by its folder in /proc."""
    return 1024 * sum(map(int, _MEMORY_LINES.findall(_read(f"{name}/status", proc))))


def _thread_ids(pid: int, proc: int) -> list[str]:
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
