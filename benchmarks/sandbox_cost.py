"""`python -m benchmarks.sandbox_cost`: what a call in the sandbox costs, alone and among a hundred, and what it holds.

Beside it what the same call costs in a fork of a running Python without any sandbox, one and the other in turn, and
what this machine does with three million additions in a loop, to compare machines by.
"""

from __future__ import annotations

import asyncio
import dataclasses
import json
import re
import statistics
import struct
import subprocess
import sys
import tempfile
import time
import uuid
from datetime import UTC, datetime
from pathlib import Path

from perdure import AsyncPerdure
from perdure.core.ids import ToolId
from perdure.core.tools.sandbox import SandboxJob
from perdure.domain.tools.units import NewTool, create_tool
from perdure.testing import ScriptedModel, calls, says
from perdure.toolbox.sandbox.linux import LinuxSandbox

CALLS = 200
PAUSE_S = 0.05  # between calls, as between the messages of a model
TOGETHER = 100
ADDITIONS = 3_000_000
CALL_BAR_MS, TOGETHER_BAR_S, MEMORY_BAR_MB, FORKS_BAR = 15.0, 1.0, 25.0, 3.0

SOURCE = '''def {name}(a: int, b: int) -> int:
    """Add two numbers.

    Args:
        a: one of them.
        b: the other.
    """
    return a + b
'''
JOB = SandboxJob(source=SOURCE.format(name="add"), function="add", arguments={"a": 1, "b": 2})
MESSAGES = 100

WARM_FORK = """
import json, os, struct
while header := os.read(0, 4):
    job = json.loads(os.read(0, *struct.unpack("=I", header)))
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        names = {}
        exec(compile(job["source"], "tool.py", "exec"), names)
        os.write(write, json.dumps(names[job["function"]](**job["arguments"])).encode())
        os._exit(0)
    os.close(write)
    answer = os.read(read, 65536)
    os.close(read)
    os.waitpid(pid, 0)
    os.write(1, answer)
"""
"""A running Python that forks for each call, and does nothing to hold it back."""


class WarmFork:
    """Calls in forks of a small Python that has its modules loaded, as the sandbox's fork server has."""

    def __init__(self) -> None:
        command = [sys.executable, "-I", "-S", "-B", "-c", f"import asyncio, datetime, random{WARM_FORK}"]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0)

    def run(self, job: SandboxJob) -> object:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        data = json.dumps({"source": job.source, "function": job.function, "arguments": dict(job.arguments)}).encode()
        self._process.stdin.write(struct.pack("=I", len(data)) + data)
        return json.loads(self._process.stdout.read(65_536))

    def close(self) -> None:
        self._process.communicate()


async def main() -> int:
    """Print the figures; 1 if one is past its bar."""
    sandbox = LinuxSandbox()
    began = time.perf_counter()
    isolation = await sandbox.isolation()
    print(f"{isolation.summary}\n")
    print(f"{'start, with the check of what holds':<44}{(time.perf_counter() - began) * 1000:>9.1f} ms")
    await sandbox.run(JOB)
    times, forks = [], []
    warm_fork = WarmFork()
    warm_fork.run(JOB)
    for _ in range(CALLS):
        began = time.perf_counter()
        result = await sandbox.run(JOB)
        times.append((time.perf_counter() - began) * 1000)
        assert result.value == 3, result
        await asyncio.sleep(PAUSE_S)
        began = time.perf_counter()
        assert warm_fork.run(JOB) == 3
        forks.append((time.perf_counter() - began) * 1000)
        await asyncio.sleep(PAUSE_S)
    warm_fork.close()
    times.sort()
    fork_ms = statistics.median(forks)
    half, most = times[CALLS // 2], times[CALLS * 95 // 100]
    began = time.perf_counter()
    jobs = [dataclasses.replace(JOB, owner=f"agent-{number % 10}") for number in range(TOGETHER)]
    results = await asyncio.gather(*map(sandbox.run, jobs))
    together = time.perf_counter() - began
    assert all(result.value == 3 for result in results)
    await asyncio.sleep(1)  # until the processes of all calls have ended
    assert sandbox.pid is not None
    weights = memory_mb(sandbox.pid)
    await sandbox.close()
    inside, without = await messages_ms()
    named = "a call within a message, p50"
    print(f"{named:<44}{inside - without:>9.1f} ms   {_verdict(inside - without, CALL_BAR_MS)}", end="")
    print(f"  (a message with it {inside:.1f}, with a function of the program {without:.1f})")
    print(f"{f'a call, p50 of {CALLS}':<44}{half:>9.1f} ms   {_verdict(half, CALL_BAR_MS)}")
    print(f"{'a call in a warm fork without a sandbox, p50':<44}{fork_ms:>9.1f} ms")
    print(f"{'a call, in warm forks':<44}{half / fork_ms:>9.1f} x    {_verdict(half / fork_ms, FORKS_BAR)}")
    print(f"{'a call, p95':<44}{most:>9.1f} ms")
    print(f"{f'{TOGETHER} calls at a time':<44}{together * 1000:>9.1f} ms   {_verdict(together, TOGETHER_BAR_S)}")
    idle = sum(weights)
    parts = " + ".join(f"{weight:.1f}" for weight in weights)
    print(f"{'held while idle (PSS)':<44}{idle:>9.1f} MB   {_verdict(idle, MEMORY_BAR_MB)}  ({parts})")
    print(f"{f'{ADDITIONS:,} additions in a loop':<44}{additions_ms():>9.1f} ms")
    missed = half > CALL_BAR_MS or together > TOGETHER_BAR_S or idle > MEMORY_BAR_MB or half / fork_ms > FORKS_BAR
    return int(missed)


def add_here(a: int, b: int) -> int:
    """Add two numbers.

    Args:
        a: one of them.
        b: the other.
    """
    return a + b


async def messages_ms() -> tuple[float, float]:
    """The medians of messages that are answered with a call and a text: of a custom tool, of a function of the program.

    One and the other in turn, so that both meet the same machine.
    """
    names = ("add_in_sandbox", add_here.__name__)
    replies = [reply for _ in range(MESSAGES) for name in names for reply in (calls(name, a=1, b=2), says("3"))]
    times: dict[str, list[float]] = {name: [] for name in names}
    with tempfile.TemporaryDirectory() as folder:
        models = {"test/scripted": ScriptedModel(*replies)}
        async with await AsyncPerdure.open(Path(folder, "agents.db"), models=models, tools=[add_here]) as perdure:
            new, tool_id = NewTool(source=SOURCE.format(name=names[0])), ToolId(f"tool-{uuid.uuid4()}")
            await perdure.app.store.write(
                create_tool, new, tool_id, cipher=perdure.app.ports.cipher, at=datetime.now(UTC)
            )
            agent = await perdure.create_agent("adder", model="test/scripted")
            for name in names:
                await agent.tools.attach(name)
            for _ in range(MESSAGES):
                for name in names:
                    began = time.perf_counter()
                    reply = await agent.send("add")
                    times[name].append((time.perf_counter() - began) * 1000)
                    assert reply.text == "3", reply
                    await asyncio.sleep(PAUSE_S)
    return statistics.median(times[names[0]]), statistics.median(times[names[1]])


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
