"""Fifty clients that write to one agent over two servers at once: strictly one run after the other, or 409.

Short in `make test-all`, twenty messages of each client with `PERDURE_FAULTS=full`.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import httpx
import pytest

from perdure.core.ids import AgentId
from perdure.core.messages import Message
from perdure.core.runs import Run
from perdure.storage.tx import Tx
from perdure.testing import HttpModel
from perdure.testing.http_model import HttpLine, Later
from tests.simulator.invariants import check_agent
from tests.support.stores import SECRET_KEY, new_address, opened
from tests.wire.obedient import MODEL, Server, obey

FULL = os.environ.get("PERDURE_FAULTS") == "full"
CLIENTS = 50
MESSAGES = 20 if FULL else 1
ANSWER_S = 0.01
WAIT_S = 600.0
_KEY = re.compile(r"c\d+-\d+ !")


async def talk(http: httpx.AsyncClient, path: str, name: str, if_busy: str) -> dict[str, int]:
    """Send messages one after the other; each text with the status that it was answered with."""
    statuses = {}
    for number in range(MESSAGES):
        text = f"{name}-{number} ! append"
        body = {"messages": [{"role": "user", "content": text}], "if_busy": if_busy}
        answer = await http.post(path, json=body)
        statuses[text] = answer.status_code
        if answer.status_code == 409:
            assert answer.json()["run_id"].startswith("run-")  # that it would have to wait for
        else:
            assert answer.json()["messages"][-1]["content"] == "all of it done", answer.text
    return statuses


def load(tx: Tx, agent_id: AgentId) -> tuple[list[Message], list[Run]]:
    """The messages and runs of an agent, oldest first."""
    messages = [one for one in tx.messages.list(agent_id, limit=100_000) if one.kind == "message"]
    return messages, [*tx.runs.list(agent_id, limit=100_000)][::-1]


@pytest.mark.faults
async def test_fifty_clients_of_two_servers_are_answered_one_after_the_other(tmp_path: Path) -> None:
    """Half of them wait, half are refused while the agent is busy. No run begins before the one before has ended, and
    each run's messages stand together."""
    address = new_address(tmp_path, postgres=True)
    settings = {"PERDURE_STORE": address, "PERDURE_SECRET_KEY": SECRET_KEY}

    asked_for = list[str]()

    def slowly(asked: Mapping[str, Any]) -> HttpLine:
        asked_for.extend(_KEY.findall(json.dumps(asked["messages"]))[-1:])  # a server that starts asks for other things
        return Later(ANSWER_S, obey(asked))

    async with HttpModel(otherwise=slowly) as model:
        servers = []
        for name in ("one", "two"):
            (tmp_path / name).mkdir()
            servers.append(Server(tmp_path / name, model.url, settings=settings))
        try:
            for server in servers:
                await server.start()
            limits = httpx.Limits(max_connections=None)
            async with httpx.AsyncClient(trust_env=False, timeout=WAIT_S, limits=limits) as http:
                new = {"name": "a", "model": MODEL, "tools": ["core_memory_append"], "context_window_limit": 1_000_000}
                new["memory_blocks"] = [{"label": "human", "value": "", "limit": 100_000}]
                agent = (await http.post(f"{servers[0].url}/v1/agents/", json=new)).raise_for_status().json()["id"]
                answers = await asyncio.gather(
                    *(
                        talk(
                            http,
                            f"{servers[number % 2].url}/v1/agents/{agent}/messages",
                            f"c{number}",
                            "wait" if number % 4 < 2 else "reject",
                        )
                        for number in range(CLIENTS)
                    )
                )
            for server in servers:
                assert await server.stop() == 0
        finally:
            for server in servers:
                await server.kill()

    statuses = {text: status for answer in answers for text, status in answer.items()}
    accepted = [text for text, status in statuses.items() if status == 200]
    print(f"{len(accepted)} answered, {len(statuses) - len(accepted)} refused")
    assert {*statuses.values()} <= {200, 409}
    assert len(accepted) >= len(statuses) / 2
    async with opened(address) as store:
        await store.read(check_agent, AgentId(agent), sent=accepted)
        messages, runs = await store.read(load, AgentId(agent))
    assert [run.lease_number for run in runs] == [1] * len(accepted)
    assert len(list(itertools.groupby(message.run_id for message in messages))) == len(accepted)
    # A model call of another run between the two of one run would be a third group.
    assert len(list(itertools.groupby(asked_for))) == len(accepted) == len(asked_for) / 2
    assert [message.role for message in messages] == ["user", "assistant", "tool", "assistant"] * len(accepted)
