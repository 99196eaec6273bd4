"""`kill -9` of `perdure serve` at random moments, while four HTTP clients send with idempotency keys.

Short in `make test-all`, two hundred kills with `PERDURE_FAULTS=full`.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import time
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import httpx
import pytest

from perdure.core.ids import AgentId
from perdure.storage.tx import Tx
from perdure.testing import HttpModel
from tests.simulator.invariants import check_agent
from tests.support.stores import new_settings, opened
from tests.wire.obedient import MODEL, Server, obey

FULL = os.environ.get("PERDURE_FAULTS") == "full"
ROUNDS = 10 if FULL else 1
KILLS = 20 if FULL else 2  # in each round
DELAY_S = 0.3
STUCK_S = 20.0
"""A message may be unanswered for this long while the server lives."""

PLANS = ("append", "archive append", "append archive search_history", "append+archive", "search_passage", "")
TOOLS = ["core_memory_append", "archival_memory_insert", "archival_memory_search", "conversation_search"]


class Client:
    """Sends one message after another to its agent, each until it is answered, whatever happens to the server."""

    def __init__(self, name: str, agent_id: str, server: Server, chance: random.Random) -> None:
        self.sent: dict[str, str] = {}
        self.answered: dict[str, str] = {}
        self.runs: dict[str, str] = {}
        self.cut: set[str] = set()
        self.stopped = False
        self.agent_id = agent_id
        self._name, self._server, self._chance = name, server, chance

    @property
    def waiting(self) -> str | None:
        """The key of the message that was sent and not answered."""
        return next((key for key in self.sent if key not in self.answered), None)

    async def talk(self, http: httpx.AsyncClient) -> None:
        """Until `stopped` and everything is answered."""
        while not self.stopped or self.waiting:
            key = self.waiting or f"{self._name}{len(self.sent)}"
            plan = self.sent.setdefault(key, self._chance.choice(PLANS))
            mode = self._chance.choice(("whole", "steps", "tokens", "background"))
            try:
                self.answered[key] = await asyncio.wait_for(self._ask(http, key, plan, mode), STUCK_S)
            except httpx.HTTPError:
                if run_id := self.runs.get(key):
                    self.cut.add(run_id)
                await asyncio.sleep(0.02)  # the server is gone: again, under the same key

    async def _ask(self, http: httpx.AsyncClient, key: str, plan: str, mode: str) -> str:
        """What the agent said last. Raises: httpx.HTTPError: the connection was cut."""
        body: dict[str, Any] = {"messages": [{"role": "user", "content": f"{key} ! {plan}"}], "if_busy": "wait"}
        if mode == "whole":
            answer = await http.post(self._path, json=body, headers={"Idempotency-Key": key})
            assert answer.status_code == 200, answer.text
            return _last_words(answer.json()["messages"])
        body |= {"streaming": True, "stream_tokens": mode != "steps", "background": mode == "background"}
        async with http.stream("POST", self._path, json=body, headers={"Idempotency-Key": key}) as answer:
            assert answer.status_code == 200, await answer.aread()
            events = [event async for event in self._events(key, answer)]
        return _last_words(events)

    async def _events(self, key: str, answer: httpx.Response) -> AsyncIterator[dict[str, Any]]:
        done = False
        async for line in answer.aiter_lines():
            assert '"error_message"' not in line, line
            if line == "data: [DONE]":
                done = True
            elif line.startswith("data: "):
                event = json.loads(line[6:])
                if event.get("run_id"):
                    self.runs[key] = event["run_id"]
                yield event
        if not done:  # cut between two events, which HTTP may not notice
            raise httpx.RemoteProtocolError("the stream ended early")

    @property
    def _path(self) -> str:
        return f"{self._server.url}/v1/agents/{self.agent_id}/messages"


def _last_words(messages: Sequence[Mapping[str, Any]]) -> str:
    """The text of the newest assistant message, put together from its pieces."""
    said = [message for message in messages if message["message_type"] == "assistant_message"]
    return "".join(message["content"] for message in said if message["id"] == said[-1]["id"])


async def torment(server: Server, clients: Sequence[Client], chance: random.Random, *, kills: int) -> None:
    """Start the server and kill it, `kills` times; then let it end what it has begun."""
    async with httpx.AsyncClient(trust_env=False, timeout=STUCK_S) as http:
        talks = [asyncio.create_task(client.talk(http)) for client in clients]
        for _ in range(kills):
            await server.start(wait=chance.random() > 0.1)
            answered = sum(len(client.answered) for client in clients)
            if chance.random() < 0.5:
                await asyncio.sleep(chance.uniform(0, DELAY_S))
            else:  # on a loaded machine little happens in that time: also by how far it has come
                goal = answered + chance.randint(1, 6)
                for _ in range(1_000):
                    if sum(len(client.answered) for client in clients) >= goal:
                        break
                    await asyncio.sleep(chance.uniform(0, 0.02))
            assert await server.kill() == -signal.SIGKILL, server.log.read_text()  # it did not end by itself
            for talk in talks:
                assert not talk.done() or talk.exception() is None, talk.exception()
        await server.start()
        for client in clients:
            client.stopped = True
        await asyncio.gather(*talks)


async def check_cut_streams(server: Server, clients: Sequence[Client]) -> int:
    """What a kill cut off can be read from the run afterwards: how many there were."""
    cut = sorted({run_id for client in clients for run_id in client.cut})
    async with httpx.AsyncClient(trust_env=False, timeout=STUCK_S, base_url=server.url) as http:
        for run_id in cut:
            run = (await http.get(f"/v1/runs/{run_id}")).raise_for_status().json()
            assert run["status"] == "completed", run
            messages = (await http.get(f"/v1/runs/{run_id}/messages")).raise_for_status().json()
            assert _last_words(messages).endswith("done"), messages
    return len(cut)


async def check_store(address: str, clients: Sequence[Client]) -> None:
    """Everything that was promised stands in the store, once."""

    def check(tx: Tx) -> None:
        for client in clients:
            agent_id = AgentId(client.agent_id)
            check_agent(tx, agent_id, sent=[f"{key} ! {plan}" for key, plan in client.sent.items()])
            (human,) = (block for block in tx.blocks.list_by_agent(agent_id) if block.label == "human")
            passages = Counter(
                passage.text
                for archive in tx.archives.list_by_agent(agent_id)
                for passage in tx.passages.page(archive.id, limit=1_000_000)
            )
            for key, plan in client.sent.items():
                words = plan.replace("+", " ").split()
                assert human.value.split("\n").count(key) == words.count("append")
                assert passages[f"note of {key}"] == words.count("archive")

    async with opened(address) as store:
        await store.read(check)


async def make_agents(server: Server, names: str) -> list[str]:
    """One agent for each name; their ids."""
    await server.start()
    async with httpx.AsyncClient(trust_env=False, timeout=30, base_url=server.url) as http:
        made = []
        for name in names:
            body = {
                "name": name,
                "model": MODEL,
                "memory_blocks": [{"label": "human", "value": ""}, {"label": "persona", "value": "p"}],
                "tools": TOOLS,
                "context_window_limit": 1_000_000,
            }
            made.append((await http.post("/v1/agents/", json=body)).raise_for_status().json()["id"])
    assert await server.stop() in (0, -signal.SIGTERM)
    return made


@pytest.mark.faults
@pytest.mark.parametrize("seed", range(ROUNDS))
async def test_a_kill_of_the_server_loses_and_doubles_nothing(tmp_path: Path, seed: int) -> None:
    """However often it is killed: each message stands in the log once and is answered, each edit is made once, what a
    cut stream did not tell can be read from its run, and nothing is stuck."""
    chance = random.Random(seed)
    async with HttpModel(otherwise=obey) as model:
        server = Server(tmp_path, model.url, settings=new_settings(tmp_path))
        try:
            agents = await make_agents(server, "abcd")
            clients = [
                Client(name, agent_id, server, random.Random(chance.random()))
                for name, agent_id in zip("abcd", agents, strict=True)
            ]
            began = time.perf_counter()
            await torment(server, clients, chance, kills=KILLS)
            took = time.perf_counter() - began
            cut = await check_cut_streams(server, clients)
            await server.stop()
        finally:
            await server.kill()
    sent = sum(len(client.sent) for client in clients)
    print(f"seed {seed}: {KILLS} kills, {sent} messages and {cut} cut streams in {took:.1f} s")
    assert all(text.endswith("done") for client in clients for text in client.answered.values())
    assert "Traceback" not in server.log.read_text()
    await check_store(server.settings["PERDURE_STORE"], clients)
