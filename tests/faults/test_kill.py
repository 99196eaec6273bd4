"""`kill -9` of a real process at random moments, while four clients send with idempotency keys.

Short in `make test-all`, two hundred kills with `PERDURE_FAULTS=full`.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.faults.children import Child, Line, Place, make_agents, open_store
from tests.faults.kill_checks import PLANS, check_store

FULL = os.environ.get("PERDURE_FAULTS") == "full"
ROUNDS = 10 if FULL else 1
KILLS = 20 if FULL else 3  # in each round
DELAY_S = 0.15
STUCK_S = 5.0
"""A run may be unended for this long after a start."""


class Client:
    """Sends one message after another on its line, each until it is answered, whatever happens to the server."""

    def __init__(self, name: str, line: Line, random: random.Random) -> None:
        self.sent: dict[str, str] = {}
        self.acknowledged: set[str] = set()
        self.answered: dict[str, dict[str, Any]] = {}
        self.stopped = False
        self._name, self._line, self._random = name, line, random

    async def talk(self, child: Child) -> None:
        """Go on with a started child until it dies, or everything is answered after `stopped`."""
        while not self.stopped or self.waiting:
            key = self.waiting or f"{self._name}{len(self.sent)}"
            self.sent.setdefault(key, self._random.choice(PLANS))
            order = self._line.order(key, self.sent[key], background=self._random.random() < 0.5)
            for _ in range(1 + (self._random.random() < 0.2)):  # a client that retries too early
                child.send(order)
            try:
                await child.ready()
                self.answered[key] = await child.hears("ended", key, timeout_s=STUCK_S)
            finally:
                self.acknowledged.update(line["accepted"] for line in child.told if line.get("accepted") == key)

    @property
    def waiting(self) -> str | None:
        """The key of the message that was sent and not answered."""
        return next((key for key in self.sent if key not in self.answered), None)


async def torment(place: Place, clients: Sequence[Client], chance: random.Random, *, kills: int) -> None:
    """Start the server and kill it, `kills` times; then let it end what it has begun."""
    for _ in range(kills):
        async with await Child.start(place) as child:
            talks = [asyncio.create_task(client.talk(child)) for client in clients]
            kind = chance.random()
            if kind < 0.1:  # while it starts and takes over
                await asyncio.sleep(chance.uniform(0, 4 * DELAY_S))
            elif kind < 0.5:
                await child.ready()
                await asyncio.sleep(chance.uniform(0, DELAY_S))
            else:  # on a loaded machine little happens in that time: also by how far it has come
                await child.tells(chance.randint(2, 20))
                await asyncio.sleep(chance.uniform(0, DELAY_S / 10))
            assert await child.kill() == -signal.SIGKILL, place.errors.read_text()  # it did not end by itself
            for result in await asyncio.gather(*talks, return_exceptions=True):
                assert isinstance(result, EOFError), result
    async with await Child.start(place) as child:
        await child.ready()
        for client in clients:
            client.stopped = True
        await asyncio.gather(*(client.talk(child) for client in clients))
        assert await child.close() == 0


@pytest.mark.faults
@pytest.mark.parametrize("seed", range(ROUNDS))
def test_a_kill_loses_and_doubles_nothing(tmp_path: Path, seed: int) -> None:
    """However often the process is killed: each acknowledged message stands in the log once and is answered, each call
    has one result, each memory edit is made once, no run is stuck, and the next message is answered."""

    async def story() -> None:
        chance, place = random.Random(seed), Place(tmp_path)
        lines = await make_agents(place)
        clients = [Client(name, line, random.Random(chance.random())) for name, line in zip("abcd", lines, strict=True)]
        began = time.perf_counter()
        await torment(place, clients, chance, kills=KILLS)
        took = time.perf_counter() - began
        sent = sum(len(client.sent) for client in clients)
        print(f"seed {seed}: {KILLS} kills and {sent} messages in {took:.1f} s, {KILLS / took:.1f} kills/s")

        for client in clients:
            assert client.acknowledged <= client.answered.keys()
            assert {answer["stop_reason"] for answer in client.answered.values()} == {"end_turn"}
            assert all(answer["text"] == f"done {key}" for key, answer in client.answered.items())
        assert place.errors.read_text() == ""
        await check_store(place, lines, clients)
        async with await open_store(place) as perdure:
            for line in lines:
                agent = await perdure.agent(line.agent)
                assert (await agent.send("next append")).text == "done next"

    asyncio.run(story())


@pytest.mark.faults
def test_a_store_killed_while_it_is_made_can_be_opened(tmp_path: Path) -> None:
    """A process that dies while it makes a new store leaves nothing that the next one stumbles over."""

    async def story() -> None:
        chance = random.Random(0)
        for number in range(20 if FULL else 2):
            place = Place(tmp_path / str(number))
            place.folder.mkdir()
            child = await Child.start(place)
            await asyncio.sleep(chance.uniform(0.2, 0.7))
            await child.kill()
            async with await open_store(place) as perdure:
                assert await perdure.agents() == []

    asyncio.run(story())
