"""PostgreSQL itself is stopped, crashed and started again, while two processes work on what clients send to them.

Two restarts in `make test-all`; every 5 to 20 seconds for 5 minutes with `PERDURE_FAULTS=full`.
"""

from __future__ import annotations

import asyncio
import os
import random
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from perdure.storage.stores.postgres_store import PostgresStore
from perdure.testing.clock import START
from tests.faults.children import Child, Place, make_agents
from tests.faults.kill_checks import check_store
from tests.faults.test_kill_cluster import LEASE_S, Client
from tests.support.own_postgres import OwnPostgres, own_postgres

FULL = os.environ.get("PERDURE_FAULTS") == "full"
FOR_S = 300.0 if FULL else 0.0
RESTARTS_MIN = 2
APART_S = (5.0, 20.0) if FULL else (0.3, 0.6)
DOWN_S = (0.1, 3.0) if FULL else (0.1, 0.2)
ANSWER_S = 60.0


class Children:
    """The processes, as clients see them: none ends by itself."""

    def __init__(self, children: Sequence[Child], chance: random.Random) -> None:
        self._children, self._chance = children, chance

    def any_child(self) -> Child:
        return self._chance.choice(self._children)


async def restart(server: OwnPostgres, chance: random.Random) -> None:
    """Stop or crash the server, and start it a moment later."""
    await asyncio.to_thread(server.stop, chance.choice(["fast", "immediate"]))
    await asyncio.sleep(chance.uniform(*DOWN_S))
    await asyncio.to_thread(server.start)


async def torment(server: OwnPostgres, children: Sequence[Child], clients: Sequence[Client]) -> int:
    """Have all clients talk while the server is restarted, then let everything end; how often it was."""
    chance, restarts, began = random.Random(25), 0, time.monotonic()
    talks = [asyncio.create_task(client.talk(Children(children, random.Random(7)))) for client in clients]  # type: ignore[arg-type]
    try:
        while restarts < RESTARTS_MIN or time.monotonic() - began < FOR_S:
            await asyncio.sleep(chance.uniform(*APART_S))
            await restart(server, chance)
            restarts += 1
            for talk in talks:
                assert not talk.done(), talk.exception()
        for client in clients:
            client.stopped = True
        async with asyncio.timeout(2 * ANSWER_S):
            await asyncio.gather(*talks)
    finally:
        for talk in talks:
            talk.cancel()
    return restarts


@pytest.mark.faults
async def test_restarts_of_the_server_lose_and_double_nothing(tmp_path: Path) -> None:
    """Each acknowledged message stands in the log once and is answered, each edit is made once, no effect of a tool is
    repeated unless its result says so, no run is stuck, and no process needs a restart of its own."""
    with own_postgres() as server:
        await (await PostgresStore.open(server.address, at=START)).close()
        place = Place(tmp_path, server.address, {"PERDURE_LEASE_S": str(LEASE_S)})
        lines = await make_agents(place)
        clients = [Client(name, line, random.Random(name)) for name, line in zip("abcd", lines, strict=True)]
        began = time.monotonic()
        async with await Child.start(place) as first, await Child.start(place) as second:
            await asyncio.gather(first.ready(), second.ready())
            restarts = await torment(server, (first, second), clients)
            took = time.monotonic() - began
            assert [await first.close(), await second.close()] == [0, 0]
        sent = sum(len(client.sent) for client in clients)
        print(f"{restarts} restarts, {sent} messages in {took:.0f} s")

        for client in clients:
            assert client.acknowledged <= client.answered.keys() == client.sent.keys()
            assert {answer["stop_reason"] for answer in client.answered.values()} == {"end_turn"}
            assert all(answer["text"] == f"done {key}" for key, answer in client.answered.items())
        await check_store(place, lines, clients)
