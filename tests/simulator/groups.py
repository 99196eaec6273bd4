"""Histories of groups: processes that crash, stall and lose their leases while groups answer, and what must hold."""

from __future__ import annotations

import asyncio
import contextlib
import random
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import cast

from perdure.app import App
from perdure.core.blocks import Author
from perdure.core.errors import PerdureError
from perdure.core.ids import AgentId, GroupId
from perdure.core.messages import Text
from perdure.core.models import ModelDelta, ModelReply, ModelRequest
from perdure.core.runs import Usage
from perdure.domain.agents.units import NewAgent, create_agent
from perdure.engine.run.runner import Runner
from perdure.features.groups.runner import GroupRunner
from perdure.features.groups.tables import GroupMessages, Groups
from perdure.features.groups.units import NewGroup, create_group
from perdure.features.groups.values import GroupKind, GroupMessage, GroupTurnEnded
from perdure.features.groups.work_tables import GroupTurns
from perdure.settings import Settings
from perdure.storage.tx import Tx
from perdure.testing import InlineStore
from perdure.testing.clock import START, SequentialIds
from tests.simulator.audit import Facts
from tests.simulator.faults import Crash, FaultRates
from tests.simulator.invariants import Violation
from tests.simulator.process import Place, Process, _Models, retrieve_error
from tests.simulator.virtual_time import run_virtually
from tests.simulator.world import MODEL, World
from tests.support.groups import request

KINDS: tuple[GroupKind, ...] = ("round_robin", "supervisor", "dynamic")
TASKS = 4
PATIENCE_S = 3_600.0
RATES = FaultRates(stop=0.0, take=0.0, defect=0.0)


@dataclass(frozen=True)
class GroupReport:
    """What happened in a history; `taken_over` counts turns that a second process went on with."""

    seed: int
    crashes: int
    taken_over: int
    failures: int


class _GroupModel:
    """Speaks, chooses and answers by the message alone."""

    def __init__(self, fault: Callable[[str], Awaitable[None]]) -> None:
        self._fault = fault

    async def respond(self, request: ModelRequest) -> AsyncIterator[ModelDelta | ModelReply]:
        await self._fault("model")
        text = next(message.text for message in reversed(request.messages) if message.role == "user")
        said = "done"
        if "Choose who speaks" in text or "names none" in text:
            said = "Bob" if "[Anna]" in text else "DONE!" if "[Bob]" in text else "Anna"
        yield ModelDelta("text", said)
        await self._fault("model")
        yield ModelReply(parts=(Text(said),), usage=Usage(input_tokens=10, output_tokens=1))


class _GroupProcess(Process):
    """A process that drives turns of groups as well."""

    def __init__(self, number: int, place: Place, rng: random.Random, *, main: asyncio.Task[object] | None) -> None:
        super().__init__(number, place, rng, main=main)
        self.ports = replace(self.ports, models=_Models(_GroupModel(self._fault)))
        self.runner = Runner(self.ports, is_dead=place.is_dead)
        app = cast(App, SimpleNamespace(ports=self.ports, runner=self.runner, settings=Settings()))
        self.turns = GroupRunner(app, is_dead=place.is_dead)

    async def start(self) -> None:
        await super().start()
        await self.turns.start()

    async def close(self) -> None:
        await self.turns.close()
        await super().close()

    def _stop_tasks(self) -> None:
        for task in self.turns.tasks:
            task.cancel()
        super()._stop_tasks()


class _History:
    def __init__(self, seed: int, path: Path) -> None:
        self.seed, self.rng = seed, random.Random(seed)
        self.processes: list[_GroupProcess] = []
        self.crashes = self._started = 0
        self.main: asyncio.Task[object] | None = None
        self.violations: list[Violation] = []
        self.place = Place(
            path=path,
            world=World(),
            rates=RATES,
            facts=Facts(),
            turn=asyncio.Lock(),
            window_tokens=128_000,
            knows_dead=self.rng.random() < 0.5,
            embeds=False,
            hooked=False,
            report=self.violations.append,
            died=self._died,
            during_summary=_nothing,
            begins=lambda context: None,
            stop=_nothing,
            take=_take_nothing,
        )

    def _died(self, process: Process) -> None:
        self.crashes += 1
        self.processes = [one for one in self.processes if one is not process]

    async def start_process(self) -> _GroupProcess:
        self._started += 1
        rng = random.Random(self.rng.random())
        process = _GroupProcess(self._started, self.place, rng, main=self.main)
        self.processes.append(process)
        with contextlib.suppress(Crash, PerdureError):
            await process.start()
        return process

    async def run(self) -> GroupReport:
        self.main = asyncio.current_task()
        groups = await self._make_groups()
        await self.start_process()
        keeper = asyncio.create_task(self._keep_processes())
        clients = [asyncio.create_task(self._talk(group_id)) for group_id in groups]
        try:
            async with asyncio.timeout(PATIENCE_S):
                await asyncio.gather(*clients)
        except TimeoutError as error:
            raise Violation(f"a client waited for more than {PATIENCE_S:.0f} virtual seconds") from error
        finally:
            for task in (keeper, *clients):
                task.cancel()
            await asyncio.gather(keeper, *clients, return_exceptions=True)
        for running in list(self.processes):
            running.faults.heal()
            with contextlib.suppress(Crash):
                await running.close()
        for violation in self.violations:
            raise violation
        store = InlineStore(self.place.path)
        found = [await store.read(check_group, group_id, TASKS) for group_id in groups]
        await store.close()
        return GroupReport(self.seed, self.crashes, sum(one[0] for one in found), sum(one[1] for one in found))

    async def _make_groups(self) -> list[GroupId]:
        store, ids = InlineStore(self.place.path), SequentialIds(salt=0xFFFF)
        author = Author(kind="system", id="outside")

        def make(tx: Tx) -> list[GroupId]:
            agents: list[AgentId] = [
                create_agent(tx, NewAgent(name=name, model=MODEL, tools=()), ids=ids, author=author, at=START).id
                for name in ("Anna", "Bob", "Max")
            ]
            return [
                create_group(
                    tx,
                    NewGroup(
                        kind=kind, agent_ids=agents[:2], manager_agent_id=None if kind == "round_robin" else agents[2]
                    ),
                    ids=ids,
                    at=START,
                ).id
                for kind in KINDS
            ]

        groups = await store.write(make)
        await store.close()
        return groups

    async def _keep_processes(self) -> None:
        while True:
            await asyncio.sleep(self.rng.uniform(0.1, 5))
            if not self.processes or (len(self.processes) < 2 and self.rng.random() < 0.3):
                await self.start_process()

    async def _talk(self, group_id: GroupId) -> None:
        """Send some tasks, each again with the same key until its turn was followed to the end."""
        rng = random.Random(f"{self.seed}{group_id}")
        for number in range(TASKS):
            while not await self._try(group_id, number, rng):  # noqa: ASYNC110
                await asyncio.sleep(rng.uniform(0.01, 1))

    async def _try(self, group_id: GroupId, number: int, rng: random.Random) -> bool:
        """One attempt at one process; whether the turn was followed to its end."""
        if not self.processes:
            return False
        process = rng.choice(self.processes)
        attempt = asyncio.create_task(_follow(process, group_id, number))
        attempt.add_done_callback(retrieve_error)
        while not attempt.done():
            await asyncio.wait((attempt,), timeout=1.0)
            if not process.alive and not attempt.done():  # the connection broke
                attempt.cancel()
                await asyncio.wait((attempt,))
        if attempt.cancelled():
            return False
        if (error := attempt.exception()) is not None:
            if isinstance(error, (Crash, PerdureError)):
                return False
            raise error
        return True


async def _follow(process: _GroupProcess, group_id: GroupId, number: int) -> None:
    turn = await process.turns.send(request(group_id, f"Task {number}", idempotency_key=f"k{number}"))
    places: list[int] = []
    async for event in process.turns.follow(turn):
        if isinstance(event, GroupTurnEnded):
            if places != sorted(places):
                raise Violation(f"turn {number} of {group_id} was told in the order {places}")
            return
        if not places or places[-1] != event.speaker.place:
            places.append(event.speaker.place)


async def _nothing() -> None:
    """What somebody else does in these histories."""


async def _take_nothing(owner: str) -> None:
    """Nobody takes runs over by force."""


def check_group(tx: Tx, group_id: GroupId, tasks: int) -> tuple[int, int]:
    """Every turn has ended and has each place once, in order, with a run of its own; how many turns were taken over,
    and how many agents failed. Raises: Violation."""
    turns = list(tx.of(GroupTurns).list(group_id, limit=1_000))[::-1]
    entries = list(tx.of(GroupMessages).list(group_id, limit=10_000))
    if [turn.stop_reason for turn in turns].count(None) or len(turns) != tasks:
        raise Violation(f"{group_id}: {turns}")
    if [(one.turn_seq, one.place) for one in entries] != sorted((one.turn_seq, one.place) for one in entries):
        raise Violation(f"{group_id}: entries of turns are mixed")
    used = set[str]()
    for turn in turns:
        own = [one for one in entries if one.turn_seq == turn.seq]
        said = [one.text for one in own if one.kind == "user"]
        places = [one.place for one in own if one.kind != "user"]
        if said != [f"Task {turn.seq}"] or places != list(range(len(places))):
            raise Violation(f"turn {turn.seq} of {group_id}: {[_told(one) for one in own]}")
        used |= {one.run_id for one in own if one.run_id is not None}
    begun = {
        run.id
        for agent_id, _, conversation_seq in tx.of(Groups).members(group_id)
        for run in tx.runs.list(agent_id, limit=10_000)
        if run.conversation_seq == conversation_seq
    }
    if used != begun or len(used) != len([one for one in entries if one.run_id is not None]):
        raise Violation(f"{group_id}: runs {sorted(begun ^ used)} stand in no place, or one in several")
    return sum(turn.lease_number > 1 for turn in turns), sum(one.kind == "failure" for one in entries)


def _told(entry: GroupMessage) -> str:
    return f"{entry.place} {entry.sender_name} {entry.kind} {entry.text}"


def simulate_groups(seed: int) -> GroupReport:
    """Run the history of this seed. Raises: Violation: a promise was broken; the message names the seed."""
    with tempfile.TemporaryDirectory(prefix="perdure-groups-") as folder:
        try:
            return run_virtually(_History(seed, Path(folder) / "perdure.db").run())
        except Violation as violation:
            raise Violation(f"seed {seed}: {violation}") from violation
