"""One history: clients, processes, faults, and the check at the end."""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import shutil
import tempfile
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar

from perdure.context.tokens import ScriptTokenCounter
from perdure.core.answers import Answer, PendingCall, ToolReturn
from perdure.core.errors import AnswerInvalid, ApprovalPending, PerdureError
from perdure.core.events import RunEnded, StoredEvent
from perdure.core.ids import AgentId, ConversationId, MessageId, RunId
from perdure.core.messages import Draft, Text, ToolDecision
from perdure.core.models import Model
from perdure.core.tx import Tx
from perdure.engine.accept import Request
from perdure.engine.answers import pending_calls
from perdure.engine.ports import EngineSettings, Ports
from perdure.engine.reset import reset_conversations
from perdure.engine.run_log import Progress, load_run_log
from perdure.engine.runner import Runner
from perdure.engine.search import Search
from perdure.memory.agents import NewAgent, NewBlock, create_agent
from perdure.memory.tool_specs import MEMORY_TOOL_SPECS
from perdure.memory.tools import put_tools
from perdure.testing.clock import START, SequentialIds
from perdure.testing.inline_store import FaultPoint, InlineStore
from perdure.testing.simulator.faults import Crash, FaultRates, Faults
from perdure.testing.simulator.invariants import Violation, check_agent
from perdure.testing.simulator.outside import OUTSIDE, add_conversation, edit, last_message, no_fault, unended
from perdure.testing.simulator.virtual_time import VirtualClock, run_virtually
from perdure.testing.simulator.world import CLIENT_TOOL, MODEL, PLAN_LETTERS, PlannedModel, World, WorldTools

__all__ = ["Report", "simulate"]

P = ParamSpec("P")
T = TypeVar("T")

LEASE_S = 15.0
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
    virtual_s: float


class _Models:
    def __init__(self, model: Model) -> None:
        self._model = model

    def find(self, handle: str) -> Model | None:
        return self._model if handle == MODEL else None

    def window_tokens(self, handle: str) -> int | None:
        return None

    def handles(self) -> list[str]:
        return [MODEL]


class _CheckedStore(InlineStore):
    """As the real stores, it carries a transaction out even when its caller was interrupted meanwhile; and it checks
    that the log which each transaction of the loop gives back is the log it leaves."""

    def __init__(self, simulation: _Simulation, *, fault: Callable[[FaultPoint], Awaitable[None]]) -> None:
        super().__init__(simulation.path, fault=fault)
        self._simulation = simulation
        self._turn = asyncio.Lock()

    async def write(self, unit: Callable[Concatenate[Tx, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        def checked(tx: Tx) -> T:
            result = unit(tx, *args, **kwargs)
            if isinstance(result, Progress) and result.log != load_run_log(tx, result.log.run.key):
                # The runner would take it for a defect of one run and go on, so it is kept for the end as well.
                violation = Violation(f"{unit!r} gave back another log than it left in the store")
                self._simulation.violations.append(violation)
                raise violation
            return result

        async def in_turn() -> T:
            async with self._turn:
                return await super(_CheckedStore, self).write(checked)

        writing = asyncio.ensure_future(in_turn())
        writing.add_done_callback(lambda done: done.cancelled() or done.exception())  # its caller may be gone
        return await asyncio.shield(writing)


_AUTOMATIC = {"auto_recall": {"floor": 0}, "auto_capture": {"commit_token_threshold": 50}}


class _Process:
    """One process: a store of its own on the common file, and a runner. After `die` nothing of it acts any more."""

    def __init__(self, number: int, simulation: _Simulation) -> None:
        rng = random.Random(simulation.rng.random())
        self.name = f"process-{number}"
        self.alive = True
        self.faults = Faults(rng, simulation.rates, lease_s=LEASE_S)
        self._simulation = simulation
        self._before = asyncio.all_tasks()
        self._tasks: set[asyncio.Task[Any]] = set()
        self.store = _CheckedStore(simulation, fault=self._fault)
        self.ids = SequentialIds(salt=number)
        self.ports = Ports(
            store=self.store,
            models=_Models(PlannedModel(simulation.world, self._fault)),
            toolbox=WorldTools(simulation.world, self._fault, rng),
            search=Search(self.store, VirtualClock()),
            clock=VirtualClock(),
            ids=self.ids,
            randomness=rng,
            counter=ScriptTokenCounter(),
            owner=self.name,
            settings=EngineSettings(lease_s=LEASE_S, context_window_tokens=simulation.window_tokens),
        )
        self.runner = Runner(self.ports, is_dead=simulation.is_dead)

    async def _fault(self, point: str) -> None:
        """A fault point, in whichever task of the process reaches it: so we learn which tasks are its own."""
        task = asyncio.current_task()
        if task is not None and task is not self._simulation.main and task not in self._tasks:
            self._tasks.add(task)
            task.add_done_callback(_look_at)
        if not self.alive:
            raise Crash(point)
        try:
            await self.faults.at(point)
        except Crash:
            self.die()
            raise
        if not self.alive:  # it died while this task slept
            raise Crash(point)

    def die(self) -> None:
        """Close the store without commit and stop every task at the await where it stands."""
        if not self.alive:
            return
        self.alive = False
        self.store.crash()
        self._simulation.died(self)

    def stop_tasks(self) -> None:
        for task in (*self.runner.tasks, *self._tasks):
            task.cancel()


def _look_at(task: asyncio.Task[Any]) -> None:
    """Or asyncio would complain, at any later time, that nobody saw how a task of a dead process ended."""
    if not task.cancelled():
        task.exception()


class _Simulation:
    def __init__(self, seed: int, path: Path, rates: FaultRates) -> None:
        self.rng = random.Random(seed)
        self.seed, self.path, self.rates = seed, path, rates
        self.world = World()
        self.main: asyncio.Task[Any] | None = None
        self.processes: list[_Process] = []
        self.crashes = self.cancels = self.resets = self.struck = 0
        self.sent: list[str] = []
        self.violations: list[Violation] = []
        # In half of the histories a dead process is known as dead, in the others its leases have to run out; in a few
        # the window is so small that old runs go out of view.
        self._knows_dead = self.rng.random() < 0.5
        self.window_tokens = self.rng.choice((128_000, 128_000, 4_800))
        self._dead: set[str] = set()
        self._started = 0

    def is_dead(self, owner: str) -> bool:
        return self._knows_dead and owner in self._dead

    def died(self, process: _Process) -> None:
        self.crashes += 1
        self.struck += process.faults.struck
        self._dead.add(process.name)
        self.processes.remove(process)
        # Not from within the dying task: it is still unwinding.
        asyncio.get_running_loop().call_soon(process.stop_tasks)

    async def start_process(self) -> _Process:
        self._started += 1
        process = _Process(self._started, self)
        self.processes.append(process)
        with contextlib.suppress(Crash, PerdureError):
            await process.runner.start()
        return process

    async def run(self) -> Report:
        self.main = asyncio.current_task()
        agent_id = await self._make_agent()
        await self.start_process()
        lines = [0, 0, 1] if self.rng.random() < 0.5 else [0, 1, 2]
        clients = [
            asyncio.create_task(self._client(agent_id, name, line)) for name, line in zip("abc", lines, strict=True)
        ]
        keeper = asyncio.create_task(self._keep_processes())
        editor = asyncio.create_task(self._edit_from_outside(agent_id))
        resetter = asyncio.create_task(self._reset_from_outside(agent_id))
        person = asyncio.create_task(self._decide_for_ever(agent_id))
        try:
            async with asyncio.timeout(PATIENCE_S):
                await asyncio.gather(*clients)
        except TimeoutError as error:
            raise Violation(f"a client waited for more than {PATIENCE_S:.0f} virtual seconds") from error
        finally:
            for task in (*clients, keeper, editor, resetter, person):
                task.cancel()
            await asyncio.gather(*clients, keeper, editor, resetter, person, return_exceptions=True)
            for violation in self.violations:
                raise violation
        if resetter.done() and not resetter.cancelled():
            resetter.result()  # what was no fault
        await self._settle(agent_id)
        return Report(
            seed=self.seed,
            messages=len(self.sent),
            crashes=self.crashes,
            faults=self.struck,
            cancels=self.cancels,
            resets=self.resets,
            virtual_s=asyncio.get_running_loop().time(),
        )

    async def _make_agent(self) -> AgentId:
        store = InlineStore(self.path)
        ids = SequentialIds(salt=0xFFFF)
        tools = WorldTools(self.world, no_fault, self.rng)
        await store.write(put_tools, [*MEMORY_TOOL_SPECS.values(), *tools.specs()], ids=ids, at=START)
        names = ("core_memory_append", "archival_memory_insert", "conversation_search", "charge", "fetch", "guarded")
        new = NewAgent(
            name="simulated",
            model=MODEL,
            tools=names,
            blocks=(NewBlock(label="notes", limit_chars=100_000), NewBlock(label="outside")),
            # In some histories memory works by itself.
            settings=_AUTOMATIC if self.seed % 10 == 3 else {},
        )
        agent = await store.write(create_agent, new, ids=ids, author=OUTSIDE, at=START)
        for _ in range(2):
            conversation_id = ConversationId(ids.new("conversation"))
            await store.write(add_conversation, agent.id, conversation_id, at=START)
        await store.close()
        return agent.id

    async def _client(self, agent_id: AgentId, name: str, line: int) -> None:
        """Send a few messages, one after the other; ask again with the same key until each is answered."""
        rng = random.Random(f"{self.seed}{name}")
        for number in range(rng.randint(1, 3)):
            plan = "".join(rng.choice(PLAN_LETTERS) for _ in range(rng.randint(0, 4)))
            text = f"{name}{number} {plan}"
            self.sent.append(text)
            cancel_after = rng.choice((None, None, None, rng.uniform(0, 2), 1.5))
            while not await self._try(agent_id, line, text, cancel_after):
                await asyncio.sleep(rng.uniform(0.01, 1))
                cancel_after = None

    async def _try(self, agent_id: AgentId, line: int, text: str, cancel_after: float | None) -> bool:
        """One attempt at one process; whether its run was followed to the end."""
        if not self.processes:
            return False
        process = self.rng.choice(self.processes)
        attempt = asyncio.create_task(self._attempt(process, agent_id, line, text, cancel_after))
        while not attempt.done():
            await asyncio.wait((attempt,), timeout=1.0)
            if not process.alive and not attempt.done():  # the connection broke
                attempt.cancel()
                await asyncio.wait((attempt,))
        if attempt.cancelled():
            return False
        error = attempt.exception()
        if error is None:
            return attempt.result()
        if isinstance(error, (Crash, PerdureError)):
            return False
        raise error

    async def _attempt(
        self, process: _Process, agent_id: AgentId, line: int, text: str, cancel_after: float | None
    ) -> bool:
        ids = process.ids
        request = Request(
            run_id=RunId(ids.new("run")),
            agent_id=agent_id,
            conversation_seq=line,
            drafts=(Draft(id=MessageId(ids.new("message")), role="user", parts=(Text(text),)),),
            tokens=(10,),
            idempotency_key=text.partition(" ")[0],
            client_tools=(CLIENT_TOOL,) if "x" in text else None,
        )
        while True:
            try:
                accepted = await process.runner.accept(request)
                break
            except ApprovalPending:
                await self._decide(process, agent_id, line)
        canceller = None
        if cancel_after is not None:
            canceller = asyncio.create_task(self._cancel(process, accepted.run.id, cancel_after))
        seqs: list[int] = []
        try:
            async for sent in process.runner.follow(accepted.run, known=accepted.events):
                if isinstance(sent, StoredEvent):
                    seqs.append(sent.seq)
                    if isinstance(sent.event, RunEnded):
                        if seqs != list(range(1, len(seqs) + 1)):
                            raise Violation(f"a reader of {text!r} got events {seqs}")
                        break
            else:
                return False
            while await self._decide(process, agent_id, line):
                pass
            return True
        finally:
            if canceller is not None:
                canceller.cancel()

    async def _decide(self, process: _Process, agent_id: AgentId, line: int) -> bool:
        """Answer what waits in a conversation, all at once or one by one, and follow the run that goes on; whether
        anything waited. Asked again the same call gets the same answer."""
        waiting = await process.store.read(lambda tx: pending_calls(tx, tx.conversations.at(agent_id, line)))
        if not waiting:
            return False
        answers = tuple(self._answer(call) for call in waiting)
        rng = random.Random(f"{self.seed}{waiting[0].call_id}{waiting[0].run_id}")
        one_by_one = rng.random() < 0.3
        request = Request(
            run_id=RunId(process.ids.new("run")),
            agent_id=agent_id,
            conversation_seq=line,
            drafts=(),
            tokens=(),
            answers=answers[:1] if one_by_one else answers,
            partial=one_by_one,
        )
        try:
            accepted = await process.runner.accept(request)
        except AnswerInvalid:  # somebody else has answered meanwhile
            return True
        if accepted.waits:
            return True
        async for _ in process.runner.follow(accepted.run, known=accepted.events):
            pass
        return True

    async def _decide_for_ever(self, agent_id: AgentId) -> None:
        """Somebody who looks from time to time whether anything waits, besides those who wait for their replies."""
        while True:
            await asyncio.sleep(self.rng.uniform(0.5, 5))
            for line in (0, 1, 2):
                if self.processes:
                    process = self.rng.choice(self.processes)
                    # In a task of its own, which goes down with its process.
                    asked = asyncio.create_task(self._decide(process, agent_id, line))
                    asked.add_done_callback(_look_at)
                    await asyncio.wait((asked,), timeout=LEASE_S)
                    asked.cancel()

    def _answer(self, call: PendingCall) -> Answer:
        token = str(call.arguments["token"])
        rng = random.Random(f"{self.seed}{token}")
        if call.awaits_client:
            return ToolReturn(call.call_id, f"client {token}")
        match rng.choice(("approve", "approve", "deny", "edit")):
            case "deny":
                return ToolDecision(call.call_id, False, "no")
            case "edit":
                self.world.approved.add(f"{token}e")
                return ToolDecision(call.call_id, True, None, json.dumps({"token": f"{token}e"}))
            case _:
                self.world.approved.add(token)
                return ToolDecision(call.call_id, True)

    async def _cancel(self, process: _Process, run_id: RunId, after: float) -> None:
        await asyncio.sleep(after)
        with contextlib.suppress(Crash, PerdureError):
            self.cancels += 1
            await process.runner.cancel(run_id)

    async def _keep_processes(self) -> None:
        """Start processes again some time after they died; sometimes two work on the file."""
        while True:
            await asyncio.sleep(self.rng.uniform(0.1, 5))
            if not self.processes or (len(self.processes) < 2 and self.rng.random() < 0.2):
                await self.start_process()

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
            if self.processes:
                process = self.rng.choice(self.processes)
                # In a task of its own, which goes down with its process.
                asked = asyncio.create_task(
                    reset_conversations(
                        agent_id, rng.choice((None, 0, 1, 2)), process.ports, author=OUTSIDE, rows_a_step=2
                    )
                )
                asked.add_done_callback(_look_at)
                await asyncio.wait((asked,), timeout=LEASE_S)
                asked.cancel()
                if asked.done() and not asked.cancelled():
                    with contextlib.suppress(Crash, PerdureError):
                        self.resets += len(asked.result())

    async def _settle(self, agent_id: AgentId) -> None:
        """No more faults: what is left must come to its end, the next message be answered, and every promise hold."""
        for process in list(self.processes):
            self.struck += process.faults.struck
            process.faults.heal()
        process = await self.start_process()
        process.faults.heal()
        person = asyncio.create_task(self._decide_for_ever(agent_id))
        for line in (0, 1, 2):
            text = f"last{line} m"
            self.sent.append(text)
            try:
                async with asyncio.timeout(PATIENCE_S):
                    if not await self._attempt(process, agent_id, line, text, None):
                        raise Violation(f"{text!r} was not answered")
            except TimeoutError as error:
                raise Violation(f"{text!r} was not answered in {PATIENCE_S:.0f} virtual seconds") from error
            if left := await process.store.read(lambda tx: tx.resets.unfinished()):
                raise Violation(f"the resets of {left} are not carried out")
            answer = (await process.store.read(last_message, agent_id, line)).text
            if answer != f"done last{line}":
                raise Violation(f"{text!r} was answered with {answer!r}")
        person.cancel()
        async with asyncio.timeout(PATIENCE_S):
            while await process.store.read(unended, agent_id):  # noqa: ASYNC110
                await asyncio.sleep(1)  # virtual: it costs nothing
        await process.store.read(check_agent, agent_id, sent=self.sent, requests=self.world.requests)
        for (run_id, call_id), count in self.world.effects.items():
            if count > 1:
                raise Violation(f"a tool that must not run twice ran {count} times for {call_id} of {run_id}")
        for token, count in self.world.guarded.items():
            if count > 1 or token not in self.world.approved:
                raise Violation(f"a guarded tool ran {count} times with {token}, of which {self.world.approved} may")
        for running in list(self.processes):
            with contextlib.suppress(Crash):  # a fault that a task of its own had come to before the others were healed
                await running.runner.close()
                await running.store.close()


_TEMPLATE: Path | None = None


def simulate(seed: int, *, rates: FaultRates | None = None, on_end: Callable[[Path], None] | None = None) -> Report:
    """Run the history of this seed. Raises: Violation: a promise was broken; the message names the seed."""
    with tempfile.TemporaryDirectory(prefix="perdure-simulation-") as folder:
        path = Path(folder) / "perdure.db"
        _from_template(path)
        try:
            report = run_virtually(_Simulation(seed, path, rates or FaultRates()).run())
        except Violation as violation:
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
