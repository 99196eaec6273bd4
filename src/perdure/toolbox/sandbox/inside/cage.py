"""Put a call's own process into its cage: the steps, in order, before any foreign code runs in it."""

from __future__ import annotations

import array
import contextlib
import fcntl
import math
import os
import resource
import signal
import socket
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from . import landlock, seccomp
from .identity import map_self
from .kernel import (
    CLONE_NEWIPC,
    CLONE_NEWNET,
    CLONE_NEWNS,
    CLONE_NEWUSER,
    PR_SET_DUMPABLE,
    PR_SET_PDEATHSIG,
    drop_capabilities,
    no_new_privileges,
    prctl,
    unshare,
    write_file,
)
from .root_folder import WORK, mount_packages, mount_work

USER = 1_000
"""The user id of the code inside its own user namespace."""


@dataclass(frozen=True, slots=True)
class CagePlan:
    """The measures that the fork server found at its start. Each call takes all of them or is not run.

    Args:
        tolerant: a measure that is refused is left out, because somebody has asked for that.
        namespaces: whether calls have namespaces of their own. If not, Landlock and the filter of system calls do.
        first_uid: the first id that calls may have, one for each place; None: calls have the server's own user.
        landlock: the version of Landlock; 0: there is none.
        site: folders of packages that calls may import from.
        readable: what else a call may read where there are no namespaces.
        store: where the sets of requirements are, if they are not mounted.
        proc: an open /proc, where there are namespaces; else -1.
        filters: the programs for system calls, without and with a network, where there are namespaces.
    """

    tolerant: bool
    namespaces: bool
    first_uid: int | None
    landlock: int
    site: tuple[str, ...]
    readable: tuple[str, ...] = ()
    store: str = ""
    proc: int = -1
    filters: Mapping[bool, bytes] = field(default_factory=dict)

    @property
    def counts_processes(self) -> bool:
        """Whether the kernel's limit of processes per user applies to one call alone: each call has its own user id."""
        return self.namespaces or self.first_uid is not None


def enter(plan: CagePlan, request: Mapping[str, Any], channel: int) -> None:
    """Put this process into its cage. Nothing undoes it.

    Args:
        request: `slot`, `limits`, `network`, `packages` of the call.
        channel: where the proxy's listening socket goes, for a call with a network; -1: there is none.

    Raises: OSError: a measure that the plan holds was refused; the call must not run.
    """
    uid = None if plan.first_uid is None else plan.first_uid + int(request["slot"])
    limits, network, packages = request["limits"], bool(request["network"]), request["packages"]
    os.setsid()
    if plan.namespaces:
        unshare(CLONE_NEWNS | CLONE_NEWIPC | CLONE_NEWNET)
        mount_work(disk_mb=limits["disk_mb"], files=limits["files"], uid=uid or 0)
        mount_packages(packages)
        if network:
            limit_buffers(plan.proc)
            send_listener(channel)
    if uid is not None:
        os.setgroups([])
        os.setresgid(uid, uid, uid)
        os.setresuid(uid, uid, uid)
    if plan.namespaces:
        prctl(PR_SET_DUMPABLE, 1)  # else /proc/self would be root's
        unshare(CLONE_NEWUSER)  # last, so that it has no power over the namespaces above
        map_self(inside=USER, outside=uid or 0, proc=plan.proc)
        os.close(plan.proc)
        os.chdir(WORK)
    last_steps: list[Callable[[], None]] = [
        lambda: set_limits(limits, count_processes=plan.counts_processes),
        drop_capabilities,
        _bind_to_parent,
        no_new_privileges,
        lambda: _restrict_files(plan, network=network, packages=packages),
        lambda: _filter_system_calls(plan, network=network),
    ]
    for step in last_steps:
        try:
            step()
        except OSError:
            if not plan.tolerant:
                raise


def _bind_to_parent() -> None:
    """Keep other processes of the user from reading this one, and have the kernel kill it when the fork server ends."""
    prctl(PR_SET_DUMPABLE, 0)
    prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def _filter_system_calls(plan: CagePlan, *, network: bool) -> None:
    """Allow this process only the system calls of its filter."""
    if plan.namespaces:
        seccomp.install(plan.filters[network])
    else:
        seccomp.install(seccomp.program(network=network, namespaces=False, pid=os.getpid()))


def _restrict_files(plan: CagePlan, *, network: bool, packages: str | None) -> None:
    """Let this process read and write only the files of its plan, by Landlock, if the kernel has that."""
    if not plan.landlock:
        return
    if plan.namespaces:
        landlock.restrict(plan.landlock, read=["/"], write=[WORK], network=network)
    else:
        read = [*plan.readable, *plan.site, *([f"{plan.store}/{packages}"] if packages else [])]
        landlock.restrict(plan.landlock, read=read, write=[], network=network)


_HOST, _PORT = "127.0.0.1", 3_128
_BACKLOG = 16
_BUFFER_LIMITS = {  # bytes: least, at first, at most; and how many connections wait for a listener
    "ipv4/tcp_rmem": "4096 65536 131072",
    "ipv4/tcp_wmem": "4096 16384 131072",
    "core/somaxconn": str(_BACKLOG),
}
_GET_FLAGS, _SET_FLAGS, _UP = 0x8913, 0x8914, 1
_INTERFACE = struct.Struct("16sh14x")

_PROXY, _DIRECT = f"http://{_HOST}:{_PORT}", "localhost,127.0.0.1,::1"
PROXY_VARIABLES = {
    **dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"), _PROXY),
    **dict.fromkeys(("NO_PROXY", "no_proxy"), _DIRECT),
}
"""The environment variables by which programs find the proxy."""


def send_listener(channel_fd: int) -> None:
    """Make a listening socket in this process's network namespace, and give it to the server, which serves it.

    A socket stays in the namespace that it was made in, whoever holds it. Nothing of it is left here.
    """
    with socket.socket(fileno=channel_fd) as channel:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as handle:
            name, flags = _INTERFACE.unpack(fcntl.ioctl(handle, _GET_FLAGS, _INTERFACE.pack(b"lo", 0)))
            fcntl.ioctl(handle, _SET_FLAGS, _INTERFACE.pack(name, flags | _UP))
        with socket.create_server((_HOST, _PORT), backlog=_BACKLOG) as listener:
            descriptors = array.array("i", [listener.fileno()])
            channel.sendmsg([b"."], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, descriptors)])


def limit_buffers(proc: int) -> None:
    """Limit the TCP buffers of this network namespace (kernel's default: 32 MiB each). `proc`: an open /proc.

    Where /proc/sys can't be written, as in some containers, only the fork server's measuring of sockets limits them.
    """
    for name, value in _BUFFER_LIMITS.items():
        with contextlib.suppress(OSError):
            write_file(f"sys/net/{name}", value, proc)


MEBIBYTE = 1 << 20
_OPEN_FILES = 64  # each may be a socket with a full buffer, which no other limit counts
_PENDING_SIGNALS = 1_024
_UNUSED = (
    *(resource.RLIMIT_CORE, resource.RLIMIT_MEMLOCK, resource.RLIMIT_MSGQUEUE),
    *(resource.RLIMIT_RTPRIO, resource.RLIMIT_NICE),
)
"""The limits that are 0 for every call."""


def set_limits(limits: Mapping[str, Any], *, count_processes: bool) -> None:
    """Set the limits of a call on this process and all its children. They can't be raised again.

    Args:
        limits: `memory_mb`, `disk_mb`, `processes`.
        count_processes: whether the call has its own user id, by which the kernel counts its processes.
    """
    set_hard(
        {
            **dict.fromkeys(_UNUSED, 0),
            resource.RLIMIT_NOFILE: _OPEN_FILES,
            resource.RLIMIT_SIGPENDING: _PENDING_SIGNALS,
            resource.RLIMIT_FSIZE: limits["disk_mb"] * MEBIBYTE,
            resource.RLIMIT_AS: limits["memory_mb"] * MEBIBYTE,
        }
    )
    if count_processes:
        set_hard({resource.RLIMIT_NPROC: limits["processes"]})


def lower_limits(limits: Mapping[str, Any], *, count_processes: bool) -> None:
    """Lower the limits of this process to those of its job: `memory_mb`, `cpu_s`, `processes`."""
    cpu_s = max(1, math.ceil(limits["cpu_s"]))
    set_hard({resource.RLIMIT_AS: limits["memory_mb"] * MEBIBYTE, resource.RLIMIT_CPU: cpu_s})
    if count_processes:
        set_hard({resource.RLIMIT_NPROC: limits["processes"]})


def set_hard(values: Mapping[int, int]) -> None:
    """Set soft and hard limits of this process, by kind (`resource.RLIMIT_*`): they can't be raised again."""
    for kind, value in values.items():
        _, hard = resource.getrlimit(kind)
        value = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(kind, (value, value))
