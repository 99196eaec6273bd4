"""One call, from the fork on: its pipes, its cage, the job, the answer, the end."""

from __future__ import annotations

import fcntl
import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from . import frames
from .cage import Plan, enter
from .checks import check
from .execution import execute, printing_to
from .limits import lower_limits
from .network import PROXY_VARIABLES
from .root_folder import PACKAGES, WORK

JOB, RESULT, PROC, CHANNEL = 3, 4, 5, 7
"""File descriptors of a call: 0, 1 and 2 as usual, where the job is read, where the answer goes, an open /proc, and
where the listening socket of a proxy goes."""

_ABOVE = 16
_BYTES_OF_A_CHARACTER = 4
_NOTICE = 256


def run(plan: Plan, call: Mapping[str, Any], pipes: Sequence[int]) -> None:
    """In the process that was forked for it. It ends here; nobody returns.

    Args:
        pipes: job, result, stdout, stderr; and for a call with a network where its proxy's socket goes.
    """
    try:
        channel = _take(pipes, keep_proc=plan.proc >= 0)
        try:
            enter(plan, call, channel)
        except OSError as error:
            frames.write_all(RESULT, frames.pack({"status": "unavailable", "error": str(error)}))
            return
        frames.write_all(RESULT, frames.pack({"status": "ready"}))  # no foreign code has run yet, so this is ours
        job = frames.read_frame(JOB)
        if job.get("input"):
            os.dup2(JOB, 0)  # what follows the job is the file that it is about
        os.close(JOB)
        _set_up(job, plan, call)
        work: Callable[[Mapping[str, Any]], dict[str, Any]] = check if call.get("check") else execute
        answer = work(job)
        _flush()
        frames.write_all(RESULT, frames.pack(answer))
    except EOFError:  # it was made ahead, and is not needed
        return
    except BaseException as error:  # nothing may come back into the fork server's loop
        os.write(2, f"{type(error).__name__}: {error}\n".encode(errors="replace"))
    finally:
        os._exit(0)


def _take(pipes: Sequence[int], *, keep_proc: bool) -> int:
    """Put the pipes where they belong and close everything else. Returns the fifth of them; -1: there are four."""
    null = os.open("/dev/null", os.O_RDONLY)
    high = [fcntl.fcntl(fd, fcntl.F_DUPFD, _ABOVE) for fd in (null, *pipes)]
    stdin, job, result, stdout, stderr, *more = high
    for fd, place in ((stdin, 0), (stdout, 1), (stderr, 2), (job, JOB), (result, RESULT)):
        os.dup2(fd, place, inheritable=place <= 2)
    for fd in more:
        os.dup2(fd, CHANNEL)
    os.closerange(PROC + keep_proc, CHANNEL)
    os.closerange(CHANNEL + len(more), os.sysconf("SC_OPEN_MAX"))
    return CHANNEL if more else -1


def _set_up(job: Mapping[str, Any], plan: Plan, call: Mapping[str, Any]) -> None:
    packages = call["packages"]
    home = WORK if plan.namespaces else "/"
    os.environ.clear()
    os.environ.update({"HOME": home, "TMPDIR": home, "PATH": sys.executable.rpartition("/")[0], "LANG": "C.UTF-8"})
    os.environ.update(PROXY_VARIABLES if call["network"] else {})
    os.environ.update({"TZ": "UTC", "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", **job["environment"]})
    own = [PACKAGES] if plan.namespaces else [f"{plan.store}/{packages}"] if packages else []
    sys.path[:] = [*own, *sys.path[1:], *plan.site]
    sys.argv = ["tool"]
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGPIPE):
        signal.signal(number, signal.SIG_DFL if number == signal.SIGTERM else signal.SIG_IGN)
    lower_limits(job["limits"], count_processes=plan.counts_processes)
    bytes_max = job["output_chars"] * _BYTES_OF_A_CHARACTER + _NOTICE
    sys.stdout, sys.stderr = printing_to(1, bytes_max), printing_to(2, bytes_max)


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except Exception:  # the code has closed or replaced it
            continue
