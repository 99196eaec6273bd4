"""`kill -9` of `perdure serve` at random moments, while chat programs send their whole chats through `/openai/v1`, and
send them again as OpenAI's clients do.

Short in `make test-all`, a hundred kills with `PERDURE_FAULTS=full`.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
from pathlib import Path
from typing import Any

import httpx
import pytest

from perdure.testing import HttpModel
from tests.support.stores import new_settings
from tests.wire.obedient import MODEL, Server, obey

pytestmark = pytest.mark.uses("openai_front")

FULL = os.environ.get("PERDURE_FAULTS") == "full"
ROUNDS = 5 if FULL else 1
KILLS = 20 if FULL else 3  # in each round
STUCK_S = 20.0


class ChatProgram:
    """Keeps a chat with the agent of its name, and sends all of it with each message until that is answered."""

    def __init__(self, name: str, server: Server, chance: random.Random) -> None:
        self.name, self.said, self.stopped = name, list[str](), False
        self._server, self._chance = server, chance

    async def talk(self, http: httpx.AsyncClient) -> None:
        """Until `stopped`."""
        while not self.stopped:
            self.said.append(f"{self.name}{len(self.said)} ! {self._chance.choice(('', 'append'))}")
            tries = 0
            while len(self.said) % 2:
                try:
                    self.said.append(await asyncio.wait_for(self._ask(http, tries), STUCK_S))
                except httpx.HTTPError:
                    tries += 1
                    await asyncio.sleep(0.02)

    async def _ask(self, http: httpx.AsyncClient, tries: int) -> str:
        """The answer. Raises: httpx.HTTPError: the connection was cut."""
        roles = ("user", "assistant")
        messages = [{"role": roles[place % 2], "content": text} for place, text in enumerate(self.said)]
        streams = self._chance.random() < 0.5
        body: dict[str, Any] = {"model": self.name, "messages": messages, "stream": streams}
        headers, url = {"x-stainless-retry-count": str(tries)}, f"{self._server.url}/openai/v1/chat/completions"
        if not streams:
            answer = await http.post(url, json=body, headers=headers)
            assert answer.status_code == 200, answer.text
            return str(answer.json()["choices"][0]["message"]["content"])
        text, done = "", False
        async with http.stream("POST", url, json=body, headers=headers) as answer:
            assert answer.status_code == 200, await answer.aread()
            async for line in answer.aiter_lines():
                assert '"error"' not in line, line
                done = done or line == "data: [DONE]"
                if line.startswith("data: {"):
                    text += json.loads(line[6:])["choices"][0]["delta"].get("content") or ""
        if not done:  # cut between two events, which HTTP may not notice
            raise httpx.RemoteProtocolError("the stream ended early")
        return text


async def make_agents(server: Server, names: str) -> None:
    await server.start()
    async with httpx.AsyncClient(trust_env=False, timeout=30, base_url=server.url) as http:
        for name in names:
            blocks = [{"label": "human", "value": ""}, {"label": "persona", "value": "p"}]
            body = {"name": name, "model": MODEL, "memory_blocks": blocks, "tools": ["core_memory_append"]}
            (await http.post("/v1/agents/", json=body)).raise_for_status()


async def conversations(server: Server, name: str) -> list[list[str]]:
    """What users and the agent said in each of its conversations in which anything was said."""
    async with httpx.AsyncClient(trust_env=False, timeout=30, base_url=server.url) as http:
        [agent] = (await http.get("/v1/agents/", params={"name": name})).raise_for_status().json()
        found = (await http.get("/v1/conversations/", params={"agent_id": agent["id"], "limit": 100})).json()
        said = []
        for one in found:
            path = f"/v1/conversations/{one['id']}/messages"
            rows = (await http.get(path, params={"limit": 1000, "order": "asc"})).raise_for_status().json()
            kinds = ("user_message", "assistant_message")
            said.append([row["content"] for row in rows if row["message_type"] in kinds])
    return said


@pytest.mark.faults
@pytest.mark.parametrize("seed", range(ROUNDS))
async def test_a_kill_leaves_each_chat_one_conversation(tmp_path: Path, seed: int) -> None:
    """With each message once, and the answers that the program got."""
    chance = random.Random(seed)
    async with HttpModel(otherwise=obey) as model:
        server = Server(tmp_path, model.url, settings=new_settings(tmp_path))
        try:
            await make_agents(server, "abc")
            programs = [ChatProgram(name, server, random.Random(chance.random())) for name in "abc"]
            async with httpx.AsyncClient(trust_env=False, timeout=STUCK_S) as http:
                talks = [asyncio.create_task(one.talk(http)) for one in programs]
                for _ in range(KILLS):
                    goal = sum(len(one.said) for one in programs) + chance.randint(1, 12)
                    async with asyncio.timeout(STUCK_S):
                        while sum(len(one.said) for one in programs) < goal:  # noqa: ASYNC110
                            await asyncio.sleep(chance.uniform(0, 0.03))
                    assert await server.kill() == -signal.SIGKILL, server.log.read_text()
                    await server.start()
                for one in programs:
                    one.stopped = True
                await asyncio.gather(*talks)
            found = {one.name: await conversations(server, one.name) for one in programs}
            await server.stop()
        finally:
            await server.kill()

    assert found == {one.name: [one.said] for one in programs}
    print(f"seed {seed}: {KILLS} kills, {sum(len(one.said) // 2 for one in programs)} messages")
    assert "Traceback" not in server.log.read_text()
