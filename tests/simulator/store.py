"""The store of a simulated process: it audits transactions, shares commits, and injects faults."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar, cast

from perdure.engine.log.run_log import Progress, run_log_of
from perdure.storage.tx import Tx
from perdure.testing.inline_store import FaultPoint, InlineStore
from tests.simulator.audit import Audit, Facts
from tests.simulator.invariants import Violation
from tests.simulator.virtual_time import VirtualClock

P = ParamSpec("P")
T = TypeVar("T")


@dataclass
class _Job:
    unit: Callable[[Tx], Any]
    done: bool = False
    result: Any = None
    raised: BaseException | None = None


class SimulatedStore(InlineStore):
    """Like the real stores, it finishes a transaction even if its caller is cancelled, and units that arrive during a
    commit share the next one.

    Args:
        turn: the lock of writing to the file, which all processes share.
        report: called with each violation: the runner would take it for a defect of one run and go on.
    """

    def __init__(
        self,
        path: Path,
        *,
        owner: str,
        turn: asyncio.Lock,
        facts: Facts,
        report: Callable[[Violation], None],
        fault: Callable[[FaultPoint], Awaitable[None]],
    ) -> None:
        super().__init__(path, fault=fault)
        self._write_lock = turn
        self._report = report
        self._audit = Audit(self._connection, owner, facts, now=VirtualClock().now)
        self._waiting: list[_Job] = []
        self._resetting_tasks: set[asyncio.Task[Any]] = set()
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

        def audited(tx: Tx) -> T:
            try:
                with self._audit.of(tx) as facts:
                    result = unit(tx, *args, **kwargs)
                if self._audit.reset and task in self._resetting_tasks:
                    raise Violation(f"{task.get_coro()} resets in more than one transaction")
                if isinstance(result, Progress) and result.log != run_log_of(
                    tx, tx.runs.get_by_key(result.log.run.key)
                ):
                    raise Violation(f"{unit!r} gave back another log than it left in the store")
            except Violation as violation:
                self._report(violation)
                raise
            committed[:] = facts
            if self._audit.reset:
                committed.append(partial(self._resetting_tasks.add, task))
            return result

        writing = asyncio.ensure_future(self._write(_Job(audited), committed))
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
        async with self._write_lock:
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
        """Write all waiting units in one transaction, as the writer's thread does."""
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
        """A task that is cancelled during a transaction may use the store again only after the transaction has ended:
        until then its rows are missing in what the task reads."""
        task = asyncio.current_task()
        if task in self._unfinished and not task.cancelling():
            violation = Violation(f"{task.get_coro()} went on before its transaction had come to its end")
            self._report(violation)
            raise violation
