"""Other processes: started, waited for, measured from outside. Linux, by /proc."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import httpx

__all__ = ["ROOT", "Process", "free_port", "started"]

ROOT = Path(__file__).resolve().parents[1]
TICKS = os.sysconf("SC_CLK_TCK")
HEALTHY_S = 60.0


class Process:
    """A process that serves HTTP on 127.0.0.1."""

    def __init__(self, pid: int, port: int, *, start_cpu_s: float, start_wall_s: float) -> None:
        self.pid, self.url = pid, f"http://127.0.0.1:{port}"
        self.start_cpu_s, self.start_wall_s = start_cpu_s, start_wall_s

    def cpu_s(self) -> float:
        """User and system time of all its threads so far, in steps of a hundredth of a second."""
        return _cpu_s(self.pid)

    def resident_mb(self) -> float:
        """Memory that it holds, in megabytes (10^6 bytes)."""
        status = Path(f"/proc/{self.pid}/status").read_text()
        (line,) = (line for line in status.splitlines() if line.startswith("VmRSS:"))
        return int(line.split()[1]) * 1024 / 1e6


def _cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def free_port() -> int:
    """A port that was free a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@contextlib.contextmanager
def started(
    arguments: Sequence[str], *, port: int, health: str, environment: Mapping[str, str], log: Path
) -> Iterator[Process]:
    """A Python process with these arguments, once `health` answers 200; it is ended with the block.

    Raises: RuntimeError: it ended or did not answer, with what it said.
    """
    inherited = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}
    path = os.pathsep.join(map(str, (ROOT, ROOT / "src")))
    began = time.perf_counter()
    with log.open("wb") as output:
        child = subprocess.Popen(
            [sys.executable, *arguments],
            env={**inherited, "PYTHONPATH": path, **environment},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    try:
        _wait_for(child, f"http://127.0.0.1:{port}{health}", log)
        yield Process(child.pid, port, start_cpu_s=_cpu_s(child.pid), start_wall_s=time.perf_counter() - began)
    finally:
        child.terminate()
        try:
            child.wait(timeout=10)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()


def _wait_for(child: subprocess.Popen[bytes], url: str, log: Path) -> None:
    deadline = time.perf_counter() + HEALTHY_S
    while time.perf_counter() < deadline:
        if child.poll() is not None:
            break
        with contextlib.suppress(httpx.HTTPError):
            if httpx.get(url, trust_env=False, timeout=1).status_code == 200:
                return
        time.sleep(0.02)
    raise RuntimeError(f"{url} did not answer:\n{log.read_text(errors='replace')}")
