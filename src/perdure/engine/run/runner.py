"""The runner: accepts requests, drives runs in tasks of their own, and lets any number of readers follow them.

A run is driven by the process that accepted it; another one takes it over when that process is gone. Nothing here is
needed to go on after a crash: everything is read from the store again.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import defaultdict
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial

from perdure.core.agents import Agent
from perdure.core.conversations import ConversationKey
from perdure.core.errors import LeaseLost, PerdureError, StoreClosed, StoreError
from perdure.core.events import Delta, RunEnded, StepAbandoned, StoredEvent
from perdure.core.ids import MessageId, RunId, StepId
from perdure.core.incoming.principals import LOCAL, current_principal
from perdure.core.runs import Batch, Failure, Run, RunKey
from perdure.core.tasks import end_tasks, to_the_end, wait_for
from perdure.core.telemetry import current_run
from perdure.engine.budget import check_key_size, with_key_budget, within
from perdure.engine.compaction.after_runs import AfterRuns, CallbackWorker
from perdure.engine.conversations.reset import delete_unused, finish_removals
from perdure.engine.log.run_log import Progress, RunLog
from perdure.engine.ports import Ports, with_next_model
from perdure.engine.process import RunReleased, run_of_topic
from perdure.engine.records.leases import is_dead
from perdure.engine.records.run_request import RunRequest, check_request
from perdure.engine.run.accept import Accepted, accept_now, claim_run
from perdure.engine.run.batch import accept_batch, named_request
from perdure.engine.run.deltas import PAGE, events_after, fail, request_cancel, turn_of, unended, withdraw
from perdure.engine.run.hook_points import at_run_end, at_run_start
from perdure.engine.run.loop import run as run_loop
from perdure.engine.workers.background import Pauses
from perdure.engine.workers.worker import Worker

log = logging.getLogger(__name__)

STORE_TRIES = 5
STORE_PAUSE_S = 0.1  # doubled before each try of a store that failed
RECOVERY_S = 2.0
UNUSED_S = 3_600.0
BATCH_RUNS = 16  # runs of batches that a process answers at once; more would only meet the limits of providers

HELD = 1_000
"""So many publications are held for a reader of a run who does not take them."""

Publication = StoredEvent | Delta | PerdureError | None
"""An event, a preview, why this process gave the run up; None when it no longer drives it."""


class Runner:
    """Drives the runs of one process.

    Args:
        is_dead: whether a lease owner is known to be gone.
    """

    def __init__(self, ports: Ports, *, is_dead: Callable[[str], bool] = is_dead) -> None:
        self._ports, self._is_dead = ports, is_dead
        self._callbacks = CallbackWorker(ports)
        self._foreground, settings = ports.background.foreground, ports.settings
        ports.background.watch(lambda: (*self._accepting.values(), *self._drivers))
        self.pauses = Pauses(
            ports.background.is_busy, quiet_s=settings.extraction_quiet_s, wait_s=settings.extraction_wait_s
        )
        self.after_runs = AfterRuns(ports)
        # What readers of runs have not taken yet, and the messages of which they get no more previews.
        self._readers: defaultdict[RunKey, list[tuple[asyncio.Queue[Publication], set[MessageId]]]] = defaultdict(list)
        # Of each conversation the runs to drive, by number, with what `accept` began of them.
        self._wanted: dict[ConversationKey, dict[int, Progress | None]] = {}
        self._drivers: dict[ConversationKey, asyncio.Task[None]] = {}
        self._accepting: dict[asyncio.Task[Accepted], ConversationKey] = {}
        recovery = Worker("taking over unfinished runs", self.recover, RECOVERY_S)
        self._workers = (
            recovery,
            Worker("removing what was deleted or reset", partial(finish_removals, ports), RECOVERY_S),
            Worker("removing unused ephemeral conversations", partial(delete_unused, ports), UNUSED_S),
            self._callbacks,
        )
        # Conversations with runs of batches: those that wait for a place, the longest first, and those that have one.
        self._batch_lines: dict[ConversationKey, None] = {}
        self._places: set[ConversationKey] = set()
        self._closing = False
        # Set when other processes may have ended what stands before runs of this one.
        self._moves = asyncio.Event()
        ports.signals.on("run", self._hear_run)
        ports.signals.on("runs", recovery.wake)

    async def start(self) -> None:
        """Start the workers that take up runs of other processes, now and from time to time."""
        for worker in self._workers:
            await worker.start()

    @property
    def tasks(self) -> list[asyncio.Task[None]]:
        """All tasks of this runner."""
        background = [task for worker in self._workers for task in worker.tasks]
        return [*background, *self._drivers.values(), *self.after_runs.tasks]

    async def drain(self, within_s: float) -> None:
        """Begin no run any more, and return when none is under way here, at the latest after so many seconds.

        What waits is free for other processes at once. A run under way may begin further steps in the first half of the
        time; then it is given back between two steps. `close` gives back what is left.
        """
        self._ports.drain.begin(within_s)
        self._ports.background.end()
        for worker in self._workers:
            await worker.close()
        with contextlib.suppress(StoreError):
            await self._ports.store.write(lambda tx: tx.runs.release(self._ports.owner, queued=True))
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                while tasks := [*self._accepting, *self._drivers.values()]:
                    await asyncio.wait(tasks)

    async def close(self) -> None:
        """Stop driving. Runs that have not ended go on in another process, or when this one starts again."""
        self._closing = True  # from here on no run is begun
        for worker in self._workers:
            await worker.close()
        await end_tasks(*self._drivers.values())
        self._ports.background.end()
        await self.after_runs.close()
        await asyncio.gather(*self._accepting, return_exceptions=True)
        # What this process held is free at once, also for the same process when it opens the store again.
        with contextlib.suppress(StoreError):
            await self._ports.store.write(lambda tx: tx.runs.release(self._ports.owner))

    @contextlib.contextmanager
    def person(self) -> Iterator[None]:
        """Answer a person within the block, by other means than a run: what nobody waits for is done later."""
        self.pauses.note_begin()
        try:
            with self._foreground.person():
                yield
        finally:
            self.pauses.note_end()

    async def accept(self, request: RunRequest) -> Accepted:
        """Accept a request (T1 to T3) and drive its run. Raises: EmptyMessage, MessageTooLarge, InvalidInput, NotFound,
        Conflict, ModelNotFound, HookBlocked, StoreError; StoreClosed: this process is about to end."""
        if not request.yields:
            self._foreground.note_begin()
        request = await self.check(request)
        self.pauses.note_begin()
        # In a task of its own: a caller who leaves early must not leave a run behind that nobody drives.
        task = asyncio.create_task(accept_now(request, self._ports))
        self._accepting[task] = (request.agent_id, request.conversation_seq)
        try:
            await asyncio.shield(task)
        finally:
            # Driven only now: the caller follows the run at once, and must not miss its first previews.
            if task.done():
                self._drive_accepted(task)
            else:
                task.add_done_callback(self._drive_accepted)
        return task.result()

    def caller(self) -> RunId | None:
        """Return the run whose tool or hook runs this code; None: it is of none that this process drives."""
        run = current_run.get()
        wanted = () if run is None else self._wanted.get((run.key.agent_id, run.conversation_seq), ())
        return run.id if run is not None and run.key.seq in wanted else None

    async def accept_batch(self, batch: Batch, requests: Sequence[RunRequest]) -> Batch:
        """Accept the requests of a batch, all or none, and drive its runs, some at a time. A batch that is there
        already is returned as it is. Raises: RequestRefused, StoreError; StoreClosed: this process is about to end."""
        checked: list[RunRequest] = []
        for place, request in enumerate(requests):
            with named_request(place):
                checked.append(await self.check(request))
        self._foreground.note_begin()
        inputs = self._ports.inputs()
        # If the caller leaves now, `recover` takes the runs up.
        batch, runs = await to_the_end(
            self._ports.store.write(accept_batch, replace(batch, created_at=inputs.now), checked, inputs)
        )
        for run in runs:
            if not run.ended:
                self._want(run)
        return batch

    def drive(self, run: Run) -> None:
        """Drive a run that another unit added; as a batch's, it waits for a place, so that not all start at once."""
        self._foreground.note_begin()
        self._want(run, waits=True)

    async def check(self, request: RunRequest) -> RunRequest:
        """Check a request, and return it with what hooks add and the limits that hold. Raises: as `accept`."""
        ports, options = self._ports, request.options
        check_request(request, ports.settings)
        if (principal := current_principal.get()) is not LOCAL:
            if not options.hops:  # an agent's words to another one are not those of the key's user
                check_key_size(request.chars)
            options = with_key_budget(options, principal)
        if (options := within(options, ports.settings.run_budget)) is not request.options:
            request = replace(request, options=options)
        if ports.hooks.points & {"run_start", "conversation_start"}:
            request = await at_run_start(request, ports)
        # What a run under way asks of another agent is let in.
        if self._closing or (ports.drain.is_on and options.origin is None):
            raise StoreClosed("this process is about to end: send it again in a moment")
        return request

    def _drive_accepted(self, task: asyncio.Task[Accepted]) -> None:
        """Have the run of an accepted request driven. Of a refused one the error counts as retrieved."""
        del self._accepting[task]
        if not task.cancelled() and task.exception() is None and not task.result().run.ended:
            self._want(task.result().run, task.result().begun)

    async def follow(
        self, run: Run, *, after: int = 0, known: Sequence[StoredEvent] = ()
    ) -> AsyncGenerator[StoredEvent | Delta, None]:
        """Yield every event of a run with a number above `after`, in order and without gaps, until it has ended; and
        previews where this process drives it. Leaving early does not stop the run.

        Args:
            known: events that need not be loaded, the first of the run among them.
        Raises: StoreError: this process could not go on with the run; it is taken up again later; NotFound: it was
            deleted with its agent.
        """
        queue: asyncio.Queue[Publication] = asyncio.Queue()
        readers, reader = self._readers[run.key], (queue, set[MessageId]())
        readers.append(reader)
        conversation_key, last_seq, abandoned = (run.key.agent_id, run.conversation_seq), after, set[StepId]()
        try:
            events = known or await self._load_events(run.key, after)
            while True:
                fresh = [event for event in events if event.seq > last_seq]
                for event in fresh:
                    last_seq = event.seq
                    if isinstance(event.event, StepAbandoned):
                        abandoned.add(event.event.step_id)
                    yield event
                # The last one counts: a run that stopped for approval ends once more when it is cancelled.
                if run.ended or (fresh and isinstance(fresh[-1].event, RunEnded)):
                    return
                # Before a driver ends it publishes None about each run that it worked for.
                is_driven = conversation_key in self._drivers and run.key.seq in self._wanted.get(conversation_key, ())
                publication: Publication = None  # it is time to look at what is stored
                if is_driven or not queue.empty():  # a timer for each piece of an answer would take longer than it
                    publication = await queue.get()
                else:
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(self._ports.signals.look_s(self._ports.settings.poll_s)):
                            publication = await queue.get()
                events = ()
                if isinstance(publication, Delta):
                    if publication.step_id not in abandoned:  # a process that lost the run may still hear its model
                        yield publication
                elif isinstance(publication, PerdureError):
                    raise publication
                elif publication is not None and publication.seq <= last_seq + 1:
                    events = (publication,)
                else:  # another process drives the run, or the events since `last_seq` came before this reader
                    events = await self._load_events(run.key, last_seq)
        finally:
            readers.remove(reader)
            if not readers:
                self._readers.pop(run.key, None)

    async def cancel(self, run_id: RunId) -> Run:
        """Ask a run to stop, and those of other agents that it waits for; return the run as it then stands. One that
        waits behind another ends at once, without its messages. An ended run stays as it is; but if it had stopped at
        calls that still wait for an answer, they are given up. Raises: NotFound, StoreError."""
        cancelled = await self._ports.store.write(request_cancel, run_id, self._ports.inputs())
        for run, events, following in cancelled:
            if following is not None:
                self._want(following)
            self._publish(run.key, events)
            if (interrupt := self._ports.interrupts.get(run.key)) is not None:
                interrupt.fire()
            wanted = self._wanted.get((run.key.agent_id, run.conversation_seq), {})
            if run.key.seq in wanted:
                wanted[run.key.seq] = None  # what `accept` began does not know of this yet
        self._callbacks.wake()  # of one that has ended without its turn
        return cancelled[0][0]

    async def withdraw(self, run_id: RunId) -> str:
        """Take back a message that waits behind a run; return its text. Raises: NotFound, Conflict, StoreError."""
        run, events, text = await self._ports.store.write(withdraw, run_id, self._ports.inputs())
        self._publish(run.key, events)
        return text

    async def recover(self) -> None:
        """Take over runs that nobody drives any more, as far as their models can be reached from here."""
        now = self._ports.clock.now()
        for run, agent in await self._ports.store.read(unended, now=now):
            free = run.lease_until is None or run.lease_until < now or self._is_abandoned(run)
            conversation_key = (run.key.agent_id, run.conversation_seq)
            if free and conversation_key not in self._drivers and self._can_run(agent):
                self._want(run)

    def _can_run(self, agent: Agent) -> bool:
        """Return whether this process can reach the agent's model."""
        return self._ports.models.find(with_next_model(agent, self._ports.models).model) is not None

    def _hear_run(self, rest: str) -> None:
        """Look at the run that a signal of another process is about, or at all runs."""
        heard = run_of_topic(rest)
        for key in [*self._readers] if heard is None else [heard]:
            self._publish(key, (None,))
        for key, interrupt in self._ports.interrupts.items():
            if heard in (None, key):
                interrupt.hear()
        moves, self._moves = self._moves, asyncio.Event()
        moves.set()

    def _publish(self, key: RunKey, publications: Sequence[Publication]) -> None:
        """Send to the readers of a run; who listens too late reads the stored events. Who does not take what is held
        for him gets the message that is being made without further previews, once it is whole."""
        for queue, cut in self._readers.get(key, ()):
            for publication in publications:
                is_full = queue.qsize() >= HELD
                if isinstance(publication, Delta):
                    if is_full:
                        cut.add(publication.message_id)
                    if publication.message_id in cut:
                        continue
                queue.put_nowait(None if is_full and isinstance(publication, StoredEvent) else publication)

    def _want(self, run: Run, begun: Progress | None = None, *, waits: bool = False) -> None:
        """Note that a run has to be driven here, and start the driver of its conversation.

        Args:
            begun: how far it has come, if it was claimed already.
            waits: it begins when there is a place, as runs of batches do.
        """
        if self._closing:
            return
        conversation_key = (run.key.agent_id, run.conversation_seq)
        wanted = self._wanted.setdefault(conversation_key, {})
        if begun is not None or run.key.seq not in wanted:
            wanted[run.key.seq] = begun
        if conversation_key in self._drivers:
            return
        self._batch_lines[conversation_key] = None
        # Also where it is behind runs of a batch: who waits for it may be one of them.
        if run.batch_id is None and not waits:
            self._start(conversation_key)
        if self._batch_lines:
            self._fill_places()

    def _fill_places(self) -> None:
        """Start the conversations that have waited longest with runs of batches, while there are free places."""
        while self._batch_lines and len(self._places) < BATCH_RUNS and not self._closing:
            conversation_key = next(iter(self._batch_lines))
            self._places.add(conversation_key)
            self._start(conversation_key)

    def _start(self, conversation_key: ConversationKey) -> None:
        """Start to drive a conversation that nobody drives here."""
        del self._batch_lines[conversation_key]
        self._drivers[conversation_key] = asyncio.create_task(self._drive(conversation_key))

    async def _drive(self, conversation_key: ConversationKey) -> None:
        """Work on a conversation until every run that is wanted of it has ended, here or elsewhere."""
        wanted, failures = self._wanted[conversation_key], 0
        try:
            while wanted:
                # A run that goes on with answered calls was begun already, before those that wait.
                seq = min([seq for seq, begun in wanted.items() if begun is not None] or wanted)
                key, moves = RunKey(conversation_key[0], seq), self._moves
                try:
                    begun, wanted[seq] = wanted[seq], None
                    if begun is None and self._ports.drain.is_on:  # left to another process
                        await self._ports.store.write(lambda tx: tx.runs.give_back(key, self._ports.owner))  # noqa: B023
                        wanted.pop(seq, None)
                        continue
                    progress = begun or await self._claim(key) or await self._take_over(key, conversation_key)
                    if progress is not None:
                        ended = await self._run(progress)
                        await self._after_run(ended, conversation_key)
                except StoreClosed:
                    raise
                except StoreError as error:
                    log.warning("driving run %s of %s: %s", seq, conversation_key[0], error)
                    failures += 1
                    if failures == STORE_TRIES:
                        raise
                    await asyncio.sleep(STORE_PAUSE_S * 2**failures)
                    continue
                failures = 0
                if progress is None and seq in wanted:
                    # Not in step with the other processes that wait for the same conversation.
                    pause_s = self._ports.signals.look_s(self._ports.settings.poll_s)
                    await wait_for(moves, pause_s * (0.5 + self._ports.randomness.random()))
        except Exception as error:
            # Whoever waits must hear of it. The runs stay in the store: recovery takes them up again.
            if not isinstance(error, PerdureError):
                log.exception("driving %s stopped at a defect", conversation_key[0])
                error = PerdureError(f"{type(error).__name__}: {error}")
            for seq in wanted:
                self._publish(RunKey(conversation_key[0], seq), (error,))
        finally:
            # No await since the last look at `wanted`, so nothing can have been added that nobody drives.
            del self._drivers[conversation_key], self._wanted[conversation_key]
            self.pauses.note_end()
            self._foreground.note_end()
            self._places.discard(conversation_key)
            self._fill_places()
            for seq in wanted:
                self._publish(RunKey(conversation_key[0], seq), (None,))

    async def _run(self, progress: Progress) -> RunLog:
        """Drive a claimed run to its end, or until it is another process's; return its log. Raises: StoreError."""
        run = progress.log.run
        try:
            return await run_loop(progress, self._ports, partial(self._publish, run.key))
        except LeaseLost:
            return progress.log
        except RunReleased:
            await self._ports.store.write(lambda tx: tx.runs.give_back(run.key, self._ports.owner))
            return progress.log
        except StoreError:
            raise
        except Exception as error:
            log.exception("%s stopped at a defect", run.id)
            ended = await self._give_up(run.key, error)
            self._publish(run.key, ended.events if ended else ())
            if ended is not None and "run_end" in self._ports.hooks.points:
                await at_run_end(ended.log, self._ports)
            return progress.log

    async def _after_run(self, ended: RunLog, conversation_key: ConversationKey) -> None:
        """Forget a run that this process no longer drives, and start the runs that waited behind it."""
        run = ended.run
        self.after_runs.note_run(conversation_key, ended)
        if run.background or run.batch_id is not None:  # only those have callbacks
            self._callbacks.wake()
        self._wanted[conversation_key].pop(run.key.seq, None)
        self._publish(run.key, (None,))
        # Others may have waited behind the calls, or in a batch that was accepted by a process that is gone.
        if run.resumes is not None or run.batch_id is not None:
            turn = await self._ports.store.read(turn_of, run.key, conversation_key)
            if turn.active is not None:
                self._want(turn.active)

    def _is_abandoned(self, run: Run) -> bool:
        """Return whether no process works on a claimed run: its process is dead, or its driver in this one failed."""
        if run.lease_owner != self._ports.owner:
            return run.lease_owner is not None and self._is_dead(run.lease_owner)
        conversation_key = (run.key.agent_id, run.conversation_seq)
        return (
            self._wanted.get(conversation_key, {}).get(run.key.seq) is None
            and conversation_key not in self._accepting.values()
        )

    async def _take_over(self, key: RunKey, conversation_key: ConversationKey) -> Progress | None:
        """Claim the run whose turn it is in a conversation, if the process that held it is gone: an earlier run of the
        queue, or the wanted one. None: another process has it, or it needs no driver."""
        turn = await self._ports.store.read(turn_of, key, conversation_key)
        if turn.run.ended or turn.active is None or turn.waits:  # the answer to calls that wait takes the next one up
            self._wanted[conversation_key].pop(key.seq, None)
            self._publish(key, (None,))
            return None
        if not self._can_run(turn.agent):  # another program's agent: left to it
            return None
        dead_owner = turn.active.lease_owner if self._is_abandoned(turn.active) else None
        return await self._claim(turn.active.key, dead_owner=dead_owner)

    async def _claim(self, key: RunKey, *, dead_owner: str | None = None) -> Progress | None:
        """Claim a run (T2). A run that can't even be begun is ended, or it would stand before every later message."""
        try:
            return await claim_run(key, self._ports, dead_owner=dead_owner)
        except StoreError:
            raise
        except Exception as error:
            log.exception("run %s of %s can't be claimed", key.seq, key.agent_id)
            return await self._give_up(key, error, dead_owner=dead_owner)

    async def _give_up(self, key: RunKey, error: Exception, *, dead_owner: str | None = None) -> Progress | None:
        """End a run that fails in this code, so that the next message is answered. None: another process has it."""
        failure = Failure(kind="internal_error", message=f"{type(error).__name__}: {error}")
        return await self._ports.store.write(fail, key, self._ports.inputs(), dead_owner=dead_owner, failure=failure)

    async def _load_events(self, key: RunKey, after: int) -> Sequence[StoredEvent]:
        """Load the stored events of a run with a number above `after`. Raises: NotFound."""
        events: list[StoredEvent] = []
        while page := await self._ports.store.read(events_after, key, events[-1].seq if events else after):
            events += page
            if len(page) < PAGE:
                break
        return events
