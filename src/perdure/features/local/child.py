"""The process that runs llama.cpp: one line of JSON on stdin says what, one on stdout where it answers.

It is started as a file of its own, and imports nothing of Perdure. When stdin ends, its parent is gone, and so is it.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

PR_SET_PDEATHSIG = 1
"""The option of prctl(2) that has a process killed when its parent ends."""


def main() -> None:
    """Load the model that a line on stdin names, print where it answers, and wait for the end of stdin."""
    task: dict[str, Any] = json.loads(sys.stdin.buffer.readline())
    # Whatever the library prints goes to stderr; stdout is for the one line.
    answer = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    if sys.platform == "linux":
        _limit_by_kernel(task["parent"], task["memory_bytes"])
    server = _start(task)
    print(server.listening_address, file=answer, flush=True)
    sys.stdin.buffer.read()
    os._exit(0)  # the threads of the library have nothing to put in order


def _start(task: dict[str, Any]) -> Any:
    """Start the server of a task, see `process.start`; return it when it answers."""
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path = task["path"]
    params.model_alias = {task["name"]}
    params.hostnames, params.port, params.api_keys = ["127.0.0.1"], 0, [task["key"]]
    params.n_ctx, params.n_parallel, params.use_jinja = task["window_tokens"], 1, True
    params.cache_ram_mib = task["cache_bytes"] >> 20
    params.ui, params.endpoint_slots, params.offline = False, False, True
    params.verbosity = 1  # errors
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = physical_cores()
    return xllamacpp.Server(params)


def physical_cores() -> int:
    """Return how many cores this process may use; the two threads of a core count as one."""
    try:
        places = (f"/sys/devices/system/cpu/cpu{number}/topology" for number in os.sched_getaffinity(0))
        return len({Path(place, "thread_siblings_list").read_text("ascii") for place in places})
    except (AttributeError, OSError):  # not on Linux; half of Apple's cores are slow
        return max(1, (os.cpu_count() or 2) // 2)


def _limit_by_kernel(parent: int, memory_bytes: int) -> None:
    """Have the kernel end this process with its parent, and at `memory_bytes`, for which mapped files don't count."""
    import resource

    # While the library holds the interpreter, the end of stdin is not noticed: the kernel does it then.
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)
    resource.setrlimit(resource.RLIMIT_DATA, (memory_bytes, memory_bytes))
    with contextlib.suppress(OSError):  # where memory runs out all the same, this process ends before the others
        Path("/proc/self/oom_score_adj").write_text("500", "ascii")


if __name__ == "__main__":
    main()
