"""Put a call's own process into its cage: the steps, in order, before any foreign code runs in it."""

from __future__ import annotations

import os
import signal
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
)
from .limits import set_limits
from .network import limit_buffers, send_listener
from .root_folder import DEVICES, WORK, mount_packages, mount_work

USER = 1_000
"""The user id of the code inside its own user namespace."""


@dataclass(frozen=True, slots=True)
class Plan:
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


def enter(plan: Plan, request: Mapping[str, Any], channel: int) -> None:
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


def _filter_system_calls(plan: Plan, *, network: bool) -> None:
    """Install the filter of system calls in this process."""
    if plan.namespaces:
        seccomp.install(plan.filters[network])
    else:
        seccomp.install(seccomp.program(network=network, namespaces=False, pid=os.getpid()))


def _restrict_files(plan: Plan, *, network: bool, packages: str | None) -> None:
    """Apply Landlock's rules to this process, if the kernel has Landlock."""
    if not plan.landlock:
        return
    if plan.namespaces:
        landlock.restrict(plan.landlock, read=["/"], write=[WORK], devices=DEVICES, network=network)
    else:
        read = [*plan.readable, *plan.site, *([f"{plan.store}/{packages}"] if packages else [])]
        landlock.restrict(plan.landlock, read=read, write=[], devices=DEVICES, network=network)
