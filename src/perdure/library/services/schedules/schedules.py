"""Schedules of agents: create, list and cancel them, and see what became of their due times. Events from outside."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from perdure.app import App
from perdure.core.ids import AgentId, ScheduleId
from perdure.core.messages import ImageLink
from perdure.core.schedules import Firing, Schedule, ScheduledMessage, ScheduleStatus
from perdure.domain.schedules import NewSchedule, create_schedule
from perdure.engine.budget import check_agent_size
from perdure.engine.run.accept import Accepted
from perdure.engine.run.run_request import NewMessage, callback_to_store
from perdure.engine.schedules.worker import UserEvent, check_schedule, event_request
from perdure.library.checks import check_limit, check_number, check_text
from perdure.library.services.messages import MessageService
from perdure.storage.tx import Tx


class ScheduleService:
    """The operations on schedules. Where an agent is given, the schedule of another one is not found."""

    def __init__(self, app: App, messages: MessageService) -> None:
        self._app, self._ports, self._messages = app, app.ports, messages

    async def create(self, agent_id: AgentId, messages: Sequence[NewMessage], new: NewSchedule) -> Schedule:
        """Create a schedule that sends these messages; those of `new` are not looked at.

        Raises: NotFound, TimeZoneUnknown, ScheduleInvalid, InvalidInput, TooMany, MessageTooLarge, ToolError,
            StoreError.
        """
        ports = self._ports
        new = replace(new, callback=callback_to_store(new.callback, ports.cipher))
        messages, _ = await self._messages.fetch_images(messages, None)
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
        self._app.schedules.wake()
        return schedule

    async def get(self, schedule_id: ScheduleId, agent_id: AgentId | None = None) -> Schedule:
        """Raises: InvalidInput, NotFound."""
        check_text("schedule_id", schedule_id)
        return await self._ports.store.read(lambda tx: tx.schedules.get(schedule_id, agent_id))

    async def list(
        self,
        agent_id: AgentId | None,
        *,
        statuses: Sequence[ScheduleStatus] | None = None,
        limit: int = 50,
        after: ScheduleId | None = None,
    ) -> Sequence[Schedule]:
        """A page of an agent's schedules, or of all agents', in order of creation. Raises: InvalidInput, NotFound."""
        check_limit(limit)

        def read(tx: Tx) -> Sequence[Schedule]:
            if agent_id is not None:
                tx.agents.model(agent_id)
            return tx.schedules.page(agent_id, statuses=statuses, limit=limit, after=after)

        return await self._ports.store.read(read)

    async def list_firings(
        self,
        schedule_id: ScheduleId,
        agent_id: AgentId | None = None,
        *,
        limit: int = 20,
        before_seq: int | None = None,
    ) -> Sequence[Firing]:
        """What became of the due times of a schedule, the newest first. Raises: InvalidInput, NotFound."""
        check_text("schedule_id", schedule_id)
        check_limit(limit)
        check_number("before_seq", before_seq)

        def read(tx: Tx) -> Sequence[Firing]:
            return tx.schedules.list_firings(
                tx.schedules.get(schedule_id, agent_id), limit=limit, before_seq=before_seq
            )

        return await self._ports.store.read(read)

    async def cancel(self, schedule_id: ScheduleId, agent_id: AgentId | None = None) -> Schedule:
        """End a schedule, and return it; its firings stay. Raises: InvalidInput, NotFound."""
        check_text("schedule_id", schedule_id)
        now = self._ports.clock.now()
        return await self._ports.store.write(
            lambda tx: tx.schedules.cancel(tx.schedules.get(schedule_id, agent_id), at=now)
        )

    async def delete(self, schedule_id: ScheduleId, agent_id: AgentId | None = None) -> None:
        """Remove a schedule with its firings; the messages that it sent stay. Raises: InvalidInput, NotFound."""
        check_text("schedule_id", schedule_id)
        await self._ports.store.write(lambda tx: tx.schedules.delete(tx.schedules.get(schedule_id, agent_id).id))

    async def notify(
        self,
        agent_id: AgentId,
        kind: str,
        data: Mapping[str, Any],
        *,
        wake: bool = True,
        conversation_seq: int = 0,
        idempotency_key: str | None = None,
        max_steps: int | None = None,
    ) -> Accepted:
        """Tell an agent of an event; the run that answers it, or with `wake` off one that only stores it.

        Raises: InvalidInput, MessageTooLarge, NotFound, ApprovalPending, IdempotencyMismatch, ModelNotFound,
            StoreError.
        """
        ports = self._ports
        agent = await ports.store.read(lambda tx: tx.agents.get(agent_id))
        request = event_request(
            agent_id,
            UserEvent(kind=kind, data=data, wake=wake),
            ports,
            conversation_seq=conversation_seq,
            timezone=agent.timezone,
            max_steps=self._app.settings.max_steps if max_steps is None else max_steps,
            idempotency_key=idempotency_key,
        )
        return await self._app.runner.accept(request)
