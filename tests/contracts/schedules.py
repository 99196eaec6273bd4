"""Schedules: each due time is dealt with once, past ones are kept in part, and a deleted agent's are nobody's."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import datetime, time, timedelta
from typing import Any

from perdure.core.errors import NotFound, TooMany
from perdure.core.ids import AgentId, ScheduleId
from perdure.core.messages import Image, Text
from perdure.core.runs import Callback
from perdure.features.schedules import tables as table
from perdure.features.schedules.tables import Schedules
from perdure.features.schedules.values import Firing, QuietHours, Schedule, ScheduledMessage, ScheduleTiming
from perdure.storage.tx import Tx
from tests.contracts.base import AT, LATER, UNTIL, Contract, raises

HOUR = timedelta(hours=1)


def new_schedule(contract: Contract, agent_id: AgentId, **fields: Any) -> Schedule:
    """A schedule of every hour, not added yet."""
    values: dict[str, Any] = {
        "id": ScheduleId(contract.ids.new("schedule")),
        "agent_id": agent_id,
        "name": "a walrus",
        "timing": ScheduleTiming(every_s=3_600, starts_at=AT),
        "messages": (ScheduledMessage(role="system", parts=(Text("a walrus"),)),),
        "next_at": AT,
        "created_at": AT,
        "updated_at": AT,
    }
    return Schedule(**values | fields)


def firing_at(due_at: datetime, **fields: Any) -> Firing:
    """A firing of a due time."""
    return Firing(**{"due_at": due_at, "fired_at": LATER, "outcome": "fired", **fields})


class ScheduleContract(Contract):
    async def test_all_schedules_of_an_action_are_cancelled(self) -> None:
        """Those of this agent that still fire; the others stay."""
        async with self.open_store() as store:
            agent, other = [await store.write(self.add_agent) for _ in range(2)]
            wakes = new_schedule(self, agent.id, action="companion")
            says, elsewhere = new_schedule(self, agent.id), new_schedule(self, other.id, action="companion")
            await store.write(lambda tx: [tx.of(Schedules).add(one) for one in (wakes, says, elsewhere)])
            await store.write(lambda tx: tx.of(Schedules).cancel_all(agent.id, "companion", at=LATER))
            found = await store.read(lambda tx: [tx.of(Schedules).get(one.id) for one in (wakes, says, elsewhere)])

        assert [(one.status, one.next_at) for one in found] == [("cancelled", None), ("active", AT), ("active", AT)]
        assert found[0].updated_at == LATER

    async def test_a_paused_schedule_fires_again_and_an_ended_one_does_not(self) -> None:
        async with self.open_store() as store:
            agent = await store.write(self.add_agent)
            made, ended = new_schedule(self, agent.id), new_schedule(self, agent.id)
            await store.write(lambda tx: [tx.of(Schedules).add(one) for one in (made, ended)])
            await store.write(lambda tx: tx.of(Schedules).cancel(ended, at=LATER))
            await store.write(lambda tx: tx.of(Schedules).put_next(ended, "active", UNTIL, at=LATER))
            await store.write(lambda tx: tx.of(Schedules).put_next(made, "paused", None, at=LATER))
            paused = await store.read(lambda tx: tx.of(Schedules).get(made.id))
            await store.write(lambda tx: tx.of(Schedules).put_next(paused, "active", UNTIL, at=LATER))
            resumed, ended = await store.read(lambda tx: [tx.of(Schedules).get(one.id) for one in (made, ended)])

        assert (paused.status, paused.next_at) == ("paused", None)
        assert (resumed.status, resumed.next_at) == ("active", UNTIL)
        assert (ended.status, ended.next_at) == ("cancelled", None)

    async def test_a_schedule_comes_back_as_it_was(self) -> None:
        """With every field, also text that databases can't hold as it is."""
        async with self.open_store() as store:
            agent = await store.write(self.add_agent)
            quiet = QuietHours(start=time(22), end=time(7, 30), then="skip")
            timing = ScheduleTiming(
                cron="0 9 * * MON",
                timezone="Europe/Rome",
                starts_at=AT,
                ends_at=UNTIL,
                max_firings=3,
                missed="all",
                missed_limit=5,
                quiet=quiet,
            )
            image = Image("image/png", "aGk=")
            full = new_schedule(
                self,
                agent.id,
                name="a\x00b\ud800",
                timing=timing,
                messages=(ScheduledMessage(role="user", parts=(Text("x\ud800"), image), name="Ada", otid="o"),),
                made_by="agent",
                max_steps=3,
                callback=Callback(url="https://example.com"),
                form={"include_return_message_types": ["user_message"]},
            )
            once = new_schedule(self, agent.id, timing=ScheduleTiming(at=UNTIL, starts_at=AT), next_at=UNTIL)
            added = await store.write(lambda tx: [tx.of(Schedules).add(one) for one in (full, once)])

            assert added == [replace(full, seq=1), replace(once, seq=2)]
            assert await store.read(lambda tx: [tx.of(Schedules).get(one.id) for one in added]) == added
            assert await store.read(lambda tx: tx.of(Schedules).get(full.id, agent.id)) == added[0]
            assert await store.read(lambda tx: tx.of(Schedules).page(agent.id)) == added
            assert await store.read(lambda tx: tx.of(Schedules).page(None, after=full.id, limit=1)) == added[1:]
            assert await store.read(lambda tx: tx.of(Schedules).page(None, statuses=("ended",))) == []
            assert await store.read(lambda tx: tx.of(Schedules).count_active(agent.id)) == 2
            assert await store.read(lambda tx: tx.of(Schedules).count_active(agent.id, made_by="agent")) == 1
            with raises(NotFound):
                await store.read(lambda tx: tx.of(Schedules).get(full.id, AgentId("agent-other")))

    async def test_a_due_time_is_dealt_with_once(self) -> None:
        """Of many that read the same, one advances the schedule; a second row for the time is impossible."""
        async with self.open_store() as store:
            agent = await store.write(self.add_agent)
            schedule = await store.write(lambda tx: tx.of(Schedules).add(new_schedule(self, agent.id)))

            def fire(tx: Tx) -> Schedule | None:
                return tx.of(Schedules).advance(schedule, firing_at(AT, reason="a\x00"), next_at=AT + HOUR, at=LATER)

            assert await store.read(lambda tx: tx.of(Schedules).list_due(at=AT, limit=9)) == [schedule]
            advanced = [one for one in await asyncio.gather(*(store.write(fire) for _ in range(8))) if one is not None]
            assert advanced == [replace(schedule, next_at=AT + HOUR, firings=1, updated_at=LATER)]
            assert await store.read(lambda tx: tx.of(Schedules).list_firings(schedule)) == [
                firing_at(AT, seq=1, reason="a\x00")
            ]
            assert await store.read(lambda tx: tx.of(Schedules).list_due(at=AT, limit=9)) == []
            assert await store.read(lambda tx: tx.of(Schedules).next_due(since=AT)) == AT + HOUR
            assert await store.read(lambda tx: tx.of(Schedules).next_due(since=AT + HOUR)) is None

    async def test_a_schedule_without_a_next_time_has_ended(self) -> None:
        """It is due no more; and cancelling it changes nothing, while one that goes on is cancelled."""
        async with self.open_store() as store:
            agent = await store.write(self.add_agent)
            first, second = [
                await store.write(lambda tx: tx.of(Schedules).add(new_schedule(self, agent.id))) for _ in range(2)
            ]
            ended = await store.write(
                lambda tx: tx.of(Schedules).advance(first, firing_at(AT, outcome="missed"), next_at=None, at=LATER)
            )

            assert ended == replace(first, next_at=None, status="ended", updated_at=LATER)
            assert await store.write(lambda tx: tx.of(Schedules).cancel(ended, at=UNTIL)) == ended
            cancelled = await store.write(lambda tx: tx.of(Schedules).cancel(second, at=UNTIL))
            assert cancelled == replace(second, next_at=None, status="cancelled", updated_at=UNTIL)
            assert (
                await store.write(lambda tx: tx.of(Schedules).advance(second, firing_at(AT), next_at=LATER, at=LATER))
                is None
            )
            assert await store.read(lambda tx: tx.of(Schedules).list_due(at=LATER, limit=9)) == []

    async def test_only_the_newest_firings_are_kept(self) -> None:
        """And a page of them goes on before a number."""
        async with self.open_store() as store:
            agent = await store.write(self.add_agent)
            schedule = await store.write(lambda tx: tx.of(Schedules).add(new_schedule(self, agent.id)))

            def fire_all(tx: Tx) -> None:
                one: Schedule | None = schedule
                for hour in range(table.FIRINGS_KEPT + 3):
                    assert one is not None
                    one = tx.of(Schedules).advance(
                        one, firing_at(AT + hour * HOUR), next_at=AT + (hour + 1) * HOUR, at=LATER
                    )

            await store.write(fire_all)
            newest = table.FIRINGS_KEPT + 3
            kept = await store.read(lambda tx: tx.of(Schedules).list_firings(schedule, limit=9_999))
            assert [one.seq for one in kept] == list(range(newest, 3, -1))
            page = await store.read(lambda tx: tx.of(Schedules).list_firings(schedule, limit=2, before_seq=newest))
            assert [one.seq for one in page] == [newest - 1, newest - 2]

    async def test_schedules_are_limited_and_deleted(self) -> None:
        """An agent's own have a limit of their own; those that fire no more don't count, and the oldest go."""
        async with self.open_store() as store:
            agent = await store.write(self.add_agent)

            def add_own(tx: Tx) -> list[Schedule]:
                count = tx.limits.own_schedules_per_agent
                return [tx.of(Schedules).add(new_schedule(self, agent.id, made_by="agent")) for _ in range(count)]

            own = await store.write(add_own)
            with raises(TooMany):
                await store.write(lambda tx: tx.of(Schedules).add(new_schedule(self, agent.id, made_by="agent")))
            await store.write(lambda tx: tx.of(Schedules).cancel(own[0], at=LATER))
            await store.write(lambda tx: tx.of(Schedules).add(new_schedule(self, agent.id, made_by="agent")))
            await store.write(lambda tx: tx.of(Schedules).advance(own[1], firing_at(AT), next_at=AT + HOUR, at=LATER))
            await store.write(lambda tx: tx.of(Schedules).delete(own[1].id))

            assert await store.read(lambda tx: tx.of(Schedules).list_firings(own[1])) == []
            with raises(NotFound):
                await store.write(lambda tx: tx.of(Schedules).delete(own[1].id))

            def add_ended(tx: Tx) -> None:
                for _ in range(table.ENDED_KEPT + 2):
                    tx.of(Schedules).cancel(tx.of(Schedules).add(new_schedule(self, agent.id)), at=LATER)
                tx.of(Schedules).add(new_schedule(self, agent.id))

            await store.write(add_ended)
            ended = await store.read(lambda tx: tx.of(Schedules).page(agent.id, statuses=("cancelled",), limit=9_999))
            assert len(ended) == table.ENDED_KEPT
            assert own[0].id not in [one.id for one in ended]

    async def test_the_schedules_of_a_deleted_agent_are_not_due(self) -> None:
        """From the first step on, and no row of them stays."""
        async with self.open_store() as store:
            agent = await store.write(self.add_agent)
            schedule = await store.write(lambda tx: tx.of(Schedules).add(new_schedule(self, agent.id)))
            await store.write(lambda tx: tx.agents.delete(agent.id))

            assert await store.read(lambda tx: tx.of(Schedules).list_due(at=LATER, limit=9)) == []
            assert await store.read(lambda tx: tx.of(Schedules).next_due(since=AT - HOUR)) is None
            assert (
                await store.write(lambda tx: tx.of(Schedules).advance(schedule, firing_at(AT), next_at=LATER, at=LATER))
                is None
            )
