"""`python -m benchmarks.sandbox_cost`: what a call in the sandbox costs, alone and among a hundred, and what it holds.

Beside it what this machine does with three million additions in a loop, to compare machines by.
"""

from __future__ import annotations

import asyncio
import re
import sys
import time
from pathlib import Path

from perdure.core.sandbox import SandboxJob
from perdure.toolbox.sandbox.linux import LinuxSandbox

CALLS = 200
PAUSE_S = 0.01  # between calls, as between the messages of a model
TOGETHER = 100
ADDITIONS = 3_000_000
CALL_BAR_MS, TOGETHER_BAR_S, MEMORY_BAR_MB = 15.0, 1.0, 25.0

JOB = SandboxJob(source="def add(a: int, b: int) -> int:\n    return a + b", function="add", arguments={"a": 1, "b": 2})


async def main() -> int:
    """Print the figures; 1 if one is past its bar."""
    sandbox = LinuxSandbox()
    began = time.perf_counter()
    isolation = await sandbox.isolation()
    print(f"{isolation.summary}\n")
    print(f"{'start, with the check of what holds':<44}{(time.perf_counter() - began) * 1000:>9.1f} ms")
    await sandbox.run(JOB)
    times = []
    for _ in range(CALLS):
        began = time.perf_counter()
        result = await sandbox.run(JOB)
        times.append((time.perf_counter() - began) * 1000)
        assert result.value == 3, result
        await asyncio.sleep(PAUSE_S)
    times.sort()
    half, most = times[CALLS // 2], times[CALLS * 95 // 100]
    began = time.perf_counter()
    results = await asyncio.gather(*(sandbox.run(JOB) for _ in range(TOGETHER)))
    together = time.perf_counter() - began
    assert all(result.value == 3 for result in results)
    await asyncio.sleep(1)  # until spare processes are there again
    assert sandbox.pid is not None
    weights = memory_mb(sandbox.pid)
    await sandbox.close()
    print(f"{f'a call, p50 of {CALLS}':<44}{half:>9.1f} ms   {_verdict(half, CALL_BAR_MS)}")
    print(f"{'a call, p95':<44}{most:>9.1f} ms")
    print(f"{f'{TOGETHER} calls at a time':<44}{together * 1000:>9.1f} ms   {_verdict(together, TOGETHER_BAR_S)}")
    idle = sum(weights)
    parts = " + ".join(f"{weight:.1f}" for weight in weights)
    print(f"{'held while idle (PSS)':<44}{idle:>9.1f} MB   {_verdict(idle, MEMORY_BAR_MB)}  ({parts})")
    print(f"{f'{ADDITIONS:,} additions in a loop':<44}{additions_ms():>9.1f} ms")
    return int(half > CALL_BAR_MS or together > TOGETHER_BAR_S or idle > MEMORY_BAR_MB)


def memory_mb(pid: int) -> list[float]:
    """What a process and all below it hold, each with its share of what they hold in common."""
    text = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii")
    (size,) = re.findall(r"^Pss:\s+(\d+) kB", text, re.MULTILINE)
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split()
    return [int(size) / 1024, *(weight for child in children for weight in memory_mb(int(child)))]


def additions_ms() -> float:
    began = time.perf_counter()
    total = 0
    for number in range(ADDITIONS):
        total += number
    return (time.perf_counter() - began) * 1000


def _verdict(measured: float, bar: float) -> str:
    return "ok" if measured <= bar else "MISSED"


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
