"""Callbacks: the end of a run or batch is reported to the URL that its request named, at least once and at most `TRIES`
times.

Its row says when the next try is due, so a process that dies leaves its reports to the next one. A try counts
before it is made: a report that was sent may be sent again, but none without end.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any

from perdure.core.errors import AddressRefused, NotFound, StoreClosed, StoreError, ToolError
from perdure.core.ids import BatchId, RunId
from perdure.core.runs import Callback, DueCallback
from perdure.engine.ports import Ports
from perdure.storage.tx import Tx

log = logging.getLogger(__name__)

WAITS_S = (10.0, 60.0, 300.0, 1_800.0)
"""How long after each failed try the next one is made."""
TRIES = len(WAITS_S) + 1
TRY_S = 60.0
"""How long a try belongs to the process that began it: longer than any takes."""
LOOK_S = 5.0
"""How often a process looks for reports that others have left."""
AT_ONCE = 16

_TRANSIENT = frozenset({408, 425, 429})


class Callbacks:
    """Reports the ends of runs and batches until the store is closed."""

    def __init__(self, ports: Ports) -> None:
        self._ports, self._wake = ports, asyncio.Event()

    def wake(self) -> None:
        """Look now: a run has ended."""
        self._wake.set()

    async def work(self) -> None:
        """Send what is due, now, when a run has ended, and from time to time."""
        while True:
            self._wake.clear()
            try:
                await self.send_due()
            except StoreClosed:
                return
            except StoreError as error:
                log.warning("reports wait: %s", error)
            except Exception:  # whatever it is, it must not end the worker
                log.exception("sending reports stopped at a defect")
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LOOK_S):
                    await self._wake.wait()

    async def send_due(self) -> None:
        """Send the reports that are due, some at a time. Raises: StoreError."""
        ports = self._ports
        while dues := await ports.store.read(lambda tx: tx.callbacks.list_due(at=ports.clock.now(), limit=AT_ONCE)):
            await asyncio.gather(*(self._send(due) for due in dues))

    async def _send(self, due: DueCallback) -> None:
        """Send one report, if no other process does. Raises: StoreError."""
        now = self._ports.clock.now()
        claimed = await self._ports.store.write(
            lambda tx: tx.callbacks.put(
                due,
                replace(due.callback, tries=due.callback.tries + 1, sent_at=now),
                due_at=now + timedelta(seconds=TRY_S),
            )
        )
        if claimed is None:
            return
        callback, again = await self._try(claimed)
        wait_s = WAITS_S[callback.tries - 1] if again and callback.tries < TRIES else None
        due_at = None if wait_s is None else self._ports.clock.now() + timedelta(seconds=wait_s)
        await self._ports.store.write(lambda tx: tx.callbacks.put(claimed, callback, due_at=due_at))

    async def _try(self, due: DueCallback) -> tuple[Callback, bool]:
        """The callback after a try, and whether another one may help. Raises: StoreError."""
        callback = due.callback
        if callback.tries > TRIES:  # each of them ended with its process
            return replace(callback, error="the process that sent it stopped each time"), False
        try:
            report = await self._ports.store.read(_report_of, due)
        except NotFound:  # deleted meanwhile
            return callback, False
        try:
            status = await self._ports.send_report(callback, report)
        except ToolError as error:
            again = not isinstance(error, AddressRefused)
            return replace(callback, status_code=None, error=str(error)), again
        except Exception as error:
            log.exception("the report of %s stopped at a defect", due.id)
            return replace(callback, status_code=None, error=f"{type(error).__name__}: {error}"), True
        if 200 <= status < 300:
            return replace(callback, status_code=status, error=None), False
        again = status in _TRANSIENT or status >= 500
        return replace(callback, status_code=status, error=f"the answer had the status {status}"), again


def _report_of(tx: Tx, due: DueCallback) -> Mapping[str, Any]:
    """The report of what has ended. Raises: NotFound."""
    if due.owner == "batches":
        batch = tx.batches.get(BatchId(due.id))
        ended_at = batch.ended_at and batch.ended_at.isoformat()
        return {"job_id": batch.id, "status": batch.status, "completed_at": ended_at}
    run = tx.runs.get(RunId(due.id))
    return {
        "run_id": run.id,
        "agent_id": run.key.agent_id,
        "status": run.status,
        "stop_reason": run.stop_reason,
        "completed_at": run.ended_at and run.ended_at.isoformat(),
    }
