"""The end of a run is reported again and again until it is taken, but not without end."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from perdure import AsyncPerdure
from perdure.core.errors import AddressRefused, ToolError
from perdure.core.runs import Callback, Run
from perdure.engine.compaction.after_runs import TRIES, TRY_S, WAITS_S, CallbackWorker
from perdure.settings import Settings
from perdure.storage.store import Store
from perdure.testing import InlineStore, ScriptedModel
from perdure.testing.clock import FakeClock
from tests.support.library import MODEL

URL = "https://example.com/ended"


class _Killed(BaseException):
    """The process ends here."""


@dataclass
class Receiver:
    """Answers with these statuses or errors, one by one, and then with the last of them."""

    answers: list[Any]
    reports: list[Mapping[str, Any]] = field(default_factory=list)

    async def send(self, callback: Callback, report: Mapping[str, Any]) -> int:
        assert callback.url == URL
        self.reports.append(report)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, BaseException):
            raise answer
        return int(answer)


@dataclass
class Ended:
    """A run that has ended, with a callback, and two processes that report it."""

    run: Run
    store: Store
    clock: FakeClock
    receiver: Receiver
    callbacks: CallbackWorker
    other: CallbackWorker

    async def callback(self) -> Callback:
        found = await self.store.read(lambda tx: tx.runs.get(self.run.id))
        assert found.callback is not None
        return found.callback


@contextlib.asynccontextmanager
async def ended(*answers: Any) -> AsyncIterator[Ended]:
    """An ended run whose report is answered so."""
    settings = replace(Settings(), model=MODEL, embedding="none")
    opening = AsyncPerdure.open(store=InlineStore(), models={MODEL: ScriptedModel()}, settings=settings)
    async with await opening as perdure:
        agent = await perdure.create_agent()
        reply = await agent.send("hi")
        app = perdure.app
        await app.runner.close()
        clock, receiver = FakeClock(), Receiver(list(answers))
        ports = replace(app.ports, clock=clock, send_report=receiver.send)
        run = await app.store.read(lambda tx: tx.runs.get(reply.run_id))
        await app.store.write(lambda tx: tx.callbacks.request(run, Callback(url=URL), at=clock.now()))
        yield Ended(run, app.store, clock, receiver, CallbackWorker(ports), CallbackWorker(ports))


async def test_a_report_that_fails_is_sent_again() -> None:
    """After a while, until it is taken; the run says what became of the last try."""
    async with ended(503, ToolError("no answer"), 204) as it:
        await it.callbacks.send_due()
        assert await it.callback() == Callback(
            url=URL, tries=1, sent_at=it.clock.now(), status_code=503, error="the answer had the status 503"
        )
        await it.callbacks.send_due()
        assert len(it.receiver.reports) == 1  # it is not due yet
        for wait_s in WAITS_S[:2]:
            it.clock.advance(wait_s)
            await it.callbacks.send_due()
        assert await it.callback() == Callback(url=URL, tries=3, sent_at=it.clock.now(), status_code=204)
        it.clock.advance(1e6)
        await it.callbacks.send_due()
        assert len(it.receiver.reports) == 3
        assert it.receiver.reports[0] == {
            "run_id": it.run.id,
            "agent_id": it.run.key.agent_id,
            "status": "completed",
            "stop_reason": "end_turn",
            "completed_at": it.run.ended_at and it.run.ended_at.isoformat(),
        }


@pytest.mark.parametrize(("answer", "tries"), [(500, TRIES), (429, TRIES), (404, 1), (302, 1)])
async def test_tries_are_bounded(answer: int, tries: int) -> None:
    """A receiver that fails is tried some times, one that refuses once."""
    async with ended(answer) as it:
        for _ in range(TRIES + 2):
            await it.callbacks.send_due()
            it.clock.advance(max(WAITS_S))
        assert len(it.receiver.reports) == (await it.callback()).tries == tries


async def test_a_refused_address_is_not_tried_again() -> None:
    async with ended(AddressRefused("10.0.0.1", "it is private")) as it:
        for _ in range(2):
            await it.callbacks.send_due()
            it.clock.advance(max(WAITS_S))
        found = await it.callback()
        assert (len(it.receiver.reports), found.tries, found.status_code) == (1, 1, None)
        assert found.error is not None and "private" in found.error


async def test_a_killed_process_leaves_its_report_to_the_next() -> None:
    """Not while it may still be sending; and not for ever."""
    async with ended(_Killed()) as it:
        for number in range(1, TRIES + 1):
            with pytest.raises(_Killed):
                await it.callbacks.send_due()
            await it.other.send_due()
            assert len(it.receiver.reports) == number
            it.clock.advance(TRY_S)
        await it.other.send_due()
        found = await it.callback()
        assert (len(it.receiver.reports), found.error) == (TRIES, "the process that sent it stopped each time")


async def test_a_report_that_another_process_has_claimed_is_not_sent() -> None:
    """Both have read that it is due; the second finds it taken."""
    async with ended(200) as it:
        dues = await it.store.read(lambda tx: tx.callbacks.list_due(at=it.clock.now(), limit=9))
        for process in (it.callbacks, it.other, it.callbacks):
            for due in dues:
                await process._send(due)
        found = await it.callback()

        assert (len(dues), len(it.receiver.reports)) == (1, 1)
        assert (found.tries, found.status_code, found.error) == (1, 200, None)


async def test_a_deleted_run_is_not_reported() -> None:
    async with ended(200) as it:
        await it.store.write(lambda tx: tx.runs.hide(it.run.key))
        await it.callbacks.send_due()
        assert it.receiver.reports == []
