"""`python -m benchmarks.hook_cost`: how long a person waits for each hook of a coding agent; exit code 1 above the bar.

Each hook runs 20 times in a fresh interpreter, as the agent starts it; its time ends with its own process, not with the
one that it leaves work to. The time of processors, beside it, does not depend on what else the machine does.
"""

from __future__ import annotations

import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

SRC = Path(__file__).resolve().parents[1] / "src"
BAR_MS, TIMES = 300.0, 20
HOOKS: Mapping[str, Mapping[str, object]] = {
    "session-start": {"source": "startup"},
    "post-tool-use": {"tool_name": "Edit", "tool_input": {"file_path": "/a.py", "old_string": "x" * 5_000}},
    "pre-compact": {"trigger": "auto"},
    "stop": {"stop_hook_active": False},
    "session-end": {"reason": "other"},
}
"""Argument of `perdure hook` -> what is on its stdin beside what all hooks get."""


def hook_times(folder: Path, words: Sequence[str], stdin: str) -> tuple[float, float]:
    """The median wall time and the mean time of processors of some runs, in seconds, after one that compiles.

    Raises: CalledProcessError: the program failed.
    """
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PERDURE", "PYTHONDONT"))}
    environment = kept | {
        "PYTHONPATH": str(SRC),
        "PYTHONPYCACHEPREFIX": str(folder / "pycache"),
        "PERDURE_HOME": str(folder / "data"),
        "HOME": str(folder),
    }
    walls: list[float] = []
    cpu = 0.0
    for number in range(TIMES + 1):
        before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
        subprocess.run(
            [sys.executable, *words], input=stdin.encode(), env=environment, cwd=folder, check=True, capture_output=True
        )
        ended, after = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
        _wait_for_work(folder)
        if number:
            walls.append(ended - began)
            cpu += after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return statistics.median(walls), cpu / TIMES


def _wait_for_work(folder: Path) -> None:
    """Wait until the processes have ended that a hook has left work to, or the next run would wait for processors."""
    while any(_is_work(one, str(folder).encode()) for one in Path("/proc").glob("[0-9]*/cmdline")):
        time.sleep(0.05)


def _is_work(command: Path, folder: bytes) -> bool:
    try:
        words = command.read_bytes()
    except OSError:  # it has ended
        return False
    return b"\0hook\0work\0" in words and folder in words


def main() -> int:
    """Print the table; 1 if a hook takes longer than the bar."""
    print(f"{'':<24}{'median ms':>10}{'CPU ms':>10}{'bar':>8}")
    missed = False
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / ".git").mkdir()
        wall, cpu = hook_times(folder, ["-c", "pass"], "")
        print(f"{'python -c pass':<24}{wall * 1000:>10.0f}{cpu * 1000:>10.0f}")
        common = {"session_id": "s1", "transcript_path": str(folder / "none.jsonl"), "cwd": str(folder)}
        for hook, more in HOOKS.items():
            wall, cpu = hook_times(folder, ["-m", "perdure", "hook", hook], json.dumps({**common, **more}))
            missed |= wall * 1000 > BAR_MS
            row = f"{hook:<24}{wall * 1000:>10.0f}{cpu * 1000:>10.0f}{BAR_MS:>8.0f}"
            print(f"{row}  {'MISSED' if wall * 1000 > BAR_MS else 'ok'}", flush=True)
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
