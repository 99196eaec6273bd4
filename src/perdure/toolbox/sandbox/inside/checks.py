"""Try before the first call whether the cage holds, and whether code runs in it."""

from __future__ import annotations

import errno
import json
import os
import resource
import socket
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any


def check(job: Mapping[str, Any]) -> dict[str, Any]:
    """The answer to a check: in `held` whether each measure holds, in `error` what kept one from being tried.

    Args:
        job: `marker`, a file outside that the server can read and code must not; `processes`, whether it may start any.
    """
    attempts: dict[str, Callable[[], bool]] = {
        "files": lambda: _refused(lambda: Path(job["marker"]).read_bytes()),
        "writing": lambda: _refused(lambda: Path(json.__file__).open("r+b").close()),
        "network": lambda: _refused(lambda: socket.socket(socket.AF_INET, socket.SOCK_STREAM).close()),
        "identity": lambda: os.geteuid() != 0 and _refused(lambda: os.setuid(0)),
        "system calls": _namespace_is_refused,
        "memory": lambda: (
            resource.RLIM_INFINITY not in resource.getrlimit(resource.RLIMIT_AS) and _refused(_enlarge_buffer)
        ),
        "processes": lambda: _can_start_process() == job["processes"],
    }
    held: dict[str, bool] = {}
    for name, attempt in attempts.items():
        try:
            held[name] = attempt()
        except Exception as error:
            return {"status": "success", "held": held, "error": f"{name}: {type(error).__name__}: {error}"}
    return {"status": "success", "held": held, "error": ""}


def _refused(attempt: Callable[[], object]) -> bool:
    """Whether the attempt fails with an OSError."""
    try:
        attempt()
    except OSError:
        return True
    return False


def _enlarge_buffer() -> None:
    a, b = socket.socketpair()
    with a, b:
        a.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)


def _can_start_process() -> bool:
    try:
        pid = os.fork()
    except PermissionError:
        return False
    if pid == 0:
        os._exit(0)
    return os.waitpid(pid, 0)[1] == 0


def _namespace_is_refused() -> bool:
    from .kernel import unshare

    try:
        unshare(0x10000000)
    except OSError as error:
        return error.errno == errno.EPERM
    return False
