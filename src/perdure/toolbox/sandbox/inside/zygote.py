"""The fork server: a process with one thread that never holds a secret, and that forks once for each call.

It hears of calls on a socket, with their pipes; what is in the pipes it never reads. A call's process is the first one
of its own process namespace, so its end is the end of all that it has started.
"""

from __future__ import annotations

import gc
import json
import os
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
from .cage import Plan
from .call import PROC, run
from .identity import Extent, current_map, free_range, identity_map, unshare_mapped
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
from .later import import_asyncio
from .root_folder import SITE, enter_root, system_files
from .weight import full_socket_bytes, host_pid, own_bytes, sockets_bytes, weight_bytes

MESSAGE_BYTES = 64 << 10
WEIGH_S = 0.2
_CONTROL = PROC + 1
_CAP_KILL, _CAP_SETGID, _CAP_SETUID = 5, 6, 7


def main(control_fd: int) -> None:
    """Serve until the other end of the socket is closed."""
    os.setsid()  # an interrupt in the server's terminal is the server's
    os.dup2(control_fd, _CONTROL)
    os.closerange(_CONTROL + 1, os.sysconf("SC_OPEN_MAX"))
    proc = os.open("/proc", os.O_PATH | os.O_DIRECTORY)
    os.dup2(proc, PROC)
    os.close(proc)
    control = socket.socket(fileno=_CONTROL)
    settings = json.loads(control.recv(MESSAGE_BYTES))
    sys.executable = str(Path(sys.executable).resolve())  # the link to it is not shown to calls
    try:
        libraries = [f"{sys.base_prefix}/lib", str(Path(os.__file__).parent), str(Path(os.__file__).resolve().parent)]
        shown = system_files(sys.executable, libraries)
        _preload(shown)
        serve = _with_namespaces if settings["namespaces"] else _without_namespaces
        serve(control, settings, shown)
    except Exception as error:  # whatever it is, the server has to hear of it
        _tell(control, {"failed": str(error) or type(error).__name__})


def _preload(shown: Sequence[Path]) -> None:
    """What most tools import anyway, once for all calls."""
    import collections  # noqa: F401
    import datetime  # noqa: F401
    import random  # noqa: F401

    import_asyncio(shown)


def _settle() -> None:
    """Before the first fork: what is never collected is not written to, and so not copied into any process."""
    gc.collect()
    gc.freeze()


def _with_namespaces(control: socket.socket, settings: Mapping[str, Any], shown: Sequence[Path]) -> None:
    outside = str(Path("/proc/self/ns/mnt").readlink())
    site = [Path(path) for path in settings["site"]]
    store = Path(settings["store"]) if settings["store"] else None
    root, slots = os.geteuid() == 0, int(settings["slots"])
    owner = free_range(current_map(), slots + 1, number=os.getppid()) if root else os.geteuid()
    kinds = CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWIPC | CLONE_NEWUTS | CLONE_NEWCGROUP
    if root:
        os.setgroups([])
        uids, gids = identity_map(current_map()), identity_map(current_map("gid"))
        unshare_mapped(CLONE_NEWUSER | CLONE_NEWNS, uids=uids, gids=gids, proc=PROC)
        enter_root(shown, site=site, store=store, outside=outside)
        own: list[Extent] = [(0, owner, slots + 1)]
        unshare_mapped(kinds, uids=own, gids=own, proc=PROC, become=owner)
    else:
        unshare_mapped(kinds, uids=[(0, owner, 1)], gids=[(0, os.getegid(), 1)], proc=PROC, alone=True)
        enter_root(shown, site=site, store=store, outside=outside)
    socket.sethostname("sandbox")
    filters = {network: seccomp.program(network=network, namespaces=True) for network in (False, True)}
    _settle()
    pid = os.fork()
    if pid:
        control.close()
        drop_capabilities()
        _, status = os.waitpid(pid, 0)
        os._exit(os.waitstatus_to_exitcode(status) & 0x7F)
    prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    plan = Plan(
        tolerant=bool(settings["tolerant"]),
        namespaces=True,
        first_uid=1 if root else None,
        landlock=landlock.abi() if settings["landlock"] else 0,
        shown=(),
        store="",
        site=tuple(f"{SITE}/{number}" for number in range(len(site))),
        proc=PROC,
        filters=filters,
    )
    _Server(control, plan, settings).serve()


def _without_namespaces(control: socket.socket, settings: Mapping[str, Any], shown: Sequence[Path]) -> None:
    first = None
    if os.geteuid() == 0:
        slots = int(settings["slots"])
        owner = free_range(current_map(), slots + 1, number=os.getppid())
        os.setgroups([])
        keep_capabilities((_CAP_KILL, _CAP_SETGID, _CAP_SETUID), owner)
        first = owner + 1
    _settle()
    plan = Plan(
        tolerant=bool(settings["tolerant"]),
        namespaces=False,
        first_uid=first,
        landlock=landlock.abi() if settings["landlock"] else 0,
        shown=tuple(map(str, shown)),
        store=settings["store"] or "",
        site=tuple(settings["site"]),
        proc=-1,
        filters={},
    )
    _Server(control, plan, settings).serve()


@dataclass(slots=True)
class _Call:
    """A call's process.

    Args:
        bytes_max: what all its processes may hold together; None: it has no job yet.
        heavy: it was ended because they held more.
    """

    number: int
    pid: int
    bytes_max: int | None = None
    heavy: bool = False


class _Server:
    """Forks for calls, ends them when told or when they are too heavy, and tells when they have ended."""

    def __init__(self, control: socket.socket, plan: Plan, settings: Mapping[str, Any]) -> None:
        self._control = control
        self._plan = plan
        self._settings = settings
        self._own_pids = os.open("self/ns/pid", os.O_RDONLY, dir_fd=PROC) if plan.namespaces else -1
        self._calls: dict[int, _Call] = {}  # by pidfd
        self._weigh_at = 0.0
        self._shared_bytes = 0
        self._socket_bytes = full_socket_bytes(PROC)
        self._poll = select.poll()
        self._poll.register(control, select.POLLIN)

    def serve(self) -> None:
        self._shared_bytes = own_bytes(PROC)
        facts = {"landlock": self._plan.landlock, "root": self._plan.first_uid is not None}
        _tell(self._control, {"ready": True, "namespaces": self._plan.namespaces, **facts})
        while True:
            for fd, _ in self._poll.poll(self._until_weighing()):
                if fd == self._control.fileno():
                    message, fds, _, _ = socket.recv_fds(self._control, MESSAGE_BYTES, 5)
                    if not message:
                        os._exit(0)
                    self._hear(json.loads(message), fds)
                elif fd in self._calls:
                    self._reap(fd)
            if time.monotonic() >= self._weigh_at:
                self._weigh()

    def _hear(self, message: Mapping[str, Any], fds: list[int]) -> None:
        if "kill" in message:
            self._kill(message["kill"])
            return
        if "limit" in message:
            if self._until_weighing() is None:
                self._weigh_at = time.monotonic() + WEIGH_S
            for call in self._calls.values():
                if call.number == message["limit"]:
                    call.bytes_max = message["bytes_max"]
            return
        try:
            self._start(message, fds)
        except OSError as error:
            _tell(self._control, {"ended": message["call"], "failed": str(error)})
        finally:
            for fd in fds:
                os.close(fd)

    def _kill(self, wanted: int) -> None:
        for call in self._calls.values():
            if call.number == wanted:
                os.kill(call.pid, signal.SIGKILL)  # not yet waited for, so nobody else can have this number

    def _until_weighing(self) -> float | None:
        """In milliseconds; None: there is nothing to weigh."""
        if all(call.bytes_max is None for call in self._calls.values()):
            return None
        return max(0.0, self._weigh_at - time.monotonic()) * 1000

    def _weigh(self) -> None:
        """End calls that take too much memory, with all of their processes and what the kernel holds for them."""
        for pidfd, call in self._calls.items():
            if call.bytes_max is None:
                continue
            try:
                pid = host_pid(pidfd, PROC)
                weight = weight_bytes(pid, PROC, shared_bytes=self._shared_bytes)
                weight += sockets_bytes(pid, PROC, each=self._socket_bytes) if self._plan.namespaces else 0
            except OSError:  # it has ended, or /proc hides it
                continue
            if weight > call.bytes_max:
                call.heavy = True
                os.kill(call.pid, signal.SIGKILL)
        self._weigh_at = time.monotonic() + WEIGH_S

    def _start(self, call: Mapping[str, Any], fds: list[int]) -> None:
        if self._plan.namespaces:
            set_namespace(self._own_pids, CLONE_NEWPID)  # else the next line would be refused after the first call
            unshare(CLONE_NEWPID)  # for the next child
        pid = os.fork()
        if pid == 0:
            run(self._plan, call, fds)
            os._exit(0)
        pidfd = os.pidfd_open(pid)
        self._calls[pidfd] = _Call(call["call"], pid)
        self._poll.register(pidfd, select.POLLIN)

    def _reap(self, pidfd: int) -> None:
        call = self._calls.pop(pidfd)
        self._poll.unregister(pidfd)
        os.close(pidfd)
        _, status, used = os.wait4(call.pid, 0)
        seconds = used.ru_utime + used.ru_stime
        code = os.waitstatus_to_exitcode(status)
        _tell(self._control, {"ended": call.number, "exit": code, "cpu_s": seconds, "heavy": call.heavy})


def _tell(control: socket.socket, message: Mapping[str, Any]) -> None:
    try:
        control.send(json.dumps(message).encode())
    except (BrokenPipeError, ConnectionResetError):  # the server is gone
        os._exit(0)
