"""How work on agents grows with their number: `python -m benchmarks.agent_scale [agents ...]`, else 10 and 10,000.

Creates, retrieves, changes and lists agents (pages of 10) over HTTP, in this process, in stores of different sizes.
Times are CPU of all threads per request; the stores take turns, so a slow moment of the machine slows all of them.
Exit code 1: a request in the largest store costs more than `BAR` times as much as in the smallest.
"""

from __future__ import annotations

import asyncio
import contextlib
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import httpx

from perdure import AsyncPerdure
from perdure.server.config import ServerConfig
from perdure.server.serving.app import create_app
from perdure.settings import Settings
from perdure.testing import ScriptedModel

__all__ = ["main"]

BAR = 1.3
ROUNDS = 7
REQUESTS = 30
MODEL = "test/scripted"
OPERATIONS = ("create", "retrieve", "patch", "list")


@contextlib.asynccontextmanager
async def served(folder: Path, agents: int) -> AsyncIterator[tuple[httpx.AsyncClient, list[str]]]:
    """A client of a server with so many agents, and the ids of some of them."""
    settings = replace(Settings(), model=MODEL)
    async with await AsyncPerdure.open(
        folder / f"{agents}.db", models={MODEL: ScriptedModel()}, settings=settings
    ) as library:
        made: list[str] = [(await library.create_agent(f"Agent {number}")).id for number in range(agents)]
        transport = httpx.ASGITransport(create_app(library, ServerConfig()))
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:8283") as client:
            yield client, made[:: max(1, agents // 10)]


async def cost_ms(client: httpx.AsyncClient, ids: list[str], operation: str) -> float:
    """The CPU time of one such request, the mean of `REQUESTS`."""
    began = time.process_time()
    for number in range(REQUESTS):
        path = f"/v1/agents/{ids[number % len(ids)]}"
        match operation:
            case "create":
                body = {"name": "New", "model": MODEL, "include_base_tools": False}
                answer = await client.post("/v1/agents/", json=body)
            case "retrieve":
                answer = await client.get(path)
            case "patch":
                answer = await client.patch(path, json={"description": f"Number {number}"})
            case _:
                answer = await client.get("/v1/agents/", params={"limit": 10})
        answer.raise_for_status()
    return (time.process_time() - began) / REQUESTS * 1000


async def measure(sizes: list[int], folder: Path) -> bool:
    """Print what each request costs in each store, and return whether all keep to the bar."""
    async with contextlib.AsyncExitStack() as stack:
        servers = [await stack.enter_async_context(served(folder, size)) for size in sizes]
        costs: dict[tuple[str, int], list[float]] = {}
        for turn in range(ROUNDS):
            for operation in OPERATIONS:
                for size, (client, ids) in zip(sizes, servers, strict=True):
                    cost = await cost_ms(client, ids, operation)
                    if turn:  # the first round fills caches
                        costs.setdefault((operation, size), []).append(cost)
    print("".join([f"{'CPU per request, ms':<24}", *(f"{size:>12,}" for size in sizes), f"{'ratio':>8}"]))
    is_met = True
    for operation in OPERATIONS:
        medians = [statistics.median(costs[operation, size]) for size in sizes]
        ratio = medians[-1] / medians[0]
        is_met = is_met and ratio <= BAR
        print("".join([f"{operation:<24}", *(f"{ms:>12.2f}" for ms in medians), f"{ratio:>8.2f}"]))
    return is_met


def main() -> None:
    """Measure with the sizes of the command line."""
    sizes = sorted(int(argument) for argument in sys.argv[1:]) or [10, 10_000]
    with tempfile.TemporaryDirectory() as folder:
        sys.exit(0 if asyncio.run(measure(sizes, Path(folder))) else 1)


if __name__ == "__main__":
    main()
