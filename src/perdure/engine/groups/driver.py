"""Drives one turn of a group, under a lease, from where its log stands to its stop reason."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from perdure.core.errors import LeaseLost, NotFound, PerdureError, StoreClosed, StoreError
from perdure.core.events import StoredEvent
from perdure.core.groups.group import GroupTurn, Speaker
from perdure.core.incoming.backoff import backoff_s
from perdure.core.runs import Run
from perdure.engine.groups.log import GroupLog, LiveSpeech, LiveTurn, load_group_log
from perdure.engine.groups.next_action import Finish, Speak, next_action
from perdure.engine.groups.speeches import (
    Outcome,
    PriceOf,
    Refused,
    begin_speech,
    find_run,
    record_speeches,
)
from perdure.engine.groups.units import finish_turn
from perdure.engine.ports import Ports, SendSettings
from perdure.engine.run.interrupts import to_the_end
from perdure.engine.run.runner import Runner
from perdure.storage.tx import Tx

CANCEL_S = 5.0
"""How long a run has to end after its time-out, until it is left alone."""


RECORDED_AT_ONCE = 10
"""How many speeches that have ended one transaction appends to the transcript."""


class TurnDriver:
    """Drives a claimed turn."""

    def __init__(
        self, turn: GroupTurn, ports: Ports, runner: Runner, settings: SendSettings, price_of: PriceOf, live: LiveTurn
    ) -> None:
        self._turn, self._ports, self._runner, self._settings = turn, ports, runner, settings
        self._price_of, self._live = price_of, live
        self._open: dict[int, Run] = {}
        self._is_cancelled = False

    async def run(self) -> None:
        """Drive the turn to its end. Raises: LeaseLost, StoreError; NotFound: the group was deleted, and what had begun
        is cancelled."""
        work, beats = asyncio.create_task(self._work()), asyncio.create_task(self._beat())
        try:
            await asyncio.wait((work, beats), return_when=asyncio.FIRST_COMPLETED)
            (work if work.done() else beats).result()
        except (LeaseLost, NotFound):
            if not await self._ports.store.read(_is_there, self._turn):
                await self.cancel()
            raise
        finally:
            for task in (work, beats):
                task.cancel()
            await asyncio.gather(work, beats, return_exceptions=True)
            self._live.give_up()

    async def cancel(self) -> None:
        """Stop the runs of the turn that go on; the turn itself ends once they have."""
        self._is_cancelled = True
        for run in list(self._open.values()):
            await self._stop(run)

    async def _beat(self) -> None:
        """Extend the lease for ever, and look whether the turn was cancelled elsewhere. Raises: LeaseLost, NotFound."""
        settings = self._ports.settings
        while True:
            await asyncio.sleep(settings.beat_s)
            until = self._ports.clock.now() + timedelta(seconds=settings.lease_s)
            with contextlib.suppress(StoreError):  # the lease outlives several beats
                stored = await self._ports.store.write(_extend_lease, self._turn, until)
                if stored.cancel_requested:
                    await self.cancel()

    async def _work(self) -> None:
        """Do what comes next, until the turn has ended."""
        store, turn = self._ports.store, self._turn
        while True:
            log = await store.read(load_group_log, turn.group_id, turn.seq)
            action = next_action(log)
            if isinstance(action, Finish):
                open_speech = await store.read(_find_open, log) if action.reason == "cancelled" else None
                if open_speech is None:
                    await to_the_end(store.write(finish_turn, turn, action, self._ports.clock.now()))
                    self._live.pulse.fire()
                    return
                self._is_cancelled, action = True, open_speech
            await self._speak(action)

    async def _speak(self, action: Speak) -> None:
        """Have these agents speak, and append what they say in the order of their places."""
        places = asyncio.Semaphore(self._settings.agent_sends_at_once)
        tasks = [asyncio.create_task(self._have_spoken(one, action.seen_seq, places)) for one in action.speakers]
        try:
            spoken = 0
            while spoken < len(tasks):
                await asyncio.wait((tasks[spoken],))
                ended = [task.result() for task in itertools.takewhile(asyncio.Task.done, tasks[spoken:])]
                speeches = list(zip(action.speakers[spoken:], ended[:RECORDED_AT_ONCE], strict=False))
                await to_the_end(
                    self._ports.store.write(
                        record_speeches,
                        self._turn,
                        speeches,
                        action.seen_seq,
                        ports=self._ports,
                        price_of=self._price_of,
                    )
                )
                spoken += len(speeches)
                for speaker, _ in speeches:
                    self._live.end(speaker.place)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _have_spoken(self, speaker: Speaker, seen_seq: int, places: asyncio.Semaphore) -> Outcome:
        """Have one agent speak, and wait until it has. Raises: StoreError."""
        async with places:
            begun = await begin_speech(self._turn, speaker, seen_seq, self._ports, self._runner)
            if isinstance(begun, Refused):
                return Outcome(problem=begun.reason, awaits_approval=begun.awaits_approval)
            run = self._open[speaker.place] = begun.run
            live = self._live.open(speaker.place, run)
            if self._is_cancelled:
                await self._stop(run)
            outcome = await self._wait(speaker, run, begun.events, live)
            live.end()
            del self._open[speaker.place]  # one that was left before may have to be cancelled yet
            return outcome

    async def _wait(self, speaker: Speaker, run: Run, events: Sequence[StoredEvent], live: LiveSpeech) -> Outcome:
        """Wait for the end of a run: of one that speaks beside others, for a limited time since it began."""
        limit_s = None
        if self._turn.plan is not None and self._turn.plan.kind == "supervisor" and speaker.task == "speak":
            passed = (self._ports.clock.now() - run.created_at).total_seconds()
            limit_s = max(0.0, self._settings.agent_reply_s - passed)
        try:
            async with asyncio.timeout(limit_s):
                return await self._follow(run, events, live)
        except TimeoutError:
            await self._stop(run)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(CANCEL_S):
                    await self._follow(run, (), live)
            return Outcome(run=run, problem=f"it did not answer within {self._settings.agent_reply_s:g} s")

    async def _follow(self, run: Run, known: Sequence[StoredEvent], live: LiveSpeech) -> Outcome:
        """Pass on the events of a run until it has ended. Raises: StoreClosed."""
        failures = 0
        while True:
            try:
                async with contextlib.aclosing(self._runner.follow(run, after=live.last_seq, known=known)) as sent:
                    async for one in sent:
                        live.add(one)
                return Outcome(run=run)
            except NotFound:
                return Outcome(run=run, problem="it was deleted while it spoke")
            except StoreClosed:
                raise
            except PerdureError:  # this process gave the run up; it is taken up again
                failures, known = failures + 1, ()
                await asyncio.sleep(backoff_s(failures, first_s=0.2, most_s=5.0))

    async def _stop(self, run: Run) -> None:
        """Cancel a run, if it is there still."""
        with contextlib.suppress(NotFound):
            await self._runner.cancel(run.id)


def _extend_lease(tx: Tx, turn: GroupTurn, until: datetime) -> GroupTurn:
    return tx.group_turns.keep_lease(turn, until=until)


def _is_there(tx: Tx, turn: GroupTurn) -> bool:
    """Whether the group was not deleted."""
    try:
        tx.groups.get(turn.group_id)
    except NotFound:
        return False
    return True


def _find_open(tx: Tx, log: GroupLog) -> Speak | None:
    """The speeches of a cancelled turn whose runs have begun: they are ended and told of before the turn ends."""
    action = next_action(replace(log, turn=replace(log.turn, cancel_requested=False)))
    if isinstance(action, Finish):
        return None
    begun = tuple(speaker for speaker in action.speakers if find_run(tx, log.turn, speaker) is not None)
    return replace(action, speakers=begun) if begun else None
