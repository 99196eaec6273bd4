"""`kill -9` of `perdure serve` while it works on a batch: the next process goes on with it."""

from __future__ import annotations

import asyncio
import os
import random
import signal
from pathlib import Path
from typing import Any

import httpx
import pytest

from perdure.core.ids import AgentId
from perdure.testing import HttpModel
from tests.faults.test_kill_server import STUCK_S, make_agents
from tests.simulator.invariants import check_agent
from tests.support.stores import new_settings, opened
from tests.wire.obedient import Server, obey

FULL = os.environ.get("PERDURE_FAULTS") == "full"
ROUNDS, KILLS = (10, 4) if FULL else (1, 1)
REQUESTS = 24
BATCHES = "/v1/messages/batches"


@pytest.mark.faults
@pytest.mark.parametrize("seed", range(ROUNDS))
async def test_a_batch_goes_on_after_a_kill(tmp_path: Path, seed: int) -> None:
    """A batch that was accepted is answered whole, each message once; the same key again adds nothing."""
    chance = random.Random(seed)
    async with HttpModel(otherwise=obey) as model:
        server = Server(tmp_path, model.url, settings=new_settings(tmp_path))
        try:
            agents = await make_agents(server, "abc")
            texts = {
                agent_id: [f"{agent_id[-4:]}-{number} ! append" for number in range(REQUESTS // 3)]
                for agent_id in agents
            }
            requests = [
                {"agent_id": agent_id, "input": texts[agent_id][number]}
                for number in range(REQUESTS // 3)
                for agent_id in agents
            ]
            for _ in range(KILLS):
                await server.start()
                batch = await _send(server, requests)
                goal = batch["metadata"]["runs"].get("completed", 0) + chance.randint(1, REQUESTS // KILLS - 4)
                await _wait(server, batch["id"], goal)
                assert await server.kill() == -signal.SIGKILL
            await server.start()
            batch = await _wait(server, batch["id"], REQUESTS)
            await server.stop()
        finally:
            await server.kill()
    assert (batch["status"], batch["metadata"]) == ("completed", {"runs": {"completed": REQUESTS}})
    assert "Traceback" not in server.log.read_text()
    async with opened(server.settings["PERDURE_STORE"]) as store:
        for agent_id in agents:
            await store.read(check_agent, AgentId(agent_id), sent=texts[agent_id])


async def _send(server: Server, requests: list[dict[str, str]]) -> dict[str, Any]:
    async with httpx.AsyncClient(trust_env=False, timeout=STUCK_S, base_url=server.url) as http:
        answer = await http.post(BATCHES, json={"requests": requests}, headers={"Idempotency-Key": "the batch"})
        return dict(answer.raise_for_status().json())


async def _wait(server: Server, batch_id: str, goal: int) -> dict[str, Any]:
    """The batch, once so many of its runs are completed."""
    async with (
        httpx.AsyncClient(trust_env=False, timeout=STUCK_S, base_url=server.url) as http,
        asyncio.timeout(STUCK_S),
    ):
        while True:
            batch: dict[str, Any] = (await http.get(f"{BATCHES}/{batch_id}")).raise_for_status().json()
            if batch["metadata"]["runs"].get("completed", 0) >= goal:
                return batch
            await asyncio.sleep(0.005)
