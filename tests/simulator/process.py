"""One simulated process: a store of its own on the common file, a runner, and what works beside it."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from perdure.context.sections.tokens import ScriptTokenCounter
from perdure.core.hooks import Hook, HookInfo, HookPayload, Verdict
from perdure.core.models import NO_TRAITS, Model, ModelTraits
from perdure.core.ports import CallContext, EmbedPurpose
from perdure.engine.hooks import Hooks
from perdure.engine.ports import EngineSettings, Ports
from perdure.engine.run.runner import Runner
from perdure.engine.search.search import Search
from perdure.engine.workers.embedding import EmbeddingWorker, WatchedStore
from perdure.storage.store import Store
from perdure.testing.clock import SequentialIds
from perdure.testing.inline_store import FaultPoint
from perdure.testing.scripted_model import ScriptedEmbedder
from tests.simulator.audit import Facts
from tests.simulator.faults import Crash, FaultRates, Faults
from tests.simulator.invariants import Violation
from tests.simulator.store import SimulatedStore
from tests.simulator.virtual_time import VirtualClock
from tests.simulator.world import MODEL, PlannedModel, World, WorldTools

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

LEASE_S = 15.0
EMBEDDER = "test/words"


@dataclass(kw_only=True)
class Place:
    """What all processes of a history share.

    Args:
        turn: whose turn it is to write to the file.
        embeds, hooked: whether they embed texts, and have hooks.
        report: called with each violation.
        died: called with each process that dies.
        during_summary: what somebody else does while a model makes a summary.
        begins: called when a tool begins.
        stop: asks all runs to stop, from outside.
        take: takes over the runs of a process, as if it had been silent for longer than its lease.
    """

    path: Path
    world: World
    rates: FaultRates
    facts: Facts
    turn: asyncio.Lock
    window_tokens: int
    knows_dead: bool
    embeds: bool
    hooked: bool
    report: Callable[[Violation], None]
    died: Callable[[Process], None]
    during_summary: Callable[[], Any]
    begins: Callable[[CallContext], None]
    stop: Callable[[], Awaitable[None]]
    take: Callable[[str], Awaitable[None]]

    def is_dead(self, owner: str) -> bool:
        return self.knows_dead and owner in self.facts.dead


class Process:
    """After `die` nothing of it acts any more.

    Args:
        main: the task of the history itself, which belongs to no process.
    """

    def __init__(self, number: int, place: Place, rng: random.Random, *, main: asyncio.Task[Any] | None) -> None:
        self.name = f"process-{number}"
        self.alive = True
        self.faults = Faults(rng, place.rates, lease_s=LEASE_S)
        self.ids = SequentialIds(salt=number)
        self._place, self._main = place, main
        self._tasks: dict[asyncio.Task[Any], None] = {}  # in their order: a seed is one history
        self._store = SimulatedStore(
            place.path, owner=self.name, turn=place.turn, facts=place.facts, report=place.report, fault=self._fault
        )
        clock = VirtualClock()
        self.store: Store = self._store
        embedder = _Embedder(self._fault) if place.embeds else None
        self._worker: EmbeddingWorker | None = None
        if embedder is not None:
            self._worker = EmbeddingWorker(self._store, embedder, clock=clock, randomness=rng)
            self.store = WatchedStore(self._store, EMBEDDER, self._worker.wake)
        self.ports = Ports(
            store=self.store,
            models=_Models(PlannedModel(place.world, self._fault, place.during_summary)),
            toolbox=WorldTools(place.world, self._fault, rng, defect=self.faults.defect, begins=place.begins),
            search=Search(self.store, clock, embedder=embedder),
            clock=clock,
            ids=self.ids,
            randomness=rng,
            counter=ScriptTokenCounter(),
            owner=self.name,
            settings=EngineSettings(lease_s=LEASE_S, context_window_tokens=place.window_tokens, rows_a_step=2),
            hooks=Hooks([_Hook(self.name, self._fault, rng)] if place.hooked else []),
        )
        self.runner = Runner(self.ports, is_dead=place.is_dead)

    async def start(self) -> None:
        await self.runner.start()
        if self._worker is not None:
            await self._worker.start()

    async def close(self) -> None:
        """End as a program that is told to; what it held is free."""
        await self.runner.close()
        if self._worker is not None:
            await self._worker.close()
        await self.store.close()
        self.alive = False
        self._place.facts.dead.add(self.name)

    def die(self) -> None:
        """Close the store without commit and stop every task at the await where it stands."""
        if not self.alive:
            return
        self.alive = False
        self._store.crash()
        self._place.facts.dead.add(self.name)
        self._place.died(self)
        # Not from within the dying task: it is still unwinding.
        asyncio.get_running_loop().call_soon(self._stop_tasks)

    async def _fault(self, point: FaultPoint | str) -> None:
        """A fault point, in whichever task of the process reaches it: so we learn which tasks are its own."""
        task = asyncio.current_task()
        if task is not None and task is not self._main and task not in self._tasks:
            self._tasks[task] = None
            task.add_done_callback(retrieve_error)
        if not self.alive:
            raise Crash(point)
        if point == "write" and self.faults.stops():
            await self._place.stop()
        if point == "write" and self.faults.takes():
            await self._place.take(self.name)
        try:
            await self.faults.at(point)
        except Crash:
            self.die()
            raise
        if not self.alive:  # it died while this task slept
            raise Crash(point)

    def _stop_tasks(self) -> None:
        for task in (*self.runner.tasks, *self._tasks):
            task.cancel()


def retrieve_error(task: asyncio.Task[Any]) -> None:
    """Or asyncio would complain, at any later time, that nobody saw how a task of a dead process ended."""
    if not task.cancelled():
        task.exception()


class _Faulty(Protocol):
    async def __call__(self, point: str) -> None: ...


class _Models:
    def __init__(self, model: Model) -> None:
        self._model = model

    def find(self, handle: str) -> Model | None:
        return self._model if handle == MODEL else None

    def follow(self, handle: str) -> str:
        return handle

    def most_window_tokens(self, handle: str) -> int | None:
        return None

    def window_tokens(self, handle: str) -> int | None:
        return None

    def traits(self, handle: str) -> ModelTraits:
        return NO_TRAITS

    def learn(self, handle: str, **traits: Any) -> None:
        pass

    def handles(self) -> list[str]:
        return [MODEL]


class _Embedder(ScriptedEmbedder):
    """Takes its time, fails and dies as the world has it."""

    def __init__(self, fault: _Faulty) -> None:
        super().__init__(handle=EMBEDDER, dimensions=8, local=False)
        self._fault = fault

    async def embed(self, texts: Sequence[str], *, purpose: EmbedPurpose = "document") -> npt.NDArray[np.float32]:
        await self._fault("embed")
        return await super().embed(texts, purpose=purpose)


class _Hook(Hook):
    """Adds a text now and then, each another one, takes its time, and sometimes refuses a tool."""

    info = HookInfo(
        name="simulated",
        points=frozenset({"run_start", "before_model", "after_model", "before_tool", "after_tool", "run_end"}),
    )

    def __init__(self, name: str, fault: _Faulty, rng: random.Random) -> None:
        self._name, self._fault, self._rng, self._said = name, fault, rng, 0

    async def __call__(self, payload: HookPayload) -> Verdict:
        await self._fault("hook")
        self._said += 1
        chance = self._rng.random()
        if payload.point == "before_tool" and chance < 0.1:
            return Verdict(block="not now")
        if chance < 0.3:
            return Verdict(context=f"{self._name} says {self._said} at {payload.point}")
        return Verdict()
