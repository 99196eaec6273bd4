"""One history: clients, processes, faults, and the check at the end."""

from __future__ import annotations

import asyncio
import contextlib
import random
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from perdure.core.errors import PerdureError
from perdure.core.ids import AgentId, ConversationId
from perdure.core.runs import RunKey
from perdure.core.tools.engine_specs import MEMORY_TOOL_SPECS
from perdure.domain.agents.units import NewAgent, create_agent
from perdure.domain.blocks.units import NewBlock
from perdure.domain.tools.units import put_tools
from perdure.engine.conversations.reset import reset_conversations
from perdure.engine.workers.embedding import WatchedStore
from perdure.storage.store import Store
from perdure.storage.tx import Tx
from perdure.testing.clock import START, SequentialIds
from perdure.testing.inline_store import InlineStore
from tests.simulator.audit import Facts
from tests.simulator.clients import Clients
from tests.simulator.commit_check import CommitCheck
from tests.simulator.faults import Crash, FaultRates
from tests.simulator.invariants import Violation, check_agent, check_moment, check_summaries
from tests.simulator.outside import (
    ELSEWHERE,
    OUTSIDE,
    add_conversation,
    change_agent,
    edit,
    last_message,
    no_fault,
    stop_runs,
    take_runs,
    unended,
)
from tests.simulator.process import EMBEDDER, LEASE_S, Place, Process, retrieve_error
from tests.simulator.virtual_time import UnhandledErrors, VirtualClock, run_virtually
from tests.simulator.world import MODEL, SUMMARY_USAGE, World, WorldTools
from tests.support.observer import Observer

PATIENCE_S = 600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What happened in a history in which nothing was broken."""

    seed: int
    messages: int
    crashes: int
    faults: int
    cancels: int
    resets: int
    closes: int
    virtual_s: float


_GUARDS = {"guards": {"memory_pressure": 0.5, "stalled_steps": 1, "turn_steps": 4, "recent_steps": 5}}
_AUTOMATIC = {"auto_recall": {"floor": 0}, "auto_capture": {"commit_token_threshold": 50}}


class _Simulation:
    def __init__(self, seed: int, path: Path, rates: FaultRates) -> None:
        self.rng = random.Random(seed)
        self.seed = seed
        self.main: asyncio.Task[Any] | None = None
        self.processes: list[Process] = []
        self.crashes = self.resets = self.struck = self.closes = 0
        self.violations: list[Violation] = []
        self.observer = Observer(path)
        check = CommitCheck(self.observer, self.violations.append)
        # In half of the histories a dead process is known as dead, in the others its leases have to run out; in some
        # the window is so small that old runs go out of view.
        self.place = Place(
            path=path,
            world=World(),
            rates=rates,
            facts=Facts(dead={ELSEWHERE}),
            turn=asyncio.Lock(),
            knows_dead=self.rng.random() < 0.5,
            window_tokens=self.rng.choice((128_000, 128_000, 5_500)),
            embeds=seed % 4 == 1,
            hooked=seed % 3 == 2,
            report=self.violations.append,
            died=self._died,
            during_summary=self._change_during_summary,
            begins=check.check_tool_start,
            stop=self._stop_runs,
            take=self._take_runs,
        )
        self.observer._write_lock = self.place.turn
        self.clients = Clients(seed, self.rng, world=self.place.world, processes=lambda: self.processes, check=check)
        self._agent_id: AgentId | None = None
        self._started = 0
        self._settling = False

    def _died(self, process: Process) -> None:
        self.crashes += 1
        self.struck += process.faults.struck
        if process in self.processes:
            self.processes.remove(process)
        if self._agent_id is not None and (self.crashes < 4 or self.crashes % 4 == 0):
            try:
                self.observer.read_now(lambda tx: check_moment(tx, AgentId(str(self._agent_id))))
            except Violation as violation:
                self.violations.append(violation)

    async def start_process(self) -> Process:
        self._started += 1
        rng = random.Random(self.rng.random())
        process = Process(self._started, self.place, rng, main=self.main)
        self.processes.append(process)
        with contextlib.suppress(Crash, PerdureError):
            await process.start()
        return process

    async def _stop_runs(self) -> None:
        await self._outside(stop_runs)

    async def _take_runs(self, owner: str) -> None:
        await self._outside(partial(take_runs, owner=owner))

    async def _change_during_summary(self) -> None:
        """While a model makes a summary somebody may change the agent, or ask its runs to stop."""
        chance = self.rng.random()
        if chance < 0.3:
            await self._outside(change_agent if chance < 0.2 else stop_runs)

    async def _outside(self, unit: Callable[..., None]) -> None:
        """What another program does to the agent, until the history is about to end."""

        def change_until_settled(tx: Tx) -> None:
            if self._agent_id is not None and not self._settling:  # looked at when its turn has come
                unit(tx, self._agent_id, at=VirtualClock().now())

        await self.observer.write(change_until_settled)

    async def run(self) -> Report:
        self.main = asyncio.current_task()
        agent_id = self._agent_id = await self._make_agent()
        await self.start_process()
        lines = [0, 0, 1] if self.rng.random() < 0.5 else [0, 1, 2]
        clients = [
            asyncio.create_task(self.clients.talk(agent_id, name, line))
            for name, line in zip("abc", lines, strict=True)
        ]
        keeper = asyncio.create_task(self._keep_processes())
        editor = asyncio.create_task(self._edit_from_outside(agent_id))
        resetter = asyncio.create_task(self._reset_from_outside(agent_id))
        person = asyncio.create_task(self.clients.decide_for_ever(agent_id))
        try:
            async with asyncio.timeout(PATIENCE_S):
                await asyncio.gather(*clients)
                if self.seed % 2:  # nobody talks any more, so all that a client follows has ended
                    await self._reset(agent_id, None)
        except TimeoutError as error:
            raise Violation(f"a client waited for more than {PATIENCE_S:.0f} virtual seconds") from error
        finally:
            for task in (*clients, keeper, editor, resetter, person):
                task.cancel()
            await asyncio.gather(*clients, keeper, editor, resetter, person, return_exceptions=True)
            for violation in self.violations:
                raise violation
        for task in (resetter, keeper):
            if task.done() and not task.cancelled():
                task.result()  # what was no fault
        await self._settle(agent_id)
        return Report(
            seed=self.seed,
            messages=len(self.clients.sent),
            crashes=self.crashes,
            faults=self.struck,
            cancels=self.clients.cancels,
            resets=self.resets,
            closes=self.closes,
            virtual_s=asyncio.get_running_loop().time(),
        )

    async def _make_agent(self) -> AgentId:
        store: Store = InlineStore(self.place.path)
        if self.place.embeds:
            store = WatchedStore(store, EMBEDDER, lambda: None)
        ids = SequentialIds(salt=0xFFFF)
        tools = WorldTools(self.place.world, no_fault, self.rng)
        await store.write(put_tools, [*MEMORY_TOOL_SPECS.values(), *tools.specs()], ids=ids, at=START)
        names = (
            *("core_memory_append", "archival_memory_insert", "conversation_search", "update_working_checkpoint"),
            *("charge", "fetch", "guarded"),
        )
        new = NewAgent(
            name="simulated",
            model=MODEL,
            tools=names,
            blocks=(NewBlock(label="notes", limit_chars=100_000), NewBlock(label="outside")),
            # In some histories memory works by itself.
            settings=_AUTOMATIC if self.seed % 10 == 3 else _GUARDS if self.seed % 2 else {},
        )
        agent = await store.write(create_agent, new, ids=ids, author=OUTSIDE, at=START)
        for _ in range(2):
            conversation_id = ConversationId(ids.new("conversation"))
            await store.write(add_conversation, agent.id, conversation_id, at=START)
        await store.close()
        return agent.id

    async def _keep_processes(self) -> None:
        """Start processes again some time after they died; sometimes two work on the file, and one is told to end."""
        while True:
            await asyncio.sleep(self.rng.uniform(0.1, 5))
            if self.processes and self.rng.random() < 0.1:
                await self._close(self.processes[0])
            if not self.processes or (len(self.processes) < 2 and self.rng.random() < 0.2):
                await self.start_process()

    async def _close(self, process: Process) -> None:
        """End a process in good order: then nothing is held by it any more."""

        def held_runs(tx: Tx) -> set[RunKey]:
            return {run.key for run in tx.runs.list_oldest(limit=1_000) if run.lease_owner == process.name}

        self.closes += 1
        self.processes.remove(process)
        self.struck += process.faults.struck
        process.faults.heal()
        before = self.observer.read_now(held_runs)
        # In a task of its own, which goes down with its process: one of its tasks may have come to a fault before.
        closing = asyncio.create_task(process.close())
        await asyncio.wait((closing,))
        if closing.cancelled() or isinstance(error := closing.exception(), Crash):
            return
        if error is not None:
            raise error
        if still_held := before & self.observer.read_now(held_runs):
            self.violations.append(Violation(f"{process.name} was closed and still holds {still_held}"))

    async def _edit_from_outside(self, agent_id: AgentId) -> None:
        for number in range(self.rng.randint(0, 4)):
            await asyncio.sleep(self.rng.uniform(0, 5))
            if self.processes:
                process = self.rng.choice(self.processes)
                with contextlib.suppress(Crash, PerdureError):
                    await process.store.write(edit, agent_id, str(number), at=process.ports.clock.now())

    async def _reset_from_outside(self, agent_id: AgentId) -> None:
        """In some histories conversations begin anew, one or all; not while a run is on."""
        rng = random.Random(f"{self.seed}reset")
        for _ in range(rng.choice((0, 0, 4, 16))):
            await asyncio.sleep(rng.uniform(0, 2))
            await self._reset(agent_id, rng.choice((None, 0, 1, 2)))

    async def _reset(self, agent_id: AgentId, line: int | None) -> None:
        if not self.processes:
            return
        process = self.rng.choice(self.processes)
        # In a task of its own, which goes down with its process.
        resetting = asyncio.create_task(reset_conversations(agent_id, line, process.ports, author=OUTSIDE))
        resetting.add_done_callback(retrieve_error)
        await asyncio.wait((resetting,), timeout=LEASE_S)
        resetting.cancel()
        if resetting.done() and not resetting.cancelled():
            with contextlib.suppress(Crash, PerdureError):
                self.resets += len(resetting.result())

    async def _settle(self, agent_id: AgentId) -> None:
        """No more faults: what is left must come to its end, the next message be answered, and every promise hold."""
        self._settling = True
        for process in list(self.processes):
            self.struck += process.faults.struck
            process.faults.heal()
        process = await self.start_process()
        process.faults.heal()
        person = asyncio.create_task(self.clients.decide_for_ever(agent_id))
        for line in (0, 1, 2):
            text = f"last{line} m"
            self.clients.sent.append(text)
            try:
                async with asyncio.timeout(PATIENCE_S):
                    if not await self.clients.attempt(process, agent_id, line, text):
                        raise Violation(f"{text!r} was not answered")
            except TimeoutError as error:
                raise Violation(f"{text!r} was not answered in {PATIENCE_S:.0f} virtual seconds") from error
            answer = (await process.store.read(last_message, agent_id, line)).text
            if answer != f"done last{line}":
                raise Violation(f"{text!r} was answered with {answer!r}")
        person.cancel()
        async with asyncio.timeout(PATIENCE_S):
            while await process.store.read(unended, agent_id):  # noqa: ASYNC110
                await asyncio.sleep(1)  # virtual: it costs nothing
        try:
            async with asyncio.timeout(PATIENCE_S):
                while left := await process.store.read(lambda tx: tx.resets.list_agents()):  # noqa: ASYNC110
                    await asyncio.sleep(1)
        except TimeoutError as error:
            raise Violation(f"the resets of {left} are not carried out") from error
        await process.store.read(check_summaries, agent_id, usage=SUMMARY_USAGE)
        await process.store.read(check_agent, agent_id, sent=self.clients.sent, requests=self.place.world.requests)
        for (run_id, call_id), count in self.place.world.effects.items():
            if count > 1:
                raise Violation(f"a tool that must not run twice ran {count} times for {call_id} of {run_id}")
        for token, count in self.place.world.guarded.items():
            if count > 1 or token not in self.place.world.approved:
                raise Violation(
                    f"a guarded tool ran {count} times with {token}, of which {self.place.world.approved} may"
                )
        for running in list(self.processes):
            with contextlib.suppress(Crash):  # a fault that a task of its own had come to before the others were healed
                await running.close()
        for violation in self.violations:
            raise violation
        await self.observer.close()


_TEMPLATE: Path | None = None


def simulate(seed: int, *, rates: FaultRates | None = None, on_end: Callable[[Path], None] | None = None) -> Report:
    """Run the history of this seed. Raises: Violation: a promise was broken; the message names the seed."""
    with tempfile.TemporaryDirectory(prefix="perdure-simulation-") as folder:
        path = Path(folder) / "perdure.db"
        _from_template(path)
        try:
            report = run_virtually(_Simulation(seed, path, rates or FaultRates()).run())
        except (Violation, UnhandledErrors) as violation:
            raise Violation(f"seed {seed}: {violation}") from violation
        if on_end is not None:
            on_end(path)
        return report


def _from_template(path: Path) -> None:
    """An empty store: making the schema anew for every history would take longer than the history."""
    global _TEMPLATE
    if _TEMPLATE is None or not _TEMPLATE.exists():
        template = Path(tempfile.mkdtemp(prefix="perdure-template-")) / "perdure.db"
        InlineStore(template).crash()
        _TEMPLATE = template
    shutil.copyfile(_TEMPLATE, path)
