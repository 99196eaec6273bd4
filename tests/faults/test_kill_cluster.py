"""`kill -9` at random moments of one of three processes over PostgreSQL, while clients send to all of them.

Half of the processes say that they are another machine: nobody can see that those are dead, so their runs wait for the
end of their leases. Short in `make test-all`, three hundred kills with `PERDURE_FAULTS=full`.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
import time
from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from perdure.core.runs import RunKey
from perdure.storage.store import Store
from perdure.storage.tx import Tx
from tests.faults.children import Child, Line, Place, make_agents, open_store
from tests.faults.kill_checks import PLANS, check_store
from tests.support.stores import new_address, opened

FULL = os.environ.get("PERDURE_FAULTS") == "full"
KILLS = 300 if FULL else 4
PROCESSES = 3
LEASE_S = 2.0
STUCK_S = 5.0 if FULL else 20.0
"""So long after its lease has ended may a run be without a process; longer where the machine is shared with others."""
ANSWER_S = 60.0
PAUSE_S = 1.0 if FULL else 0.3
"""The longest time from one kill to the next."""


class Cluster:
    """Processes over one store, one of which is killed now and then and started again."""

    def __init__(self, place: Place, chance: random.Random) -> None:
        self._place, self._chance = place, chance
        self._children: list[Child] = []
        self.kills = 0

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """All processes, from when they are ready until the block ends."""
        for _ in range(PROCESSES):
            self._children.append(await self._start())
        try:
            await asyncio.gather(*(child.ready() for child in self._children))
            yield
        finally:
            for child in self._children:
                await child.kill()

    async def _start(self) -> Child:
        machine = f"machine {self._chance.randrange(10**9)}" if self._chance.random() < 0.5 else ""
        return await Child.start(self._place, machine=machine)

    def any_child(self) -> Child:
        return self._chance.choice(self._children)

    async def kill_one(self) -> None:
        """Kill a process, and start another in its place."""
        place = self._chance.randrange(PROCESSES)
        code = await self._children[place].kill()
        assert code == -signal.SIGKILL, self._place.errors.read_text()  # it did not end by itself
        self.kills += 1
        self._children[place] = await self._start()

    async def close(self) -> None:
        """Let all of them end what they have begun."""
        await asyncio.gather(*(child.ready() for child in self._children))
        assert await asyncio.gather(*(child.close() for child in self._children)) == [0] * PROCESSES


class Client:
    """Sends one message after another on its line, each until it is answered, to whichever process lives."""

    def __init__(self, name: str, line: Line, chance: random.Random) -> None:
        self.sent: dict[str, str] = {}
        self.acknowledged: set[str] = set()
        self.answered: dict[str, dict[str, Any]] = {}
        self.stopped = False
        self._name, self._line, self._chance = name, line, chance

    async def talk(self, cluster: Cluster) -> None:
        """Until `stopped`."""
        while not self.stopped:
            key = f"{self._name}{len(self.sent)}"
            self.sent[key] = self._chance.choice(PLANS)
            order = self._line.order(key, self.sent[key], background=self._chance.random() < 0.5)
            while key not in self.answered:
                child = cluster.any_child()
                try:
                    await child.ready()
                    child.send(order)
                    self.answered[key] = await child.hears("ended", key, timeout_s=ANSWER_S)
                except EOFError:  # it was killed: the same message, to any of them
                    pass
                finally:
                    self.acknowledged.update(line["accepted"] for line in child.told if line.get("accepted") == key)


class Watch:
    """Looks all the time for runs that nobody holds; `longest_s` is how long one was so after its lease had ended."""

    def __init__(self, store: Store) -> None:
        self.longest_s = 0.0
        self._store = store
        self._since: dict[tuple[RunKey, int], float] = {}

    async def look(self) -> None:
        """For ever."""
        while True:
            now = time.monotonic()
            free = await self._store.read(_free)
            self._since = {key: self._since.get(key, now) for key in free}
            self.longest_s = max([self.longest_s, *(now - since for since in self._since.values())])
            await asyncio.sleep(0.1)


def _free(tx: Tx) -> list[tuple[RunKey, int]]:
    """The runs whose turn it is and that nobody holds, each with the number of its last lease."""
    runs = tx.runs.list_oldest(free_at=datetime.now(UTC), limit=1_000)
    return [(run.key, run.lease_number) for run in runs]


async def torment(cluster: Cluster, clients: Sequence[Client], chance: random.Random) -> None:
    """Have all clients talk while processes are killed; then let everything end."""
    talks = [asyncio.create_task(client.talk(cluster)) for client in clients]
    try:
        while cluster.kills < KILLS:
            await asyncio.sleep(chance.uniform(0, PAUSE_S))
            await cluster.kill_one()
            for talk in talks:
                assert not talk.done(), talk.exception()
        for client in clients:
            client.stopped = True
        async with asyncio.timeout(2 * ANSWER_S):
            await asyncio.gather(*talks)
    finally:
        for talk in talks:
            talk.cancel()
    await cluster.close()


@pytest.mark.faults
async def test_a_kill_of_one_of_three_processes_loses_and_doubles_nothing(tmp_path: Path) -> None:
    """Each acknowledged message stands in the log once and is answered, each call has one result, each memory edit is
    made once, no effect of a tool is repeated unless its result says so, and no run is stuck."""
    chance = random.Random(25)
    place = Place(tmp_path, new_address(tmp_path, postgres=True), {"PERDURE_LEASE_S": str(LEASE_S)})
    lines = await make_agents(place)
    clients = [Client(name, line, random.Random(chance.random())) for name, line in zip("abcd", lines, strict=True)]
    cluster = Cluster(place, random.Random(chance.random()))
    began = time.monotonic()
    async with opened(place.store) as store, cluster.running():
        watch = Watch(store)
        looking = asyncio.create_task(watch.look())
        try:
            await torment(cluster, clients, chance)
        finally:
            looking.cancel()
    took = time.monotonic() - began
    sent = sum(len(client.sent) for client in clients)
    print(f"{cluster.kills} kills, {sent} messages in {took:.0f} s; a run was free for {watch.longest_s:.1f} s at most")

    for client in clients:
        assert client.acknowledged <= client.answered.keys() == client.sent.keys()
        assert {answer["stop_reason"] for answer in client.answered.values()} == {"end_turn"}
        assert all(answer["text"] == f"done {key}" for key, answer in client.answered.items())
    assert place.errors.read_text() == ""
    assert watch.longest_s < STUCK_S
    await check_store(place, lines, clients)
    async with await open_store(place) as perdure:
        for line in lines:
            agent = await perdure.agent(line.agent)
            assert (await agent.send("next append")).text == "done next"
