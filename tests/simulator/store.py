"""The store of a simulated process: transactions that are judged, shared commits, and faults around them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar, cast

from perdure.engine.run.log import load_run_log
from perdure.engine.run.progress import Progress
from perdure.storage.tx import Tx
from perdure.testing.inline_store import FaultPoint, InlineStore
from tests.simulator.audit import Audit, Facts
from tests.simulator.invariants import Violation
from tests.simulator.virtual_time import VirtualClock

__all__ = ["SimulatedStore"]

P = ParamSpec("P")
T = TypeVar("T")


@dataclass
class _Job:
    unit: Callable[[Tx], Any]
    done: bool = False
    result: Any = None
    raised: BaseException | None = None


class SimulatedStore(InlineStore):
    """As the real stores, it carries a transaction out even when its caller was interrupted meanwhile, and units that
    come while another is about to be committed share the next commit.

    Args:
        turn: whose turn it is to write to the file, of all its processes.
        found: called with each violation: the runner would take it for a defect of one run and go on.
    """

    def __init__(
        self,
        path: Path,
        *,
        owner: str,
        turn: asyncio.Lock,
        facts: Facts,
        found: Callable[[Violation], None],
        fault: Callable[[FaultPoint], Awaitable[None]],
    ) -> None:
        super().__init__(path, fault=fault)
        self.share_turn(turn)
        self._found = found
        self._audit = Audit(self._connection, owner, facts, now=VirtualClock().now)
        self._waiting: list[_Job] = []
        self._reset_by: set[asyncio.Task[Any]] = set()
        self._writing: set[asyncio.Task[Any]] = set()
        self._unfinished: set[asyncio.Task[Any]] = set()

    async def read(self, unit: Callable[Concatenate[Tx, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        self._check_finished()
        return await super().read(unit, *args, **kwargs)

    async def write(self, unit: Callable[Concatenate[Tx, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        self._check_finished()
        committed: list[Callable[[], None]] = []
        task = asyncio.current_task()
        assert task is not None

        def judged(tx: Tx) -> T:
            try:
                with self._audit.of(tx) as facts:
                    result = unit(tx, *args, **kwargs)
                if self._audit.reset and task in self._reset_by:
                    raise Violation(f"{task.get_coro()} resets in more than one transaction")
                if isinstance(result, Progress) and result.log != load_run_log(tx, result.log.run.key):
                    raise Violation(f"{unit!r} gave back another log than it left in the store")
            except Violation as violation:
                self._found(violation)
                raise
            committed[:] = facts
            if self._audit.reset:
                committed.append(partial(self._reset_by.add, task))
            return result

        writing = asyncio.ensure_future(self._write(_Job(judged), committed))
        writing.add_done_callback(lambda done: done.cancelled() or done.exception())  # its caller may be gone
        self._writing.add(writing)
        writing.add_done_callback(self._writing.discard)
        self._unfinished.add(task)
        writing.add_done_callback(lambda _: self._unfinished.discard(task))
        return cast(T, await asyncio.shield(writing))

    async def close(self) -> None:
        """Finish what was accepted, then close."""
        await asyncio.gather(*self._writing, return_exceptions=True)
        await super().close()

    async def _write(self, job: _Job, committed: list[Callable[[], None]]) -> Any:
        await self._fault("write")
        self._waiting.append(job)
        async with self._turn:
            if not job.done:
                await self._write_waiting()
        if job.raised is not None:
            try:
                raise job.raised
            finally:
                job.raised = None
        for fact in committed:
            fact()
        await self._fault("committed")
        self._check_open()
        return job.result

    async def _write_waiting(self) -> None:
        """All that wait in one transaction, as the writer's thread does it."""
        jobs, self._waiting = self._waiting, []
        try:
            outcomes = await self._transact([job.unit for job in jobs])
        except BaseException as error:
            for job in jobs:
                job.done, job.raised = True, error
            return
        for job, (result, raised) in zip(jobs, outcomes, strict=True):
            job.done, job.result, job.raised = True, result, raised

    def _check_finished(self) -> None:
        """Who was interrupted over a transaction goes on only when it has come to its end: it is carried out all the
        same, and until then its rows are missing in what is read."""
        task = asyncio.current_task()
        if task in self._unfinished and not task.cancelling():
            violation = Violation(f"{task.get_coro()} went on before its transaction had come to its end")
            self._found(violation)
            raise violation
