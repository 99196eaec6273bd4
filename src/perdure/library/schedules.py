"""Schedules of an agent: messages that are sent by themselves."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Literal

from perdure.core.ids import AgentId, ConversationId, ScheduleId
from perdure.core.messages import Text
from perdure.core.schedules import Firing, InQuietHours, Missed, Schedule, ScheduleStatus, parse_interval
from perdure.domain.schedules import NewSchedule, next_times
from perdure.engine.run.run_request import NewMessage
from perdure.library.checks import check_choice, check_limit, check_text
from perdure.library.services import Services


class AsyncSchedules:
    """The schedules of an agent. They are fired while a process has the store open, by one of all that have it."""

    def __init__(self, services: Services, agent_id: AgentId) -> None:
        self._services, self._agent_id = services, agent_id

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
            cron: five fields, minute to day of week, such as "0 9 * * MON-FRI".
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
        seq = 0
        if conversation is not None:
            seq = (await self._services.conversations.get(self._agent_id, conversation)).seq
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
            conversation_seq=seq,
            max_steps=max_steps,
            action="companion" if companion else "message",
        )
        messages = [] if companion else [NewMessage((Text(message),), role)]
        return await self._services.schedules.create(self._agent_id, messages, new)

    async def list(
        self, *, statuses: Sequence[ScheduleStatus] = ("active",), limit: int = 50, after: ScheduleId | None = None
    ) -> Sequence[Schedule]:
        """A page of the agent's schedules in these statuses, oldest first; `after` is the last one of the page before.

        Raises: InvalidInput, NotFound.
        """
        return await self._services.schedules.list(self._agent_id, statuses=statuses or None, limit=limit, after=after)

    async def get(self, schedule_id: ScheduleId) -> Schedule:
        """A schedule of this agent. Raises: NotFound, also for another agent's."""
        return await self._services.schedules.get(schedule_id, self._agent_id)

    async def next_times(self, schedule_id: ScheduleId, count: int = 5) -> Sequence[datetime]:
        """The next due times of a schedule, at most `count`, in UTC. Raises: InvalidInput, NotFound."""
        check_limit(count)
        return next_times(await self.get(schedule_id), count)

    async def firings(
        self, schedule_id: ScheduleId, *, limit: int = 20, before_seq: int | None = None
    ) -> Sequence[Firing]:
        """What became of a schedule's due times, the newest first. Raises: InvalidInput, NotFound."""
        return await self._services.schedules.list_firings(
            schedule_id, self._agent_id, limit=limit, before_seq=before_seq
        )

    async def cancel(self, schedule_id: ScheduleId) -> Schedule:
        """End a schedule, and return it; its firings can still be looked at. Raises: NotFound."""
        return await self._services.schedules.cancel(schedule_id, self._agent_id)

    async def delete(self, schedule_id: ScheduleId) -> None:
        """Remove a schedule with its firings; the messages that it sent stay. Raises: NotFound."""
        await self._services.schedules.delete(schedule_id, self._agent_id)
