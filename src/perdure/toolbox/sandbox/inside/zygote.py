"""The fork server: a process with one thread that never holds a secret, and that forks once for each call.

It hears of calls on a socket, with their pipes; what is in the pipes it never reads. A call's process is the first one
of its own process namespace, so its end is the end of all that it has started.
"""

from __future__ import annotations

import gc
import json
import os
import re
import select
import signal
import socket
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from . import landlock, seccomp
from .cage import CagePlan
from .call import PROC_FD, run
from .identity import IdRange, current_map, free_range, identity_map, unshare_mapped
from .kernel import (
    CLONE_NEWCGROUP,
    CLONE_NEWIPC,
    CLONE_NEWNS,
    CLONE_NEWPID,
    CLONE_NEWUSER,
    CLONE_NEWUTS,
    PR_SET_PDEATHSIG,
    drop_capabilities,
    keep_capabilities,
    prctl,
    set_namespace,
    unshare,
)
from .root_folder import SITE, enter_root, system_files

MESSAGE_BYTES = 64 << 10
WEIGH_S = 0.2
"""How often the memory of each call is measured."""

_CONTROL_FD = PROC_FD + 1
_CAP_KILL, _CAP_SETGID, _CAP_SETUID = 5, 6, 7


def main(control_fd: int) -> None:
    """Run the fork server: take its settings from a socket, and serve until the other end of that is closed."""
    os.setsid()  # an interrupt in the server's terminal is the server's
    os.dup2(control_fd, _CONTROL_FD)
    os.closerange(_CONTROL_FD + 1, os.sysconf("SC_OPEN_MAX"))
    proc = os.open("/proc", os.O_PATH | os.O_DIRECTORY)
    os.dup2(proc, PROC_FD)
    os.close(proc)
    control = socket.socket(fileno=_CONTROL_FD)
    settings = json.loads(control.recv(MESSAGE_BYTES))
    sys.executable = str(Path(sys.executable).resolve())  # the link to it is not shown to calls
    try:
        # What most tools import anyway, once for all calls.
        import asyncio  # noqa: F401
        import collections  # noqa: F401
        import datetime  # noqa: F401
        import random  # noqa: F401

        libraries = [f"{sys.base_prefix}/lib", str(Path(os.__file__).parent), str(Path(os.__file__).resolve().parent)]
        readable = system_files(sys.executable, libraries)
        serve = _serve_with_namespaces if settings["namespaces"] else _serve_without_namespaces
        serve(control, settings, readable)
    except Exception as error:  # the server waits for an answer, whatever happens
        _send(control, {"failure": str(error) or type(error).__name__})


def _freeze_memory() -> None:
    """Keep the objects that exist before the first fork from garbage collection, which would write to their pages:
    those would be copied into every process."""
    gc.collect()
    gc.freeze()


def _serve_with_namespaces(control: socket.socket, settings: Mapping[str, Any], readable: Sequence[Path]) -> None:
    """Enter new namespaces with a root folder of `readable` paths, and serve calls in a process there."""
    outside = str(Path("/proc/self/ns/mnt").readlink())
    site = [Path(path) for path in settings["site"]]
    store = Path(settings["store"]) if settings["store"] else None
    root, slots = os.geteuid() == 0, int(settings["slots"])
    owner = free_range(current_map(), slots + 1, number=os.getppid()) if root else os.geteuid()
    kinds = CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWIPC | CLONE_NEWUTS | CLONE_NEWCGROUP
    if root:
        os.setgroups([])
        uids, gids = identity_map(current_map()), identity_map(current_map("gid"))
        unshare_mapped(CLONE_NEWUSER | CLONE_NEWNS, uids=uids, gids=gids, proc=PROC_FD)
        enter_root(readable, site=site, store=store, outside=outside)
        own: list[IdRange] = [(0, owner, slots + 1)]
        unshare_mapped(kinds, uids=own, gids=own, proc=PROC_FD, become=owner)
    else:
        unshare_mapped(kinds, uids=[(0, owner, 1)], gids=[(0, os.getegid(), 1)], proc=PROC_FD, only_self=True)
        enter_root(readable, site=site, store=store, outside=outside)
    socket.sethostname("sandbox")
    filters = {network: seccomp.program(network=network, namespaces=True) for network in (False, True)}
    _freeze_memory()
    pid = os.fork()
    if pid:
        control.close()
        drop_capabilities()
        _, status = os.waitpid(pid, 0)
        os._exit(os.waitstatus_to_exitcode(status) & 0x7F)
    prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    plan = CagePlan(
        tolerant=bool(settings["tolerant"]),
        namespaces=True,
        first_uid=1 if root else None,
        landlock=landlock.supported_version() if settings["landlock"] else 0,
        site=tuple(f"{SITE}/{number}" for number in range(len(site))),
        proc=PROC_FD,
        filters=filters,
    )
    _CallProcesses(control, plan).serve()


def _serve_without_namespaces(control: socket.socket, settings: Mapping[str, Any], readable: Sequence[Path]) -> None:
    """Serve calls that are held back by Landlock and the filter of system calls; `readable`: what they may read."""
    first = None
    if os.geteuid() == 0:
        slots = int(settings["slots"])
        owner = free_range(current_map(), slots + 1, number=os.getppid())
        os.setgroups([])
        keep_capabilities((_CAP_KILL, _CAP_SETGID, _CAP_SETUID), owner)
        first = owner + 1
    _freeze_memory()
    plan = CagePlan(
        tolerant=bool(settings["tolerant"]),
        namespaces=False,
        first_uid=first,
        landlock=landlock.supported_version() if settings["landlock"] else 0,
        readable=tuple(map(str, readable)),
        store=settings["store"] or "",
        site=tuple(settings["site"]),
    )
    _CallProcesses(control, plan).serve()


@dataclass(slots=True)
class _CallProcess:
    """A call's process. `memory_bytes`: what all its processes may hold together; `over_memory`: they held more."""

    number: int
    pid: int
    memory_bytes: int
    over_memory: bool = False


class _CallProcesses:
    """Forks for calls, ends them on request or when they hold too much memory, and reports their ends."""

    def __init__(self, control: socket.socket, plan: CagePlan) -> None:
        self._control, self._plan = control, plan
        self._own_pids = os.open("self/ns/pid", os.O_RDONLY, dir_fd=PROC_FD) if plan.namespaces else -1
        self._calls: dict[int, _CallProcess] = {}  # by pidfd
        self._weigh_at = 0.0
        self._shared_bytes = _memory_bytes("self")  # its children begin with the same pages, which are counted once
        self._socket_bytes = full_socket_bytes()
        self._poll = select.poll()
        self._poll.register(control, select.POLLIN)

    def serve(self) -> None:
        """Report what this server can use, then serve until the socket is closed."""
        plan = self._plan
        facts = {"namespaces": plan.namespaces, "landlock": plan.landlock, "own_users": plan.first_uid is not None}
        _send(self._control, facts)
        while True:
            wait_ms = max(0.0, self._weigh_at - time.monotonic()) * 1000 if self._calls else None
            for fd, _ in self._poll.poll(wait_ms):
                if fd == self._control.fileno():
                    message, fds, _, _ = socket.recv_fds(self._control, MESSAGE_BYTES, 5)
                    if not message:
                        os._exit(0)
                    self._handle(json.loads(message), fds)
                elif fd in self._calls:
                    self._report_end(fd)
            if time.monotonic() >= self._weigh_at:
                self._weigh()

    def _handle(self, message: Mapping[str, Any], fds: list[int]) -> None:
        """Start the call that a message asks for, with these pipes, or end one."""
        if "kill" in message:
            for call in self._calls.values():
                if call.number == message["kill"]:
                    os.kill(call.pid, signal.SIGKILL)  # not yet waited for, so nobody else can have this pid
            return
        try:
            self._start(message, fds)
        except OSError as error:
            _send(self._control, {"call": message["call"], "failure": str(error)})
        finally:
            for fd in fds:
                os.close(fd)

    def _weigh(self) -> None:
        """End calls that take too much memory, with all of their processes and what the kernel holds for them."""
        for pidfd, call in self._calls.items():
            try:
                pid = host_pid(pidfd)
                weight = weight_bytes(pid, shared_bytes=self._shared_bytes)
                weight += sockets_bytes(pid, each=self._socket_bytes) if self._plan.namespaces else 0
            except OSError:  # it has ended, or /proc hides it
                continue
            if weight > call.memory_bytes:
                call.over_memory = True
                os.kill(call.pid, signal.SIGKILL)
        self._weigh_at = time.monotonic() + WEIGH_S

    def _start(self, request: Mapping[str, Any], fds: list[int]) -> None:
        """Fork the process of a call, with these pipes (descriptors), and watch it. Raises: OSError."""
        if self._plan.namespaces:
            set_namespace(self._own_pids, CLONE_NEWPID)  # else the next line would be refused after the first call
            unshare(CLONE_NEWPID)  # for the next child
        pid = os.fork()
        if pid == 0:
            run(self._plan, request, fds)
            os._exit(0)
        if not self._calls:
            self._weigh_at = time.monotonic() + WEIGH_S
        pidfd = os.pidfd_open(pid)
        self._calls[pidfd] = _CallProcess(request["call"], pid, request["memory_bytes"])
        self._poll.register(pidfd, select.POLLIN)

    def _report_end(self, pidfd: int) -> None:
        """Reap a call's process that has ended, known by its pidfd, and tell the server how it ended."""
        call = self._calls.pop(pidfd)
        self._poll.unregister(pidfd)
        os.close(pidfd)
        _, status, usage = os.wait4(call.pid, 0)
        code, cpu_s = os.waitstatus_to_exitcode(status), usage.ru_utime + usage.ru_stime
        message = {"call": call.number, "code": code, "cpu_s": cpu_s, "over_memory": call.over_memory}
        _send(self._control, message)


def _send(control: socket.socket, message: Mapping[str, Any]) -> None:
    """Send a message to the server; end this process, if the server is gone."""
    try:
        control.send(json.dumps(message).encode())
    except (BrokenPipeError, ConnectionResetError):  # the server is gone
        os._exit(0)


_PROCESSES_MAX = 10_000
_BUFFER_BYTES = 212_992
_LAST_MESSAGE_BYTES = 64 << 10
_MEMORY_LINES = re.compile(r"^(?:RssAnon|VmPTE|VmSwap):\s+(\d+) kB$", re.MULTILINE)
_SOCKETS_LINE = re.compile(r"^sockets: used (\d+)$", re.MULTILINE)


def host_pid(pidfd: int) -> int:
    """The number in /proc of a pidfd's process, which namespaces may number otherwise. Raises: ProcessLookupError."""
    for line in _read(f"self/fdinfo/{pidfd}").splitlines():
        if line.startswith("Pid:"):
            return int(line.split()[1])
    raise ProcessLookupError(pidfd)


def full_socket_bytes() -> int:
    """The memory of a socket with a full buffer of the usual size: the kernel takes one message past that."""
    try:
        return int(_read("sys/net/core/wmem_default")) + _LAST_MESSAGE_BYTES
    except (OSError, ValueError):
        return _BUFFER_BYTES + _LAST_MESSAGE_BYTES


def weight_bytes(pid: int, *, shared_bytes: int) -> int:
    """The memory and page tables of a process and its descendants, each without `shared_bytes`, had from the fork."""
    total, pids = 0, [pid]
    for _ in range(_PROCESSES_MAX):
        if not pids:
            break
        pid = pids.pop()
        try:
            total += max(0, _memory_bytes(str(pid)) - shared_bytes)
            for thread in _thread_ids(pid):
                pids += map(int, _read(f"{pid}/task/{thread}/children").split())
        except (OSError, ValueError):  # it has ended meanwhile
            continue
    return total


def sockets_bytes(pid: int, *, each: int) -> int:
    """The memory of all sockets of a process's network namespace, as if each had a full buffer of `each` bytes; also of
    those that are sent from one process to another."""
    match = _SOCKETS_LINE.search(_read(f"{pid}/net/sockstat"))
    return int(match[1]) * each if match else 0


def _memory_bytes(name: str) -> int:
    """The anonymous memory, swap and page tables of a process, by the name of its folder in /proc."""
    return 1024 * sum(map(int, _MEMORY_LINES.findall(_read(f"{name}/status"))))


def _thread_ids(pid: int) -> list[str]:
    """The numbers of a process's threads. Raises: OSError: it has ended."""
    fd = os.open(f"{pid}/task", os.O_RDONLY | os.O_DIRECTORY, dir_fd=PROC_FD)
    try:
        with os.scandir(fd) as threads:
            return [thread.name for thread in threads]
    finally:
        os.close(fd)


def _read(name: str) -> str:
    """Return the first 64 kB of a file below /proc. Raises: OSError."""
    fd = os.open(name, os.O_RDONLY, dir_fd=PROC_FD)
    try:
        return os.read(fd, 1 << 16).decode(errors="replace")
    finally:
        os.close(fd)
