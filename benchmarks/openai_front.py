"""`python -m benchmarks.openai_front`: what a message costs through `/openai/v1`, beside one through Letta's API.

CPU of the server's process, in turn, in one run: of a message to an agent by `/v1/agents/.../messages`; of one to a
model with memory; of one to an agent in a long conversation, alone and behind all that was said. Exit code 1: a bar is
missed.
"""

from __future__ import annotations

import asyncio
import statistics
import sys
import tempfile
from collections.abc import Callable
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import httpx

from benchmarks.message_cost import SAID, fill_history
from benchmarks.processes import Process, free_port, started
from perdure import AsyncPerdure
from perdure.settings import STORE_FILE, Settings
from perdure.testing import ScriptedModel

MODEL = "openai/gpt-4.1"
HISTORY = 100
ROUNDS, TIMES, WARM = 7, 40, 5
PROXY_BAR = 1.3
LONG, LONG_BAR_MS = 200, 5.0
"""Messages that are sent again, and what these may add to the cost of a new one."""


def main() -> int:
    """Print each figure; 1: a bar was missed."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        agent_id = asyncio.run(_make_agents(folder / STORE_FILE))
        model_port, port = free_port(), free_port()
        environment = {
            "PERDURE_HOME": str(folder),
            "OPENAI_BASE_URL": f"http://127.0.0.1:{model_port}/v1",
            "OPENAI_API_KEY": "none",
        }
        model = ["-m", "benchmarks.model_server", str(model_port)]
        serve = ["-m", "perdure", "serve", "--port", str(port)]
        with (
            started(model, port=model_port, health="/v1/models", environment={}, log=folder / "model.log"),
            started(
                serve, port=port, health="/v1/health/", environment=environment, log=folder / "serve.log"
            ) as server,
            httpx.Client(trust_env=False, timeout=60, base_url=server.url) as client,
        ):
            return _measure(server, client, agent_id)


def _measure(server: Process, client: httpx.Client, agent_id: str) -> int:
    numbers = count()

    def post(path: str, body: dict[str, Any]) -> Any:
        return client.post(path, json=body).raise_for_status().json()

    def letta() -> None:
        text = f"{SAID[0]} {next(numbers)}"
        post(f"/v1/agents/{agent_id}/messages", {"messages": [{"role": "user", "content": text}]})

    def chat(*, again: bool) -> Callable[[], None]:
        """A chat whose `LONG` messages are sent `again` with each new one, or by its name alone."""
        messages = [{"role": "user", "content": f"{SAID[0]} {next(numbers)}"}]
        for number in range(LONG // 2):
            messages.append({"role": "assistant", "content": f"{SAID[1]} {number}"})
            messages.append({"role": "user", "content": f"{SAID[0]} {number}"})

        def send() -> None:
            messages[-1] = {"role": "user", "content": f"{SAID[0]} {next(numbers)}"}
            answer = post("/openai/v1/chat/completions", {"model": "ann", "messages": messages})
            said = answer["choices"][0]["message"]["content"]
            messages.extend(({"role": "assistant", "content": said}, {"role": "user", "content": ""}))

        def send_alone() -> None:
            [last] = [{"role": "user", "content": f"{SAID[0]} {next(numbers)}"}]
            headers = {"X-Conversation": conversation}
            body = {"model": "ann", "messages": [last]}
            client.post("/openai/v1/chat/completions", json=body, headers=headers).raise_for_status()

        send()
        listed = client.get("/v1/conversations/", params={"agent_id": agent_id, "limit": 1}).raise_for_status().json()
        conversation = listed[0]["id"]
        return send if again else send_alone

    def proxied() -> None:
        text = f"{SAID[0]} {next(numbers)}"
        post(
            "/openai/v1/chat/completions", {"model": f"memory/{MODEL}", "messages": [{"role": "user", "content": text}]}
        )

    # A chat grows with each message, so each round has one of its own.
    kinds: dict[str, Callable[[], Callable[[], None]]] = {
        "a message by /v1/agents/.../messages": lambda: letta,
        "a message to a model with memory": lambda: proxied,
        f"a message behind {LONG} others in a conversation": lambda: chat(again=False),
        "  which are sent again with it": lambda: chat(again=True),
    }
    costs: dict[str, list[float]] = {name: [] for name in kinds}
    for _ in range(ROUNDS):
        for name, begin in kinds.items():
            send = begin()
            for _ in range(WARM):
                send()
            cpu = server.cpu_s()
            for _ in range(TIMES):
                send()
            costs[name].append((server.cpu_s() - cpu) * 1000 / TIMES)
    own, proxy, alone, again = (statistics.median(one) for one in costs.values())
    for name, one in costs.items():
        print(f"{name:<50}{statistics.median(one):>9.2f} ms CPU")
    ratio, more = proxy / own, again - alone
    verdicts = ["MISSED" if missed else "ok" for missed in (ratio > PROXY_BAR, more > LONG_BAR_MS)]
    print(f"{'with memory / own API':<50}{ratio:>9.2f} x   bar {PROXY_BAR}  {verdicts[0]}")
    print(f"{f'{LONG} messages sent again add':<50}{more:>9.2f} ms  bar {LONG_BAR_MS}  {verdicts[1]}")
    return int("MISSED" in verdicts)


async def _make_agents(path: Path) -> str:
    """Make the agents `ann` and `memory`, each with a history; return the id of the first."""
    settings = replace(Settings(), model=MODEL)
    async with await AsyncPerdure.open(path, models={MODEL: ScriptedModel()}, settings=settings) as perdure:
        agents = [await perdure.create_agent(name) for name in ("ann", "memory")]
        await fill_history(perdure.app.store, [agent.id for agent in agents], rows=HISTORY)
        return agents[0].id


if __name__ == "__main__":
    sys.exit(main())
