"""The turns of groups in one process: accepted, driven one after the other, and followed by any number of readers.

Nothing here is needed to go on after a crash: what comes next is read from the store again.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from dataclasses import replace
from weakref import WeakValueDictionary

from perdure.app import App
from perdure.core.agents import Agent
from perdure.core.errors import InvalidInput, LeaseLost, NotFound, StoreClosed, StoreError
from perdure.core.events import Delta, StoredEvent
from perdure.core.ids import GroupId
from perdure.core.incoming.principals import current_principal
from perdure.core.runs import NO_OPTIONS, Run
from perdure.core.tasks import end_tasks, to_the_end, wait_for
from perdure.engine.budget import check_key_size, with_key_budget
from perdure.engine.ports import with_next_model
from perdure.engine.records.leases import is_dead
from perdure.engine.records.run_request import check_input
from perdure.engine.workers.background import KeyedWorker
from perdure.engine.workers.worker import Worker
from perdure.features.groups.driver import TurnDriver, find_run
from perdure.features.groups.log import (
    FinishAction,
    GroupLog,
    LiveSpeech,
    LiveTurn,
    SpeakAction,
    load_group_log,
    next_action,
)
from perdure.features.groups.tables import Groups
from perdure.features.groups.units import GroupRequest, accept_turn, cancel_turn, claim_turn, finish_turn
from perdure.features.groups.values import (
    GroupEvent,
    GroupTurn,
    GroupTurnEnded,
    Speaker,
    SpeakerEvent,
    SpeakerFailed,
    SpeakerStarted,
)
from perdure.features.groups.work_tables import GroupTurns
from perdure.storage.tx import Tx

log = logging.getLogger(__name__)

RECOVERY_S = 5.0
STORE_TRIES = 5
WATCH_S = 1.0
"""How long a reader waits for this process's next change until it looks at the store by itself."""


class GroupRunner:
    """Runs the turns of groups in one process. `is_dead`: whether the process that owns a lease is known to be gone."""

    def __init__(self, app: App, *, is_dead: Callable[[str], bool] = is_dead) -> None:
        self._ports, self._runner, self._settings, self._is_dead = app.ports, app.runner, app.settings, is_dead
        self._live: WeakValueDictionary[tuple[GroupId, int], LiveTurn] = WeakValueDictionary()
        self._drivers = KeyedWorker[GroupId]("the turns", self._drive)
        self._driving: dict[tuple[GroupId, int], TurnDriver] = {}
        self._recovery = Worker("taking over turns of groups", self.recover, RECOVERY_S)
        app.ports.signals.on("group_turns", self._recovery.wake)
        self._closing = False

    async def start(self) -> None:
        """Take over what other processes left, now and from time to time."""
        await self._recovery.start()

    @property
    def tasks(self) -> list[asyncio.Task[None]]:
        """All tasks of this object."""
        return [*self._recovery.tasks, *self._drivers.tasks]

    async def close(self) -> None:
        """Stop driving. Turns that have not ended go on in another process, or when this one starts again."""
        self._closing = True
        await end_tasks(*self.tasks)
        with contextlib.suppress(StoreError):
            await self._ports.store.write(lambda tx: tx.of(GroupTurns).release(self._ports.owner))

    async def send(self, request: GroupRequest) -> GroupTurn:
        """Accept a user's message as a turn of the group, and drive it.

        Raises: EmptyMessage, MessageTooLarge, InvalidInput, NotFound, GroupBusy, IdempotencyMismatch, StoreError;
            LimitReached: nobody could speak; StoreClosed: this process is about to end.
        """
        check_input(
            request.drafts,
            self._ports.settings,
            max_steps=request.max_steps,
            idempotency_key=request.idempotency_key,
            if_busy=request.if_busy,
        )
        if any(draft.role != "user" for draft in request.drafts):
            raise InvalidInput("a group takes messages of users only: send them with the role 'user'")
        if self._closing:
            raise StoreClosed
        options = with_key_budget(NO_OPTIONS, current_principal.get())
        request = replace(request, max_steps=request.max_steps or self._settings.max_steps, options=options)
        check_key_size(request.chars)
        turn = await to_the_end(self._ports.store.write(accept_turn, request, self._ports.inputs()))
        if not turn.ended:
            self._start_driving(request.group_id)
        return turn

    def _live_turn(self, turn: GroupTurn) -> LiveTurn:
        """The turn as it runs in this process: one object for its driver and all its readers."""
        return self._live.setdefault((turn.group_id, turn.seq), LiveTurn())

    async def cancel(self, group_id: GroupId, seq: int) -> GroupTurn:
        """Ask a turn to stop, if it has not ended, and return it as it is then. Raises: NotFound."""
        turn = await self._ports.store.write(cancel_turn, group_id, seq, self._ports.clock.now())
        if (driver := self._driving.get((group_id, seq))) is not None:
            await driver.cancel()
        self._live_turn(turn).pulse.fire()
        return turn

    async def follow(self, turn: GroupTurn) -> AsyncGenerator[GroupEvent, None]:
        """All that happens in a turn, from its beginning until it has ended: speaker by speaker, in the order of their
        places, also where several speak at once. Leaving early does not stop the turn.

        Raises: StoreError; NotFound: the group was deleted.
        """
        live = self._live_turn(turn)
        place, has_started = 0, False
        while True:
            changed = live.pulse.next
            state = await self._ports.store.read(load_group_log, turn.group_id, turn.seq)
            if not has_started and (speech := await self._find_speech(state, place, live)) is not None:
                speaker, run, sent = speech
                yield SpeakerStarted(speaker, run)
                with contextlib.suppress(NotFound):  # its agent was deleted
                    async for item in sent:
                        yield SpeakerEvent(speaker, item)
                has_started = True
            elif place in state.places:
                speaker = state.speaker_at(place)
                for entry in state.places[place]:
                    if entry.kind in ("failure", "approval"):
                        yield SpeakerFailed(speaker, entry)
                place, has_started = place + 1, False
            elif state.turn.ended:
                yield GroupTurnEnded(state.turn)
                return
            else:
                here = turn.group_id in self._drivers.keys_at_work
                await wait_for(changed, WATCH_S if here else self._ports.settings.poll_s)

    async def _find_speech(
        self, state: GroupLog, place: int, live: LiveTurn
    ) -> tuple[Speaker, Run, AsyncIterator[StoredEvent | Delta]] | None:
        """The speaker at a place, the run of the speech, and its events and previews; None: it has not begun."""
        if (speaker := _speaker_at(state, place)) is None:
            return None
        if (speech := live.speeches.get(place)) is not None:
            return speaker, speech.run, self._follow_speech(speech)
        run: Run | None = None
        if place in state.places:
            if (run_id := state.places[place][0].run_id) is not None:
                with contextlib.suppress(NotFound):
                    run = await self._ports.store.read(lambda tx: tx.runs.get(run_id))
        elif state.turn.group_id not in self._drivers.keys_at_work:  # a driver here is about to follow it
            run = await self._ports.store.read(find_run, state.turn, speaker)
        return None if run is None else (speaker, run, self._runner.follow(run))

    async def _follow_speech(self, speech: LiveSpeech) -> AsyncIterator[StoredEvent | Delta]:
        """The events and previews of a speech: while this process follows it from there, then from the store."""
        async for item in speech.follow():
            yield item
        if speech.lost:
            async for item in self._runner.follow(speech.run, after=speech.last_seq):
                yield item

    async def recover(self) -> None:
        """Take over turns that nobody drives any more, as far as the models of their agents can be reached from here:
        else an agent would fail that another process can ask."""
        now = self._ports.clock.now()
        for turn, agents in await self._ports.store.read(_list_unended):
            free = turn.lease_until is None or turn.lease_until < now or self._is_abandoned(turn)
            if (
                free
                and turn.group_id not in self._drivers.keys_at_work
                and (turn.cancel_requested or self._can_run(agents))
            ):
                self._start_driving(turn.group_id)

    def _can_run(self, agents: Sequence[Agent]) -> bool:
        """Whether this process can reach the models of all these agents."""
        models = self._ports.models
        return all(models.find(with_next_model(agent, models).model) is not None for agent in agents)

    def _is_abandoned(self, turn: GroupTurn) -> bool:
        """Whether no process works on a claimed turn: its process is dead, or its driver in this one failed."""
        if turn.lease_owner == self._ports.owner:
            return turn.group_id not in self._drivers.keys_at_work
        return turn.lease_owner is not None and self._is_dead(turn.lease_owner)

    def _start_driving(self, group_id: GroupId) -> None:
        """Begin to drive the turns of a group in the background, if that is not done already."""
        if not self._closing:
            self._drivers.start(group_id)

    async def _drive(self, group_id: GroupId) -> None:
        """Drive the turns of a group, one after the other, until none is left."""
        failures = 0
        while failures < STORE_TRIES:  # then recovery takes them up again
            try:
                while (
                    turn := await self._ports.store.read(lambda tx: tx.of(GroupTurns).find_active(group_id))
                ) is not None:
                    if not await self._drive_turn(turn):
                        # Another process has it: not in step with others that wait for the same group.
                        await asyncio.sleep(self._ports.settings.poll_s * (0.5 + self._ports.randomness.random()))
                    failures = 0
                return
            except StoreClosed:
                raise
            except StoreError as error:
                log.warning("driving the turns of %s: %s", group_id, error)
                failures += 1
                await asyncio.sleep(0.1 * 2**failures)

    async def _drive_turn(self, turn: GroupTurn) -> bool:
        """Drive a turn, if it can be claimed; False: it could not, or its end not be stored. Raises: StoreError."""
        ports = self._ports
        is_left = turn.lease_owner is not None and (turn.lease_owner == ports.owner or self._is_dead(turn.lease_owner))
        dead_owner = turn.lease_owner if is_left else None
        key, driver = (turn.group_id, turn.seq), None
        try:
            claimed = await to_the_end(ports.store.write(claim_turn, turn, ports.inputs(), dead_owner=dead_owner))
            if claimed is None:
                return False
            turn = claimed.turn
            driver = self._driving[key] = TurnDriver(turn, ports, self._runner, self._settings, self._live_turn(turn))
            await driver.run()
        except (LeaseLost, NotFound):  # it is another process's, or the group is gone
            return driver is not None
        except StoreError:
            raise
        except Exception as error:
            log.exception("turn %s of %s stopped at a defect", turn.seq, turn.group_id)
            problem = FinishAction("error", f"{type(error).__name__}: {error}")
            try:
                await ports.store.write(finish_turn, turn, problem, ports.clock.now())
            except (LeaseLost, NotFound):  # it was not even claimed
                return False
        finally:
            self._driving.pop(key, None)
        return True


def _speaker_at(state: GroupLog, place: int) -> Speaker | None:
    """Who spoke at a place or comes next there, also in a cancelled turn, where a run may have begun; None: nobody."""
    if place in state.places:
        return state.speaker_at(place)
    if state.turn.plan is None:
        return None
    action = next_action(replace(state, turn=replace(state.turn, cancel_requested=False)))
    speakers = action.speakers if isinstance(action, SpeakAction) else ()
    return next((speaker for speaker in speakers if speaker.place == place), None)


def _list_unended(tx: Tx) -> list[tuple[GroupTurn, list[Agent]]]:
    """The oldest unended turn of every group, with the group's agents."""
    return [
        (turn, [tx.agents.get(agent_id) for agent_id, *_ in tx.of(Groups).members(turn.group_id)])
        for turn in tx.of(GroupTurns).list_oldest()
    ]
