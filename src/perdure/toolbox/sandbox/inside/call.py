"""One call, from the fork on: its pipes, its cage, the job, the answer, the end."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import resource
import signal
import socket
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from . import frames
from .cage import PROXY_VARIABLES, CagePlan, enter, lower_limits
from .execution import execute, open_capped
from .root_folder import PACKAGES, WORK

JOB_FD, ANSWER_FD, PROC_FD, CHANNEL_FD = 3, 4, 5, 7
"""File descriptors of a call beside 0, 1 and 2: where the job is read, where the answer goes, an open /proc, and where
the listening socket of a proxy goes."""

_FIRST_FREE_FD = 16
_BYTES_PER_CHARACTER = 4
_NOTICE_BYTES = 256


def run(plan: CagePlan, request: Mapping[str, Any], pipes: Sequence[int]) -> None:
    """Enter the cage, read the job, run it and answer, in the process that was forked for it. Never returns. `pipes`:
    job, answer, stdout, stderr; and for a call with a network where its proxy's socket goes."""
    try:
        channel = _place_pipes(pipes, keep_proc=plan.proc >= 0)
        try:
            enter(plan, request, channel)
        except OSError as error:
            frames.write_all(ANSWER_FD, frames.pack({"status": "unavailable", "error": str(error)}))
            return
        frames.write_all(ANSWER_FD, frames.pack({"status": "ready"}))  # no foreign code has run yet, so this is ours
        job = frames.read_frame(JOB_FD)
        if job.get("input"):
            os.dup2(JOB_FD, 0)  # what follows the job is the file that it is about
        os.close(JOB_FD)
        _prepare_python(job, plan, request)
        answer = check(job) if request.get("check") else execute(job)
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(Exception):  # the code has closed or replaced it
                stream.flush()
        frames.write_all(ANSWER_FD, frames.pack(answer))
    except EOFError:  # the server gave the call up
        return
    except BaseException as error:  # nothing may come back into the fork server's loop
        os.write(2, f"{type(error).__name__}: {error}\n".encode(errors="replace"))
    finally:
        os._exit(0)


def _place_pipes(pipes: Sequence[int], *, keep_proc: bool) -> int:
    """Move the pipes to their descriptors and close every other descriptor, but with `keep_proc` that of /proc. Returns
    the descriptor for the proxy's socket; -1: only four pipes are given."""
    null = os.open("/dev/null", os.O_RDONLY)
    stdin, job, answer, stdout, stderr, *channel = (
        fcntl.fcntl(fd, fcntl.F_DUPFD, _FIRST_FREE_FD) for fd in (null, *pipes)
    )
    for source, target in ((stdin, 0), (stdout, 1), (stderr, 2), (job, JOB_FD), (answer, ANSWER_FD)):
        os.dup2(source, target, inheritable=target <= 2)
    for source in channel:
        os.dup2(source, CHANNEL_FD)
    os.closerange(PROC_FD + keep_proc, CHANNEL_FD)
    os.closerange(CHANNEL_FD + len(channel), os.sysconf("SC_OPEN_MAX"))
    return CHANNEL_FD if channel else -1


def _prepare_python(job: Mapping[str, Any], plan: CagePlan, request: Mapping[str, Any]) -> None:
    """Set environment, import path, signals, limits and output of this process for the code of its job."""
    packages = request["packages"]
    home = WORK if plan.namespaces else "/"
    os.environ.clear()
    os.environ.update({"HOME": home, "TMPDIR": home, "PATH": sys.executable.rpartition("/")[0], "LANG": "C.UTF-8"})
    os.environ.update(PROXY_VARIABLES if request["network"] else {})
    os.environ.update({"TZ": "UTC", "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", **job["environment"]})
    own = [PACKAGES] if plan.namespaces else [f"{plan.store}/{packages}"] if packages else []
    sys.path[:] = [*own, *sys.path[1:], *plan.site]
    sys.argv = ["tool"]
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGPIPE):
        signal.signal(number, signal.SIG_DFL if number == signal.SIGTERM else signal.SIG_IGN)
    lower_limits(job["limits"], count_processes=plan.counts_processes)
    bytes_max = job["output_chars"] * _BYTES_PER_CHARACTER + _NOTICE_BYTES
    sys.stdout, sys.stderr = open_capped(1, bytes_max), open_capped(2, bytes_max)


def check(job: Mapping[str, Any]) -> dict[str, Any]:
    """The answer to a check of the sandbox: `held`, whether each measure works; `error`, what prevented the test.

    Args:
        job: `marker`, a file outside that the server can read and code must not; `processes`, whether it may start any.
    """
    attempts: dict[str, Callable[[], bool]] = {
        "files": lambda: _is_refused(lambda: Path(job["marker"]).read_bytes()),
        "writing": lambda: _is_refused(lambda: Path(json.__file__).open("r+b").close()),
        "network": lambda: _is_refused(lambda: socket.socket(socket.AF_INET, socket.SOCK_STREAM).close()),
        "identity": lambda: os.geteuid() != 0 and _is_refused(lambda: os.setuid(0)),
        "system calls": _namespace_is_refused,
        "memory": lambda: (
            resource.RLIM_INFINITY not in resource.getrlimit(resource.RLIMIT_AS) and _is_refused(_enlarge_buffer)
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


def _is_refused(attempt: Callable[[], object]) -> bool:
    """Whether the attempt fails with an OSError."""
    try:
        attempt()
    except OSError:
        return True
    return False


def _enlarge_buffer() -> None:
    """Ask for a large socket buffer, which no limit of memory counts. Raises: OSError."""
    a, b = socket.socketpair()
    with a, b:
        a.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)


def _can_start_process() -> bool:
    """Whether this process can fork another one."""
    try:
        pid = os.fork()
    except PermissionError:
        return False
    if pid == 0:
        os._exit(0)
    return os.waitpid(pid, 0)[1] == 0


def _namespace_is_refused() -> bool:
    """Whether the filter of system calls keeps this process from making a user namespace."""
    from .kernel import CLONE_NEWUSER, unshare

    try:
        unshare(CLONE_NEWUSER)
    except OSError as error:
        return error.errno == errno.EPERM
    return False
