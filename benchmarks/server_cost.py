"""What a message costs through `perdure serve`, beside a floor of the same run: processes, measured from outside."""

from __future__ import annotations

import asyncio
import json
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import httpx

from benchmarks.floor import Yardstick, as_of_design
from benchmarks.message_cost import SAID, fill_history
from benchmarks.processes import Process, free_port, started
from perdure import AsyncPerdure
from perdure.settings import STORE_FILE, Settings
from perdure.testing import ScriptedModel

__all__ = ["Figure", "server_figures"]

MODEL = "openai/gpt-4.1"
HISTORIES = (2, 100, 500)
AGENTS = 10  # for each length of history, so that it hardly grows while it is measured
ROUNDS = 10  # of one message to each of them
CROWD = 16
CROWD_ROUNDS = 12


@dataclass(frozen=True)
class Figure:
    """One number; `floor` is the same of the floor server, `bar` the most (or with `least`, the least) allowed."""

    name: str
    value: float
    unit: str
    floor: float | None = None
    bar: float | None = None
    least: bool = False
    of_floor: bool = False
    """The bar is for the ratio to the floor."""

    @property
    def judged(self) -> float:
        return self.value / self.floor if self.of_floor and self.floor else self.value

    @property
    def missed(self) -> bool:
        if self.bar is None:
            return False
        return self.judged < self.bar if self.least else self.judged > self.bar


@dataclass(frozen=True)
class _Cost:
    cpu_ms: float
    wall_ms: float


def server_figures(folder: Path) -> Iterator[Figure]:
    """Every figure, as it is measured. Raises: RuntimeError: a server did not start, or answered with an error."""
    agents = asyncio.run(_make_agents(folder / STORE_FILE))
    model_port, floor_port, port = free_port(), free_port(), free_port()
    model_url = f"http://127.0.0.1:{model_port}/v1"
    environment = {
        "PERDURE_HOME": str(folder),
        "OPENAI_BASE_URL": model_url,
        "OPENAI_API_KEY": "none",
        "PYTHONPYCACHEPREFIX": str(folder / "pycache"),
    }
    serve = ["-m", "perdure", "serve", "--port", str(port)]
    floor = ["-m", "benchmarks.floor_server", str(floor_port), model_url, str(folder / "floor.db")]
    model = ["-m", "benchmarks.model_server", str(model_port)]
    with started(model, port=model_port, health="/v1/models", environment={}, log=folder / "model.log"):
        # The first start compiles what is not compiled yet, as an installation has done.
        with started(serve, port=port, health="/v1/health/", environment=environment, log=folder / "serve.log"):
            pass
        with (
            started(
                floor, port=floor_port, health="/health", environment=environment, log=folder / "floor.log"
            ) as least,
            started(
                serve, port=port, health="/v1/health/", environment=environment, log=folder / "serve.log"
            ) as server,
        ):
            with Yardstick(folder) as yardstick:
                row_us = yardstick.row_us()
            yield Figure("start to healthy (CPU)", server.start_cpu_s, "s", least.start_cpu_s, 2.0)
            yield Figure(f"  scaled (a row takes {row_us:.0f} us)", as_of_design(server.start_cpu_s, row_us), "s")
            yield Figure("start to healthy (wall)", server.start_wall_s, "s", least.start_wall_s)
            yield from _message_figures(server, least, agents)
            yield from _crowd_figures(server, least, agents)


def _message_figures(server: Process, floor: Process, agents: dict[int, list[str]]) -> Iterator[Figure]:
    with httpx.Client(trust_env=False, timeout=60) as client:
        _cost(floor, lambda number: _ask_floor(client, floor), 20)
        _cost(server, lambda number: _send(client, server, agents[2][number % AGENTS]), AGENTS)
        costs: dict[int, _Cost] = {}
        floors = []
        for history in HISTORIES:
            floors.append(_cost(floor, lambda number: _ask_floor(client, floor), 100))
            costs[history] = _cost(
                server,
                lambda number, history=history: _send(client, server, agents[history][number % AGENTS]),  # type: ignore[misc]
                AGENTS * ROUNDS,
            )
            if history == HISTORIES[0]:
                yield Figure("resident after 110 messages", server.resident_mb(), "MB", floor.resident_mb(), 110.0)
        cpu, wall = (statistics.median(getattr(cost, name) for cost in floors) for name in ("cpu_ms", "wall_ms"))
        first = costs[HISTORIES[0]]
        yield Figure("message (CPU)", first.cpu_ms, "ms", cpu, 4.0, of_floor=True)
        yield Figure("message (wall, p50)", first.wall_ms, "ms", wall, 10.0, of_floor=True)
        for history in HISTORIES[1:]:
            ratio = costs[history].cpu_ms / first.cpu_ms
            bar = 2.0 if history == HISTORIES[-1] else None
            yield Figure(f"message after {history} (CPU)", costs[history].cpu_ms, "ms", cpu)
            yield Figure(f"  as a multiple of one after {HISTORIES[0]}", ratio, "x", None, bar)
        yield Figure("first event of a stream (wall, p50)", _first_event_ms(client, server, agents[2]), "ms", wall)


def _cost(process: Process, send: Callable[[int], None], times: int) -> _Cost:
    walls = []
    cpu = process.cpu_s()
    for number in range(times):
        began = time.perf_counter()
        send(number)
        walls.append(time.perf_counter() - began)
    return _Cost((process.cpu_s() - cpu) * 1000 / times, statistics.median(walls) * 1000)


def _ask_floor(client: httpx.Client, floor: Process) -> None:
    client.post(f"{floor.url}/message", json={"input": SAID[0]}).raise_for_status()


def _send(client: httpx.Client, server: Process, agent_id: str) -> None:
    answer = client.post(f"{server.url}/v1/agents/{agent_id}/messages", json=_body()).raise_for_status().json()
    if answer["stop_reason"]["stop_reason"] != "end_turn":
        raise RuntimeError(f"the run ended otherwise: {answer}")


def _body(**more: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": SAID[0]}]} | more


def _first_event_ms(client: httpx.Client, server: Process, agents: list[str]) -> float:
    """Until the first event that is no ping, in tokens."""
    times = []
    for agent_id in agents * 3:
        began = time.perf_counter()
        body = _body(streaming=True, stream_tokens=True)
        with client.stream("POST", f"{server.url}/v1/agents/{agent_id}/messages", json=body) as answer:
            heard = None
            for line in answer.iter_lines():
                if heard is None and line.startswith("data: {") and json.loads(line[6:])["message_type"] != "ping":
                    heard = time.perf_counter() - began
        if heard is None:
            raise RuntimeError("a stream told nothing")
        times.append(heard)
    return statistics.median(times) * 1000


def _crowd_figures(server: Process, floor: Process, agents: dict[int, list[str]]) -> Iterator[Figure]:
    crowd = [f"{server.url}/v1/agents/{agent_id}/messages" for agent_id in [*agents[2], *agents[100]][:CROWD]]
    least = [f"{floor.url}/message"] * CROWD
    per_s = max(asyncio.run(_crowd(crowd, _body())) for _ in range(2))
    floor_per_s = max(asyncio.run(_crowd(least, {"input": SAID[0]})) for _ in range(2))
    name = f"messages a second, {CROWD} agents at once"
    yield Figure(name, per_s, "/s", floor_per_s, 0.4, least=True, of_floor=True)


async def _crowd(urls: list[str], body: dict[str, Any]) -> float:
    """Messages a second, while each address is sent one after the other."""
    async with httpx.AsyncClient(trust_env=False, timeout=60) as client:

        async def talk(url: str) -> None:
            for _ in range(CROWD_ROUNDS):
                (await client.post(url, json=body)).raise_for_status()

        began = time.perf_counter()
        await asyncio.gather(*map(talk, urls))
        return len(urls) * CROWD_ROUNDS / (time.perf_counter() - began)


async def _make_agents(path: Path) -> dict[int, list[str]]:
    """Agents by the length of their history."""
    settings = replace(Settings(), model=MODEL)
    made: dict[int, list[str]] = {}
    async with await AsyncPerdure.open(path, models={MODEL: ScriptedModel()}, settings=settings) as perdure:
        for history in HISTORIES:
            agents = [await perdure.create_agent(f"agent {history} {number}") for number in range(AGENTS)]
            made[history] = [agent.id for agent in agents]
            await fill_history(perdure.app.store, [agent.id for agent in agents], rows=history)
    return made
