"""`python -m benchmarks.mcp_server`: what the MCP server costs over stdio, beside `python -c "import mcp"`.

The start lasts from the start of `perdure mcp` to the answer of its first tool call, in wall time and in CPU time; both
programs are started in turn, each in a fresh interpreter, and the medians are compared. The growth is that of the
server's memory over calls of all reading tools, after some that fill caches.
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
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.startup import SRC

RATIO_BAR = 2.0
GROWTH_BAR_KB = 2_000
NAMES = ("perdure mcp, wall", "perdure mcp, CPU", "import mcp, wall", "import mcp, CPU")
TIMES, WARM_CALLS, CALLS = 3, 1_000, 1_000
READS: tuple[tuple[str, Mapping[str, Any]], ...] = (
    ("memory_context", {"about": "the build"}),
    ("memory_search", {"query": "when do we deploy?"}),
    ("memory_list", {"kind": "notes"}),
    ("memory_timeline", {}),
    ("memory_entity", {"name": "Ada"}),
    ("search_output", {"output": "output:1", "grep": "line 4"}),
)


class Program:
    """`perdure mcp` over pipes, which has answered `initialize`."""

    def __init__(self, home: Path) -> None:
        environment = {**os.environ, "PYTHONPATH": str(SRC), "PERDURE_HOME": str(home), "HOME": str(home)}
        command = [sys.executable, "-m", "perdure", "mcp", "--project", str(home)]
        self.process = subprocess.Popen(
            command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        client = {"name": "benchmark", "version": "1"}
        self.ask("initialize", {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": client})
        self._send({"jsonrpc": "2.0", "method": "notifications/initialized"})

    def ask(self, method: str, parameters: Mapping[str, Any]) -> Any:
        """The result of a request. Raises: ValueError: it is an error."""
        self._send({"jsonrpc": "2.0", "id": 1, "method": method, "params": parameters})
        assert self.process.stdout is not None
        answer = json.loads(self.process.stdout.readline())
        if "error" in answer or answer["result"].get("isError"):
            raise ValueError(answer)
        return answer["result"]

    def call(self, tool: str, arguments: Mapping[str, Any]) -> str:
        """The text of a tool's answer."""
        return str(self.ask("tools/call", {"name": tool, "arguments": arguments})["content"][0]["text"])

    def memory_kb(self) -> int:
        """Its resident memory now."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(status.partition("VmRSS:")[2].split()[0])

    def end(self) -> None:
        """Close its stdin, and wait until it has ended."""
        self.process.communicate(timeout=60)

    def _send(self, message: Mapping[str, Any]) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(message).encode() + b"\n")
        self.process.stdin.flush()


def _cpu_s() -> float:
    """The CPU time of the children that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def starts(home: Path) -> Mapping[str, float]:
    """The median seconds of a start to the first answer, and of importing the SDK: wall and CPU."""
    found: dict[str, list[float]] = {}

    for number in range(TIMES + 1):
        began, cpu = time.perf_counter(), _cpu_s()
        program = Program(home)
        program.call("memory_context", {})
        wall = time.perf_counter() - began
        program.end()
        sdk_began, sdk_cpu = time.perf_counter(), _cpu_s()
        subprocess.run([sys.executable, "-c", "import mcp"], check=True)
        if number:  # the first compiles what is not compiled yet
            sdk_wall = time.perf_counter() - sdk_began
            values = (wall, sdk_cpu - cpu, sdk_wall, _cpu_s() - sdk_cpu)
            for name, value in zip(NAMES, values, strict=True):
                found.setdefault(name, []).append(value)
    return {name: statistics.median(times) for name, times in found.items()}


def growth(home: Path) -> tuple[int, int, float]:
    """(Kilobytes before the calls, kilobytes after, milliseconds of a call)."""
    program = Program(home)
    program.call("memory_remember", {"text": "My name is Ada and I live in Ghent."})
    program.call("memory_remember", {"text": "Deploys run on Fridays at noon.", "level": "global"})
    program.call("note", {"kind": "error", "title": "Build broke", "fields": {"happened": "libfoo was missing"}})
    program.call("index_output", {"text": "\n".join(f"line {number}" for number in range(500))})
    for number in range(WARM_CALLS):
        program.call(*READS[number % len(READS)])
    before, began = program.memory_kb(), time.perf_counter()
    for number in range(CALLS):
        program.call(*READS[number % len(READS)])
    took = time.perf_counter() - began
    after = program.memory_kb()
    program.end()
    return before, after, took / CALLS * 1_000


def main() -> int:
    """Print both; 1 if a bar was missed."""
    with tempfile.TemporaryDirectory() as folder:
        medians = starts(Path(folder))
        for name, seconds in sorted(medians.items()):
            print(f"{name:<24}{seconds * 1_000:>8.0f} ms")
        ratios = [medians[f"perdure mcp, {kind}"] / medians[f"import mcp, {kind}"] for kind in ("wall", "CPU")]
        print(f"start to first answer: {ratios[0]:.2f} times import mcp (wall), {ratios[1]:.2f} (CPU to its end)")
        before, after, call_ms = growth(Path(folder))
        print(f"{CALLS:,} calls: {before:,} to {after:,} kB, {call_ms:.1f} ms a call")
    return int(ratios[0] > RATIO_BAR or after - before > GROWTH_BAR_KB)


if __name__ == "__main__":
    raise SystemExit(main())
