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


def main() -> None:
    """Load the model, say where it answers, and wait for the end of stdin."""
    task: dict[str, Any] = json.loads(sys.stdin.buffer.readline())
    # Whatever the library prints goes to stderr; stdout is for the one line.
    answer = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    _die_with_parent(task["parent"])
    _limit(task["memory_bytes"])
    try:
        server = _start(task)
    except BaseException as error:
        print(json.dumps({"error": str(error) or type(error).__name__}), file=answer, flush=True)
        raise SystemExit(1) from error
    print(json.dumps({"address": server.listening_address}), file=answer, flush=True)
    sys.stdin.buffer.read()
    os._exit(0)  # the threads of the library have nothing to put in order


def _start(task: dict[str, Any]) -> Any:
    """The server, which answers when this returns."""
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
    """How many cores this process may use, counted without the second thread of each."""
    try:
        usable = os.sched_getaffinity(0)
        cores = set()
        for number in usable:
            cores.add(Path(f"/sys/devices/system/cpu/cpu{number}/topology/thread_siblings_list").read_text("ascii"))
        return len(cores)
    except (AttributeError, OSError):  # not on Linux
        return max(1, (os.cpu_count() or 2) // (1 if sys.platform == "darwin" else 2))


def _die_with_parent(parent: int) -> None:
    """Be ended by the kernel with the parent, also while the library does not let go of the interpreter."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)


def _limit(memory_bytes: int) -> None:
    """Limit the memory of its own; the file of the model is mapped, and not counted."""
    if sys.platform == "linux":
        import resource

        resource.setrlimit(resource.RLIMIT_DATA, (memory_bytes, memory_bytes))
        with contextlib.suppress(OSError):  # where memory runs out all the same, this process ends before the others
            Path("/proc/self/oom_score_adj").write_text("500", "ascii")


if __name__ == "__main__":
    main()
