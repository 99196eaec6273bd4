"""The library's calls for schedules of agents and their firings, and for events from outside."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, Literal

from perdure.core.ids import ConversationId, ScheduleId
from perdure.core.messages import ImageLink, Text
from perdure.engine.budget import check_agent_size
from perdure.engine.records.run_request import NewMessage, callback_to_store
from perdure.engine.run.accept import Accepted
from perdure.features.schedules.tables import Schedules
from perdure.features.schedules.units import NewSchedule, create_schedule, next_times, pause_schedule, resume_schedule
from perdure.features.schedules.values import (
    Firing,
    InQuietHours,
    Missed,
    Schedule,
    ScheduledMessage,
    ScheduleStatus,
    parse_interval,
)
from perdure.features.schedules.worker import ScheduleWorker, UserEvent, check_schedule, event_request
from perdure.library.messages.requests import fetch_images
from perdure.library.parts.checks import check_choice, check_limit, check_number, check_text
from perdure.library.parts.part import AsyncAgentPart, AsyncPart, reads
from perdure.storage.tx import Tx


class AsyncSchedules(AsyncPart):
    """The schedules of an agent, or of all.

    They are fired while a process has the store open, by one of all that have it.
    """

    async def create(
        self,
        message: str = "",
        *,
        at: datetime | str | None = None,
        every: str | int | timedelta | None = None,
        cron: str | None = None,
        timezone: str | None = None,
        name: str = "",
        role: Literal["user", "system"] = "system",
        starts_at: datetime | str | None = None,
        ends_at: datetime | str | None = None,
        max_firings: int | None = None,
        missed: Missed = "once",
        missed_limit: int = 10,
        quiet_hours: str | None = None,
        in_quiet_hours: InQuietHours = "move",
        conversation: ConversationId | None = None,
        max_steps: int | None = None,
        companion: bool = False,
    ) -> Schedule:
        """A new schedule: `message` is sent to the agent `at` a time, `every` so often, or by `cron`; give one of them.

        Args:
            at: a datetime, or a text: "2026-11-24T09:00", "09:00" for the next time it is nine, "in 20m". Without a
                zone of its own it is in `timezone`.
            every: a text such as "30m", "2h" or "1d", seconds, or a timedelta.
            cron: five fields, minute to day of week, such as "0 9 * * MON-FRI", or a name such as "@daily".
            timezone: the IANA name of a zone, such as "Europe/Rome"; by default the agent's.
            role: "system": the agent reads an envelope with the schedule and the due time; "user": the plain message.
            starts_at, ends_at: nothing is due before or after, of a day its end; an interval begins at `starts_at`.
            max_firings: how often it is fired at most.
            missed: what becomes of times that nobody could fire: "skip" none, "once" one for all, "all" each of the
                newest `missed_limit`.
            quiet_hours: "22:00-07:00": what is due then is fired at their end, or not at all (`in_quiet_hours` "move",
                "skip").
            conversation: by default the agent's first one.
            companion: no message is sent, but the agent's companion wakes and reads what is new.
        Raises: ScheduleInvalid: it would never fire, fires too often, is in the past or can't be read; TimeZoneUnknown;
            EmptyMessage, MessageTooLarge, TooMany, InvalidInput, NotFound, StoreError.
        """
        check_text("message", message)
        check_choice("role", role, ("user", "system"))
        check_choice("in_quiet_hours", in_quiet_hours, ("move", "skip"))
        new = NewSchedule(
            messages=(),
            name=name,
            at=at,
            every_s=None if every is None else parse_interval(every),
            cron=cron,
            timezone=timezone,
            starts_at=starts_at,
            ends_at=ends_at,
            max_firings=max_firings,
            missed=missed,
            missed_limit=missed_limit,
            quiet=quiet_hours,
            in_quiet_hours=in_quiet_hours,
            conversation_seq=await self._seq_of(conversation),
            max_steps=max_steps,
            action="companion" if companion else "message",
        )
        messages = [] if companion else [NewMessage((Text(message),), role)]
        return await self.add(messages, new)

    async def add(self, messages: Sequence[NewMessage], new: NewSchedule) -> Schedule:
        """A new schedule that sends `messages`; `new` has the other fields, and its own messages count for nothing.
        Raises: as `create`, and ToolError: an image can't be fetched."""
        ports, agent_id = self._ports, self._id
        new = replace(new, callback=new.callback and callback_to_store(new.callback, ports.cipher))
        messages, _ = await fetch_images(self._app, messages, None)
        stored = tuple(
            ScheduledMessage(
                parts=tuple(part for part in message.parts if not isinstance(part, ImageLink)),
                role=message.role,
                name=message.name,
                otid=message.otid,
                sender_id=message.sender_id,
            )
            for message in messages
        )
        chars = check_schedule(stored, new.max_steps, ports.settings, may_be_empty=new.action == "companion")
        new, schedule_id, now = replace(new, messages=stored), ScheduleId(ports.ids.new("schedule")), ports.clock.now()

        def write(tx: Tx) -> Schedule:
            check_agent_size(chars, tx.agents.get(agent_id))
            return create_schedule(tx, schedule_id, agent_id, new, made_by="user", at=now)

        schedule = await ports.store.write(write)
        self._app.service(ScheduleWorker).wake()
        return schedule

    @reads
    def list(
        self,
        tx: Tx,
        *,
        statuses: Sequence[ScheduleStatus] = ("active",),
        limit: int = 50,
        after: ScheduleId | None = None,
    ) -> Sequence[Schedule]:
        """A page of the schedules in these statuses (none: in any), oldest first; `after` is the last one of the page
        before. Raises: InvalidInput, NotFound."""
        check_limit(limit)
        if self._agent_id is not None:
            tx.agents.model(self._agent_id)
        return tx.of(Schedules).page(self._agent_id, statuses=statuses or None, limit=limit, after=after)

    async def get(self, schedule_id: ScheduleId) -> Schedule:
        """The schedule of this id. Raises: NotFound, also for another agent's."""
        return await self._ports.store.read(self._find, schedule_id)

    async def next_times(self, schedule_id: ScheduleId, count: int = 5) -> Sequence[datetime]:
        """The next due times of a schedule, at most `count`, in UTC. Raises: InvalidInput, NotFound."""
        check_limit(count)
        return next_times(await self.get(schedule_id), count)

    @reads
    def firings(
        self, tx: Tx, schedule_id: ScheduleId, *, limit: int = 20, before_seq: int | None = None
    ) -> Sequence[Firing]:
        """What became of a schedule's due times, the newest first. Raises: InvalidInput, NotFound."""
        check_limit(limit)
        check_number("before_seq", before_seq)
        return tx.of(Schedules).list_firings(self._find(tx, schedule_id), limit=limit, before_seq=before_seq)

    async def cancel(self, schedule_id: ScheduleId) -> Schedule:
        """End a schedule, and return it; its firings can still be looked at. Raises: NotFound."""
        now = self._ports.clock.now()
        return await self._ports.store.write(lambda tx: tx.of(Schedules).cancel(self._find(tx, schedule_id), at=now))

    async def pause(self, schedule_id: ScheduleId) -> Schedule:
        """Stop a schedule until it is resumed, and return it. Raises: NotFound; ScheduleInvalid: it has ended."""
        now = self._ports.clock.now()
        return await self._ports.store.write(lambda tx: pause_schedule(tx, self._find(tx, schedule_id), at=now))

    async def resume(self, schedule_id: ScheduleId) -> Schedule:
        """Let a paused or cancelled schedule fire again from its next due time on, and return it; missed times are not
        made up for. Raises: NotFound; ScheduleInvalid: it has ended, or nothing is due any more; TooMany."""
        now = self._ports.clock.now()
        resumed = await self._ports.store.write(lambda tx: resume_schedule(tx, self._find(tx, schedule_id), at=now))
        self._app.service(ScheduleWorker).wake()
        return resumed

    async def delete(self, schedule_id: ScheduleId) -> None:
        """Remove a schedule with its firings; the messages that it sent stay. Raises: NotFound."""
        await self._ports.store.write(lambda tx: tx.of(Schedules).delete(self._find(tx, schedule_id).id))

    def _find(self, tx: Tx, schedule_id: ScheduleId) -> Schedule:
        """The schedule of this id. Raises: NotFound, also for another agent's."""
        check_text("schedule_id", schedule_id)
        return tx.of(Schedules).get(schedule_id, self._agent_id)


class AsyncEvents(AsyncAgentPart):
    """Events for an agent; `AsyncAgent` has this method."""

    async def notify(
        self,
        kind: str,
        data: Mapping[str, Any] | None = None,
        *,
        wake: bool = True,
        conversation: ConversationId | None = None,
        idempotency_key: str | None = None,
        max_steps: int | None = None,
    ) -> Accepted:
        """Tell the agent of an event, without waiting for what it does. When this returns, the event is stored.

        Args:
            kind: what happened, such as "login" or "like": up to 64 letters, digits, and `_ . : / -`.
            data: more about it, as JSON can hold it.
            wake: whether the agent begins a run about it; else it reads of it with its next message.
            conversation: by default the agent's first one.
            idempotency_key: the same key again is the same event.
            max_steps: the most model calls of the run; by default the setting.
        Raises: InvalidInput, MessageTooLarge, NotFound, ApprovalPending, IdempotencyMismatch, ModelNotFound,
            HookBlocked, StoreError.
        """
        agent = await self._ports.store.read(lambda tx: tx.agents.get(self.id))
        request = event_request(
            self.id,
            UserEvent(kind=kind, data=data or {}, wake=wake),
            self._ports,
            conversation_seq=await self._seq_of(conversation),
            timezone=agent.timezone,
            max_steps=self._app.settings.max_steps if max_steps is None else max_steps,
            idempotency_key=idempotency_key,
        )
        return await self._app.runner.accept(request)
