"""The runner: accepts requests, drives runs in tasks of their own, and lets any number of readers follow them.

A run is driven by the process that accepted it; another one takes it over when that process is gone. Nothing here is
needed to go on after a crash: everything is asked of the store again.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Sequence
from datetime import datetime

from perdure.core.errors import LeaseLost, PerdureError, StoreClosed, StoreError
from perdure.core.events import Delta, Event, RunCancelRequested, StoredEvent
from perdure.core.ids import Ids, RunId
from perdure.core.ports import TokenCounter
from perdure.core.runs import Failure, Run, RunKey
from perdure.engine.approvals.answers import give_up_pending
from perdure.engine.conversations.reset import carry_out_left
from perdure.engine.hooks.points import at_run_end, at_run_start
from perdure.engine.ports import Ports, UnitInputs
from perdure.engine.run.accept import Accepted, Request, begin_input, check_input, decode_drafts
from perdure.engine.run.begin import begin_run, claim_run
from perdure.engine.run.finish import end_run
from perdure.engine.run.hub import Hub, Publication, follow
from perdure.engine.run.leases import is_dead
from perdure.engine.run.log import run_log_of
from perdure.engine.run.loop import run as run_loop
from perdure.engine.run.next_action import Finish
from perdure.engine.run.progress import Progress
from perdure.engine.run.views import Line, Views
from perdure.engine.workers.capture import Captures
from perdure.storage.tx import Tx

log = logging.getLogger(__name__)

STORE_TRIES = 5
RECOVERY_S = 5.0
PAGE = 1_000
LOOKED_AT = 10_000  # unended runs in one round of recovery: more than any process leaves, also those of unknown models


class Runner:
    """Runs the runs of one process.

    Args:
        is_dead: whether a lease owner is known to be gone.
    """

    def __init__(self, ports: Ports, *, is_dead: Callable[[str], bool] = is_dead) -> None:
        self._ports, self._is_dead = ports, is_dead
        self._hub, self._views, self._captures = Hub(), Views(), Captures(ports)
        self._wanted: dict[Line, set[int]] = {}
        self._drivers: dict[Line, asyncio.Task[None]] = {}
        self._accepting: Counter[Line] = Counter()
        self._begun: dict[RunKey, Progress] = {}
        self._driven: set[RunKey] = set()
        self._recovery: asyncio.Task[None] | None = None
        self._resets: asyncio.Task[None] | None = None
        self._closing = False
        self._none_accepting = asyncio.Event()
        self._none_accepting.set()

    async def start(self) -> None:
        """Take over what dead processes left, now and from time to time."""
        self._recovery = asyncio.create_task(self._recover_for_ever())

    @property
    def tasks(self) -> list[asyncio.Task[None]]:
        """Everything that this runner has going on."""
        return [*self._driving, *self._captures.tasks]

    @property
    def _driving(self) -> list[asyncio.Task[None]]:
        return [task for task in (self._recovery, self._resets, *self._drivers.values()) if task is not None]

    async def close(self) -> None:
        """Stop driving. Runs that have not ended go on in another process, or when this one starts again."""
        self._closing = True  # from here on nothing is begun, whoever asks
        tasks = self._driving
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._captures.close()
        await self._none_accepting.wait()
        # What this process held is free at once, also for the same process when it opens the store again.
        with contextlib.suppress(StoreError):
            await self._ports.store.write(_release, self._ports.owner)

    async def accept(self, request: Request) -> Accepted:
        """T1 (to T3, where nothing is in the way), and the run is under way.

        Raises: EmptyMessage, MessageTooLarge, InvalidInput, NotFound, Conflict, ModelNotFound, HookBlocked, StoreError;
            StoreClosed: this process is about to end.
        """
        settings = self._ports.settings
        check_input(
            request.drafts,
            limits=settings.limits,
            limit_chars=settings.message_limit_chars,
            max_steps=request.max_steps,
            answers=request.answers is not None,
        )
        if self._ports.hooks.wants("run_start", "conversation_start"):
            request = await at_run_start(request, self._ports)
        if self._closing:
            raise StoreClosed
        line = (request.agent_id, request.conversation_seq)
        self._accepting[line] += 1
        self._none_accepting.clear()
        try:
            accepted = await begin_run(request, self._ports, self._views)
            if accepted.begun is not None:
                self._begun[accepted.run.key] = accepted.begun
            if not accepted.run.ended:
                self._want(accepted.run)
            return accepted
        finally:
            self._accepting[line] -= 1
            if not self._accepting[line]:
                del self._accepting[line]
            if not self._accepting:
                self._none_accepting.set()

    async def follow(
        self, run: Run, *, after: int = 0, known: Sequence[StoredEvent] = ()
    ) -> AsyncGenerator[StoredEvent | Delta, None]:
        """Every event of a run with a number above `after`, in order and without gaps, until it has ended; and previews
        where this process drives it. Leaving early does not stop the run.

        Raises: StoreError: this process could not go on with the run; it is taken up again later; NotFound: it was
        deleted with its agent.
        """

        async def receive() -> Publication:
            if run.key.seq in self._wanted.get((run.key.agent_id, run.conversation_seq), ()):
                return await queue.get()  # the driver ends with a word to everybody whose run it worked for
            try:
                async with asyncio.timeout(self._ports.settings.poll_s):
                    return await queue.get()
            except TimeoutError:
                return None

        with self._hub.listen(run.key) as queue:
            load = functools.partial(self._load_events, run.key)
            async with contextlib.aclosing(
                follow(receive, load, after=after, known=known, ended=run.ended)
            ) as publications:
                async for sent in publications:
                    yield sent

    async def outcome(self, run: Run, *, known: Sequence[StoredEvent] = ()) -> list[StoredEvent]:
        """All events of a run, once it has ended. Raises: as `follow`."""
        return [sent async for sent in self.follow(run, known=known) if isinstance(sent, StoredEvent)]

    async def cancel(self, run_id: RunId) -> Run:
        """Ask a run to stop; the run as it then stands. An ended run is left as it is, but if it had stopped at calls
        that still wait for an answer, they are given up. Raises: NotFound, StoreError."""
        now = self._ports.clock.now()
        ids, counter = self._ports.ids, self._ports.counter
        run, events, following = await self._ports.store.write(
            _request_cancel, run_id, ids=ids, counter=counter, now=now
        )
        if following is not None:
            self._want(following)
        self._hub.publish(run.key, events)
        if (waiting := self._ports.interrupts.get(run.key)) is not None:
            waiting.fire()
        self._begun.pop(run.key, None)  # its log does not know of this yet
        return run

    async def recover(self) -> None:
        """Take over runs that nobody drives any more, as far as their models can be reached from here; and begin to
        carry out what dead processes left of resets, which may take long."""
        now = self._ports.clock.now()
        for run, model in await self._ports.store.read(_unended, now=now):
            free = run.lease_until is None or run.lease_until < now or self._is_left(run)
            if free and run.key not in self._driven and self._ports.models.find(model) is not None:
                self._want(run)
        if self._resets is None or self._resets.done():
            self._resets = asyncio.create_task(self._carry_out_resets())

    async def _carry_out_resets(self) -> None:
        try:
            await carry_out_left(self._ports)
        except StoreClosed:
            return
        except StoreError as error:
            log.warning("carrying out what is left failed: %s", error)
        except Exception:
            log.exception("carrying out what is left stopped at a defect")

    async def _recover_for_ever(self) -> None:
        while True:
            try:
                await self.recover()
            except StoreClosed:
                return
            except StoreError as error:
                log.warning("looking for abandoned runs failed: %s", error)
            except Exception:  # one run that can't even be looked at must not keep the others from being taken over
                log.exception("looking for abandoned runs stopped at a defect")
            await asyncio.sleep(RECOVERY_S)

    def _want(self, run: Run) -> None:
        if self._closing:
            return
        line = (run.key.agent_id, run.conversation_seq)
        self._wanted.setdefault(line, set()).add(run.key.seq)
        if line not in self._drivers:
            self._drivers[line] = asyncio.create_task(self._drive(line))

    async def _drive(self, line: Line) -> None:
        """Work on a conversation until every run that is wanted of it has ended, here or elsewhere."""
        wanted = self._wanted[line]
        try:
            while wanted:
                # One that goes on with answered calls was begun already, before those that wait.
                begun = [seq for seq in wanted if RunKey(line[0], seq) in self._begun]
                key = RunKey(line[0], min(begun or wanted))
                progress = self._begun.pop(key, None) or await self._claim(key, line)
                if progress is None:
                    progress = await self._take_over(key, line)
                if progress is not None:
                    await self._run(progress)
                    parts = self._views.get(line)
                    if parts is None or parts.agent.settings.get("auto_capture"):
                        self._captures.after_run(line)
                    wanted.discard(progress.log.run.key.seq)
                    self._hub.publish(progress.log.run.key, (None,))
                    if progress.log.run.resumes is not None:  # others may have waited behind the calls
                        _, following, _, _ = await self._ports.store.read(_whose_turn, key, line[1])
                        if following is not None:
                            wanted.add(following.key.seq)
                elif key.seq in wanted:
                    # Not in step with the other processes that wait for the same conversation.
                    jitter = 0.5 + self._ports.randomness.random()
                    await asyncio.sleep(self._ports.settings.poll_s * jitter)
        except Exception as error:
            # Whoever waits must hear of it. The runs stay in the store: recovery takes them up again.
            if not isinstance(error, PerdureError):
                log.exception("driving %s stopped at a defect", line[0])
                error = PerdureError(f"{type(error).__name__}: {error}")
            for seq in wanted:
                self._hub.publish(RunKey(line[0], seq), (error,))
        finally:
            # No await since the last look at `wanted`, so nothing can have been added that nobody drives.
            del self._drivers[line], self._wanted[line]
            for seq in wanted:
                self._begun.pop(RunKey(line[0], seq), None)
                self._hub.publish(RunKey(line[0], seq), (None,))

    def _is_left(self, run: Run) -> bool:
        """Whether the holder of a run is known not to work on it: a process that is gone, or this one, when whoever
        asked for the run had left before it was begun."""
        if run.lease_owner != self._ports.owner:
            return run.lease_owner is not None and self._is_dead(run.lease_owner)
        line = (run.key.agent_id, run.conversation_seq)
        return run.key not in self._driven and run.key not in self._begun and line not in self._accepting

    async def _take_over(self, key: RunKey, line: Line) -> Progress | None:
        """Another run stands before the wanted one, or another process holds it: take that one if its holder is
        gone."""
        run, oldest, model, waits = await self._ports.store.read(_whose_turn, key, line[1])
        if run.ended or oldest is None or waits:  # behind calls that wait for an answer: that takes the next one up
            self._wanted[line].discard(key.seq)
            self._hub.publish(key, (None,))
            return None
        if self._ports.models.find(model) is None:  # another program's agent: left to it
            return None
        return await self._claim(oldest.key, line, dead_owner=oldest.lease_owner if self._is_left(oldest) else None)

    async def _claim(self, key: RunKey, line: Line, *, dead_owner: str | None = None) -> Progress | None:
        """T2 and T3. A run that this code can't even begin is ended, or it would stand before every later message."""
        try:
            return await claim_run(key, self._ports, dead_owner=dead_owner)
        except StoreError:
            raise
        except Exception as error:
            log.exception("run %s of %s can't be claimed", key.seq, key.agent_id)
            return await self._give_up(key, error, dead_owner=dead_owner)

    async def _run(self, progress: Progress) -> None:
        """Drive a claimed run to its end, or until it is another process's."""
        run = progress.log.run
        self._driven.add(run.key)
        try:
            for attempt in range(STORE_TRIES):
                try:
                    if attempt:
                        await asyncio.sleep(0.1 * 2**attempt)
                        again = await claim_run(run.key, self._ports, dead_owner=self._ports.owner)
                        if again is None:
                            return
                        progress = again
                    await run_loop(progress, self._ports, self._views, functools.partial(self._hub.publish, run.key))
                    return
                except LeaseLost:
                    return
                except StoreClosed:
                    raise
                except StoreError as error:
                    log.warning("%s: %s", run.id, error)
                    if attempt == STORE_TRIES - 1:
                        raise
                except Exception as error:
                    log.exception("%s stopped by a defect", run.id)
                    ended = await self._give_up(run.key, error)
                    self._hub.publish(run.key, ended.events if ended else ())
                    if ended is not None and self._ports.hooks.wants("run_end"):
                        await at_run_end(ended.log, self._ports)
                    return
        finally:
            self._driven.discard(run.key)

    async def _give_up(self, key: RunKey, error: Exception, *, dead_owner: str | None = None) -> Progress | None:
        """End a run that this code can't go on with, so that the agent's next message is answered. None: it is not this
        process's to end."""
        return await self._ports.store.write(
            _fail,
            key,
            self._ports.inputs(),
            dead_owner=dead_owner,
            failure=Failure(kind="internal_error", message=f"{type(error).__name__}: {error}"),
        )

    async def _load_events(self, key: RunKey, after: int) -> Sequence[StoredEvent]:
        events: list[StoredEvent] = []
        while page := await self._ports.store.read(_events_after, key, events[-1].seq if events else after):
            events += page
            if len(page) < PAGE:
                break
        return events


def _events_after(tx: Tx, key: RunKey, after: int) -> Sequence[StoredEvent]:
    events = tx.events.list(key, after=after, limit=PAGE)
    if not events:
        tx.runs.at(key)  # a run that was deleted with its agent has no more to tell, and no end to wait for
    return events


def _release(tx: Tx, owner: str) -> None:
    tx.runs.release(owner)


def _request_cancel(
    tx: Tx, run_id: RunId, *, ids: Ids, counter: TokenCounter, now: datetime
) -> tuple[Run, Sequence[StoredEvent], Run | None]:
    """The run, what is to be told of it, and the run that may begin now because of it."""
    run = tx.runs.get(run_id)
    if run.ended:
        tx.agents.lock(run.key.agent_id)
        conversation = tx.conversations.at(run.key.agent_id, run.conversation_seq)
        if conversation.pending_run_seq != run.key.seq:
            return run, (), None
        given_up = give_up_pending(tx, conversation, "the request was cancelled", ids=ids, counter=counter, now=now)
        if given_up is None:
            return run, (), None
        return *given_up, tx.runs.active(run.key.agent_id, run.conversation_seq)
    events = tx.events.add(run.key, [RunCancelRequested(run.id)], at=now) if tx.runs.request_cancel(run.key) else ()
    return tx.runs.at(run.key), events, None


def _unended(tx: Tx, *, now: datetime) -> list[tuple[Run, str]]:
    """The oldest unended run of each conversation, with its agent's model; those without a valid lease first."""
    runs = {run.key: run for run in (*tx.runs.claimable(at=now, limit=LOOKED_AT), *tx.runs.held(limit=LOOKED_AT))}
    return [(run, tx.agents.model(run.key.agent_id)) for run in runs.values()]


def _whose_turn(tx: Tx, key: RunKey, conversation_seq: int) -> tuple[Run, Run | None, str, bool]:
    """The run, the one of its conversation whose turn it is, the agent's model, and whether calls wait for an
    answer."""
    conversation = tx.conversations.at(key.agent_id, conversation_seq)
    return (
        tx.runs.at(key),
        tx.runs.active(key.agent_id, conversation_seq),
        tx.agents.model(key.agent_id),
        conversation.pending_run_seq is not None,
    )


def _fail(tx: Tx, key: RunKey, inputs: UnitInputs, *, dead_owner: str | None, failure: Failure) -> Progress | None:
    run = tx.runs.at(key)
    if run.ended:
        return None
    if run.status != "running" or run.lease_owner != inputs.owner:
        claimed = tx.runs.claim(key, owner=inputs.owner, at=inputs.now, until=inputs.now, dead_owner=dead_owner)
        if claimed is None:
            return None
        run = claimed
    events: list[Event] = []
    if run.first_message_seq is None and (waiting := tx.runs.waiting_input(key)) is not None:
        events += begin_input(tx, run, *decode_drafts(waiting), now=inputs.now)
        run = tx.runs.at(key)
    return end_run(tx, run_log_of(tx, run), Finish("error", failure), events, inputs)
