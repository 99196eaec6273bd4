"""`kill -9` of `perdure serve` at random moments between an extraction and the commit of its facts: each message gives
its fact, once.

Short in `make test-all`, five hundred kills with `PERDURE_FAULTS=full`.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import re
import signal
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import httpx
import pytest

from perdure.core.ids import AgentId
from perdure.features.facts.tables import Entities, Episodes, Facts, Graphs
from perdure.features.facts.values.facts import FactFilter, Graph
from perdure.storage.tx import Tx
from perdure.testing import HttpModel, says
from perdure.testing.http_model import HttpLine, Later
from tests.contracts.upkeep import faults_of
from tests.support.stores import new_settings, opened
from tests.wire.obedient import MODEL, Server, obey

FULL = os.environ.get("PERDURE_FAULTS") == "full"
ROUNDS = 10 if FULL else 1
KILLS = 50 if FULL else 3
MESSAGES_MAX = 3
"""The most messages from one kill to the next."""
DELAY_S = 0.03
"""The facts of a batch are stored within about this after the extractor was asked."""
WAIT_S = 60.0
_TURN = re.compile(r"^(\d+)\. \[\S+\] User: (k\d+)", re.MULTILINE)

pytestmark = pytest.mark.faults


class Scribe:
    """A model that answers messages as `obey` does, and notes each word `k1`, `k2`, ... of a user as a fact.

    `extractions` counts the batches that it was asked for.
    """

    def __init__(self, chance: random.Random) -> None:
        self.extractions = 0
        self.asked = asyncio.Event()
        self._chance = chance

    def __call__(self, asked: Mapping[str, Any]) -> HttpLine:
        if "response_format" not in asked:
            return obey(asked)
        self.extractions += 1
        self.asked.set()
        turns = _TURN.findall(asked["messages"][-1]["content"].partition("<turns>")[2])
        facts = [
            {"subject": "User", "relation": "SAID", "object": key, "text": f"User said {key}.", "turns": [int(number)]}
            for number, key in turns
        ]
        entities = [{"name": name, "type": "Concept"} for name in ("User", *(key for _, key in turns))]
        answer = {"entities": entities, "facts": [fact | {"decision": "ADD"} for fact in facts], "certain": True}
        return Later(self._chance.uniform(0, DELAY_S / 2), says(json.dumps(answer)))


class Speaker:
    """Sends `k1`, `k2`, ... to an agent, each until it is answered."""

    def __init__(self, http: httpx.AsyncClient, agent_id: str) -> None:
        self.sent = 0
        self.agent_id = agent_id
        self._http = http

    async def say(self) -> None:
        self.sent += 1
        key = f"k{self.sent}"
        body = {"messages": [{"role": "user", "content": f"{key} !"}], "if_busy": "wait"}
        path = f"/v1/agents/{self.agent_id}/messages"
        answer = await self._http.post(path, json=body, headers={"Idempotency-Key": key})
        assert answer.status_code == 200, answer.text


async def torment(server: Server, scribe: Scribe, speaker: Speaker, chance: random.Random, *, kills: int) -> None:
    """Start the server and kill it, `kills` times, each soon after it began to extract."""
    for _ in range(kills):
        await server.start()
        scribe.asked.clear()
        for _ in range(chance.randint(1, MESSAGES_MAX)):
            await speaker.say()
        async with asyncio.timeout(WAIT_S):
            await scribe.asked.wait()
        await asyncio.sleep(chance.uniform(0, DELAY_S))
        assert await server.kill() == -signal.SIGKILL, server.log.read_text()


async def finished(http: httpx.AsyncClient, speaker: Speaker) -> None:
    """Return once nothing waits: a message makes the server extract what is left."""
    await speaker.say()
    params: dict[str, str | int] = {"agent_id": speaker.agent_id, "limit": 1}
    async with asyncio.timeout(WAIT_S):
        while True:
            newest = (await http.get("/v1/facts", params=params)).raise_for_status().json()
            if newest and newest[0]["text"] == f"User said k{speaker.sent}.":
                return
            await asyncio.sleep(0.02)


def check(tx: Tx, speaker: Speaker) -> None:
    """Each message stands in the tables once: as an episode, and as a fact of one version with this one source."""
    agent_id = AgentId(speaker.agent_id)
    graph = tx.of(Graphs).find_by_agent(agent_id)
    assert isinstance(graph, Graph)
    facts = tx.of(Facts).page(graph.id, where=FactFilter(), limit=100_000)
    episodes = {one.seq: one for one in tx.of(Episodes).list(graph.id, limit=100_000)}
    messages: dict[str, str] = {
        row.id: row.text.split()[0] for row in tx.messages.list(agent_id, limit=100_000) if row.role == "user"
    }
    sources = tx.of(Facts).sources(graph.id, [fact.first_seq for fact in facts])

    assert sorted(fact.text for fact in facts) == sorted(f"User said k{n}." for n in range(1, speaker.sent + 1))
    assert all(len(tx.of(Facts).versions(fact.id)) == 1 for fact in facts)
    for fact in facts:
        (episode,) = sources[fact.first_seq]
        assert fact.text == f"User said {messages[episodes[episode].ref]}."
    assert len(episodes) == 2 * speaker.sent == tx.of(Graphs).counts(graph.id).episodes
    assert max(Counter(one.name for one in tx.of(Entities).list(graph.id, limit=100_000)).values()) == 1
    assert faults_of(tx, limit=1_000) == []


@pytest.mark.parametrize("seed", range(ROUNDS))
async def test_a_kill_between_extraction_and_commit_loses_and_doubles_no_fact(tmp_path: Path, seed: int) -> None:
    """However often the server is killed: each message gives one fact of one version with one source."""
    chance = random.Random(seed)
    scribe = Scribe(random.Random(chance.random()))
    async with HttpModel(otherwise=scribe) as model:
        settings = {"PERDURE_FACTS": "model", "PERDURE_BACKGROUND": "always", **new_settings(tmp_path)}
        server = Server(tmp_path, model.url, settings=settings)
        try:
            await server.start()
            # A connection that is kept may be closed by the server just when it is used again.
            fresh = httpx.Limits(max_keepalive_connections=0)
            async with httpx.AsyncClient(trust_env=False, timeout=WAIT_S, base_url=server.url, limits=fresh) as http:
                body = {"name": "a", "model": MODEL, "facts": {"batch_turns": 2}, "context_window_limit": 1_000_000}
                agent = (await http.post("/v1/agents/", json=body)).raise_for_status().json()
                await server.stop()
                speaker = Speaker(http, agent["id"])
                await torment(server, scribe, speaker, chance, kills=KILLS)
                await server.start()
                await finished(http, speaker)
                await server.stop()
        finally:
            await server.kill()
    print(f"seed {seed}: {KILLS} kills, {speaker.sent} messages, {scribe.extractions} extractions")
    assert "Traceback" not in server.log.read_text()
    async with opened(server.settings["PERDURE_STORE"]) as store:
        await store.read(lambda tx: check(tx, speaker))
