"""The worker that fires schedules: a timer for the next due time, and a look from time to time at what others changed.

All times are those of the clock, so a machine that slept, or whose clock was set, notices at the next look. One
transaction checks that a schedule is still due, accepts its run, and stores what became of the due time. So each due
time is fired by at most one process, and a kill leaves all of it or nothing.
"""

from __future__ import annotations

import asyncio
import json
import logging
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from perdure.app import App
from perdure.context.sections.envelopes import envelope
from perdure.core.agents import DISCARDED
from perdure.core.errors import (
    Conflict,
    InvalidInput,
    MessageTooLarge,
    ModelNotFound,
    NotFound,
    PerdureError,
    StoreError,
)
from perdure.core.features import Point
from perdure.core.ids import AgentId, MessageId, RunId, ScheduleId
from perdure.core.messages import ENGINE_SENDER, Draft, Text, text_of
from perdure.core.runs import Run, RunOptions
from perdure.core.tasks import to_the_end
from perdure.core.text.json_strings import compact_json
from perdure.core.text.zones import zone
from perdure.domain.agents.units import COMPANIONS
from perdure.engine.budget import check_key_size
from perdure.engine.ports import EngineSettings, Ports, UnitInputs
from perdure.engine.records.run_request import NewMessage, RunRequest, check_input, with_run
from perdure.engine.run.accept import accept
from perdure.engine.workers.worker import Worker
from perdure.features.schedules.tables import Schedules
from perdure.features.schedules.values import DuePlan, Firing, Outcome, Schedule, ScheduledMessage, plan_due
from perdure.storage.tx import Tx

_KIND = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:/-]{0,63}")


@dataclass(frozen=True, slots=True, kw_only=True)
class UserEvent:
    """Something that happened outside: its `kind`, such as `login`, in up to 64 letters, digits, and `_ . : / -`, and
    more about it as JSON has it. With `wake` the agent begins a run; else it reads of the event with its next message.
    """

    kind: str
    data: Mapping[str, Any]
    wake: bool = True


def schedule_request(schedule: Schedule, plan: DuePlan, ports: Ports, *, max_steps: int) -> RunRequest:
    """Return the request that sends the messages of a schedule, for the due time of a plan. `max_steps` is the most
    model calls of its run where the schedule does not say."""
    messages = [
        _engine_message(_schedule_envelope(schedule, plan, text_of(message.parts)), otid=message.otid)
        if message.role == "system"
        else NewMessage(message.parts, message.role, message.name, message.otid, message.sender_id)
        for message in schedule.messages
    ]
    request = RunRequest(
        agent_id=schedule.agent_id,
        conversation_seq=schedule.conversation_seq,
        messages=tuple(messages),
        background=schedule.callback is not None,
        max_steps=max_steps if schedule.max_steps is None else schedule.max_steps,
        options=RunOptions(form=dict(schedule.form), alone=True),
        callback=schedule.callback,
        sent_chars=0,  # its messages were measured when it was made
    )
    return with_run(request, ports)


def event_request(
    agent_id: AgentId,
    event: UserEvent,
    ports: Ports,
    *,
    conversation_seq: int,
    timezone: str,
    max_steps: int,
    idempotency_key: str | None = None,
) -> RunRequest:
    """Return the request that tells an agent of an event; its run ends at once if the event does not wake the agent.
    `timezone` is the zone of the time in the message; the same `idempotency_key` again is the same event. Raises:
    InvalidInput, MessageTooLarge."""
    data = _event_json(event, ports.settings.message_limit_chars)
    time = _local_time(ports.clock.now(), timezone)
    text = envelope("event", event=event.kind, time=time, data=dict(event.data) or None)
    request = RunRequest(
        agent_id=agent_id,
        conversation_seq=conversation_seq,
        messages=(_engine_message(text),),
        idempotency_key=idempotency_key,
        identity=compact_json(["event", event.kind, data, event.wake]),
        max_steps=max_steps,
        options=RunOptions(note=not event.wake, alone=event.wake),
        sent_chars=len(data) if event.data else 0,
    )
    return with_run(request, ports)


def check_schedule(
    messages: Sequence[ScheduledMessage], max_steps: int | None, settings: EngineSettings, *, may_be_empty: bool
) -> int:
    """Check the messages and `max_steps` of a new schedule, and return how many characters the messages have. Raises:
    EmptyMessage, TooMany, MessageTooLarge, InvalidInput."""
    drafts = [Draft(id=MessageId(""), role=message.role, parts=message.parts) for message in messages]
    check_input(drafts, settings, may_be_empty=may_be_empty, max_steps=max_steps)
    chars = sum(len(text_of(message.parts)) for message in messages)
    check_key_size(chars)
    return chars


def _event_json(event: UserEvent, limit_chars: int) -> str:
    """Return an event's data as JSON, after checking it and the kind. Raises: InvalidInput, MessageTooLarge."""
    if not isinstance(event.kind, str) or not _KIND.fullmatch(event.kind):
        raise InvalidInput(
            f"the kind of the event is {event.kind!r:.80}: give up to 64 letters, digits and _ . : / -, such as 'login'"
        )
    if not isinstance(event.data, Mapping):
        raise InvalidInput(f"the data of the event is {event.data!r:.80}: give an object of names and values")
    try:
        text = json.dumps(dict(event.data), ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidInput(f"the data of the event is not JSON: {error}") from error
    if len(text) > limit_chars:
        raise MessageTooLarge(size=len(text), limit=limit_chars)
    return text


def _schedule_envelope(schedule: Schedule, plan: DuePlan, text: str) -> str:
    """Return a message of a schedule as the agent reads it, with the schedule and the due time."""
    return envelope(
        "schedule",
        id=schedule.id,
        name=schedule.name or None,
        due=_local_time(plan.due_at, schedule.timing.timezone),
        missed=plan.missed or None,
        message=text,
    )


def _engine_message(text: str, *, otid: str | None = None) -> NewMessage:
    """Return a system message of the engine, whose sender id callers may not use; `otid` is a client's id of it."""
    return NewMessage((Text(text),), "system", otid=otid, sender_id=ENGINE_SENDER)


def _local_time(moment: datetime, timezone: str) -> str:
    """Return a time in ISO 8601, to the second, in the zone of this name."""
    return moment.astimezone(zone(timezone)).isoformat(timespec="seconds")


BEGIN_PASS: Point[[Tx, AgentId, UnitInputs], RunId | None] = Point("begin_pass")
"""Have an agent's companion read what is new, and return the run in which it does; None: there is nothing."""

PASS_BEGUN: Point[[App, AgentId], None] = Point("pass_begun")
"""A pass of an agent's companion is stored, and is to be carried out."""

NO_COMPANION = "the agent has no companion any more"
NOTHING_NEW = "nothing new was said since the companion last read"

REASON_CHARS = 500
"""How much of an error the reason of a firing keeps."""


@dataclass(frozen=True, slots=True)
class FiringResult:
    """What was stored about a due time of `schedule`, and the run that was begun, which is still to be carried out.
    Without a `firing` nothing was stored: another process, which may reach the agent's model, deals with it."""

    schedule: Schedule
    firing: Firing | None
    run: Run | None = None


class FiringConflict(Conflict):
    """Another process has dealt with the due time, or somebody has changed the schedule."""


def fire(
    tx: Tx, schedule: Schedule, plan: DuePlan, request: RunRequest | None, refusal: str, inputs: UnitInputs
) -> FiringResult:
    """Carry a plan out in one transaction, if the schedule is as it was read; return what was stored.

    Args:
        request: of the run to begin; None: nothing is sent: the due time is passed over, or it is the companion that
            wakes.
        refusal: why nothing is sent, as the firing keeps it; empty: no reason.
    Raises: FiringConflict; NotFound: the schedule or its agent is gone.
    """
    tx.agents.lock(schedule.agent_id)  # before the schedule and the run, as everywhere
    if tx.of(Schedules).get(schedule.id) != schedule:
        raise FiringConflict(f"{schedule.id} was fired or changed meanwhile")
    run: Run | None = None
    run_id: RunId | None = None
    if plan.fires and DISCARDED in tx.agents.get(schedule.agent_id).tags:
        refusal = "the agent was discarded"
    elif schedule.action == "companion" and plan.fires:
        run_id = next(filter(None, BEGIN_PASS(tx, schedule.agent_id, inputs)), None)
        refusal = ""
        if run_id is None:
            refusal = NOTHING_NEW if any(COMPANIONS(tx, schedule.agent_id)) else NO_COMPANION
    elif request is not None:
        try:
            run = accept(tx, request, inputs).run
            run_id = run.id
        except StoreError:
            raise
        except PerdureError as error:  # it is raised before anything is written
            late = inputs.now - plan.due_at > timedelta(seconds=inputs.settings.schedule_grace_s)
            if isinstance(error, ModelNotFound) and not late:
                return FiringResult(schedule, None)
            refusal = str(error)
            if isinstance(error, NotFound):  # its conversation was deleted
                plan = replace(plan, after_failure=None)
    outcome: Outcome = "fired" if run_id is not None else "failed" if plan.fires else "missed"
    if refusal == NOTHING_NEW:
        outcome = "nothing_new"
    firing = Firing(
        due_at=plan.due_at,
        fired_at=inputs.now,
        outcome=outcome,
        run_id=run_id,
        missed=plan.missed,
        reason=refusal[:REASON_CHARS],
    )
    next_at = plan.after_failure if plan.fires and outcome != "fired" else plan.next_at
    advanced = tx.of(Schedules).advance(schedule, firing, next_at=next_at, at=inputs.now)
    if advanced is None:
        raise FiringConflict(f"{schedule.id} was fired or changed meanwhile")
    return FiringResult(advanced, firing, run)


log = logging.getLogger(__name__)

LOOK_S = 2.0
"""How often a process looks for what is due: another process may have made it so, or the clock was set."""
AT_ONCE = 64
"""How many schedules are read at once."""


class ScheduleWorker(Worker):
    """Fires the schedules of a store, beside the workers of other processes."""

    def __init__(self, app: App) -> None:
        super().__init__("firing schedules", self._fire_all, LOOK_S)
        self._app, self._ports, self._runner, self._settings = app, app.ports, app.runner, app.settings
        app.ports.signals.on("schedules", self.wake)
        # Due times that are left to other processes: schedule -> the due time, and until when.
        self._left_alone: dict[ScheduleId, tuple[datetime, datetime]] = {}

    async def start(self) -> None:
        """Begin to look for due times, unless the settings leave them to other processes."""
        if self._settings.schedules == "on":
            await super().start()

    async def _fire_all(self) -> float:
        """Fire what is due, and return the seconds until the next look. Raises: StoreError."""
        await self.fire_due()
        now = self._ports.clock.now()
        next_at = await self._ports.store.read(lambda tx: tx.of(Schedules).next_due(since=now))
        return LOOK_S if next_at is None else min(LOOK_S, max(0.001, (next_at - now).total_seconds()))

    async def fire_due(self) -> int:
        """Fire what is due now, and return how many due times were dealt with. Raises: StoreError."""
        count = 0
        while dues := await self._load_due():
            # In an order of its own, so that processes are not at the same schedule all the time.
            dues.sort(key=lambda _: self._ports.randomness.random())
            # At the same time: the store commits together what waits together.
            dealt = await asyncio.gather(*map(self._deal_with, dues), return_exceptions=True)
            count += sum(one is True for one in dealt)
            for one in dealt:
                if isinstance(one, BaseException):
                    raise one
        return count

    async def _load_due(self) -> list[Schedule]:
        """Load some schedules that are due, except due times that were left to other processes."""
        now = self._ports.clock.now()
        self._left_alone = {id_: (due_at, until) for id_, (due_at, until) in self._left_alone.items() if until > now}
        limit = AT_ONCE + len(self._left_alone)
        found = await self._ports.store.read(lambda tx: tx.of(Schedules).list_due(at=now, limit=limit))
        return [one for one in found if self._left_alone.get(one.id, (None,))[0] != one.next_at]

    async def _deal_with(self, schedule: Schedule) -> bool:
        """Fire a schedule, skip its due time, or leave it to other processes; return whether this process handled it.
        Errors of one schedule are logged, to not delay the others. Raises: StoreError."""
        ports, now = self._ports, self._ports.clock.now()
        assert schedule.next_at is not None
        try:
            fired = await self._fire(schedule, now)
        except StoreError:
            raise
        except (FiringConflict, NotFound):  # another process has fired it, or it was deleted
            return False
        except PerdureError as error:
            log.warning("%s was not fired: %s", schedule.id, error)
            self._left_alone[schedule.id] = schedule.next_at, now + timedelta(seconds=LOOK_S)
            return False
        except Exception:  # one that can't be fired must not keep others from it
            log.exception("%s was not fired because of a defect", schedule.id)
            self._left_alone[schedule.id] = schedule.next_at, now + timedelta(seconds=ports.settings.schedule_grace_s)
            return False
        if fired is None:  # the clock was set back meanwhile
            return False
        if fired.firing is None:  # this process can't reach the agent's model
            grace = timedelta(seconds=ports.settings.schedule_grace_s)
            self._left_alone[schedule.id] = schedule.next_at, schedule.next_at + grace
            return False
        if fired.run is not None:
            self._runner.drive(fired.run)
        elif schedule.action == "companion":
            PASS_BEGUN(self._app, schedule.agent_id)
        return True

    async def _fire(self, schedule: Schedule, now: datetime) -> FiringResult | None:
        """Carry out a schedule's due time; None: it is not due. Raises: FiringConflict, NotFound, StoreError."""
        ports, request, refusal = self._ports, None, ""
        assert schedule.next_at is not None
        plan = plan_due(
            schedule.timing,
            next_at=schedule.next_at,
            firings=schedule.firings,
            now=now,
            grace_s=ports.settings.schedule_grace_s,
        )
        if plan is None:
            return None
        if plan.fires and schedule.action == "message":
            try:
                request = schedule_request(schedule, plan, ports, max_steps=self._settings.max_steps)
                request = await self._runner.check(request)
            except StoreError:
                raise
            except PerdureError as error:  # a hook may refuse it
                request, refusal = None, str(error)
        # If this task is cancelled now, the run is stored all the same, and `recover` takes it up.
        return await to_the_end(ports.store.write(fire, schedule, plan, request, refusal, ports.inputs()))
