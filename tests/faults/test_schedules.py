"""Schedules over two processes, with a clock that jumps to and fro and through daylight saving, and `kill -9`.

What became of each due time is compared with what its policy says, worked out the slow way (`tests.support.due_times`).
Short in `make test-all`, a thousand schedules and forty kills with `PERDURE_FAULTS=full`.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime, time, timedelta
from pathlib import Path

import pytest

from perdure import AsyncPerdure, Schedule
from perdure.core.ids import ScheduleId
from perdure.core.messages import Text
from perdure.features.schedules.tables import Schedules
from perdure.features.schedules.values import QuietHours, ScheduledMessage, ScheduleTiming, due_times
from perdure.features.schedules.worker import ScheduleWorker
from perdure.storage.tx import Tx
from perdure.testing import FakeClock, SequentialIds
from tests.faults.children import SRC, Child
from tests.faults.schedule_program import MODEL, SETTINGS, FileClock, scripted_model
from tests.support.due_times import Dealt, slow_due_times, slow_policy
from tests.support.stores import new_address
from tests.support.warm import warm

pytestmark = pytest.mark.faults

FULL = os.environ.get("PERDURE_FAULTS") == "full"
SCHEDULES = 1_000 if FULL else 24
AGENTS = 25 if FULL else 4
LOOKS = 40 if FULL else 6
KILLED = 1_000 if FULL else 12
KILLED_LOOKS = 40 if FULL else 3
START = datetime(2026, 10, 23, 12, tzinfo=UTC)
"""Before the clocks of Berlin (25 October) and New York (1 November) are set back."""
SPRING = datetime(2026, 3, 6, 12, tzinfo=UTC)
"""Before those of New York (8 March) and Berlin (29 March) are set forward."""
GRACE = timedelta(seconds=SETTINGS.schedule_grace_s)
SETTLE_S = 900.0


def timings(chance: random.Random, count: int, start: datetime) -> list[ScheduleTiming]:
    """Timings of all kinds, policies, zones and quiet hours."""
    made = []
    for _ in range(count):
        when = chance.choice(
            [
                {"cron": f"{chance.randrange(60)} {chance.choice((0, 1, 2, 3, 9, 23))} * * *"},
                {"cron": f"*/{chance.choice((20, 30))} * * * *"},
                {"every_s": 60 * chance.randrange(45, 3_000)},
                {"at": start + timedelta(minutes=chance.randrange(1, 20_000))},
            ]
        )
        quiet = None
        if chance.random() < 0.4:
            hours = (time(22), time(7)) if chance.random() < 0.5 else (time(1, 30), time(2, 30))
            quiet = QuietHours(start=hours[0], end=hours[1], then=chance.choice(("move", "skip")))
        made.append(
            ScheduleTiming(
                **when,  # type: ignore[arg-type]
                timezone=chance.choice(("UTC", "America/New_York", "Europe/Berlin", "Asia/Kolkata")),
                starts_at=start,
                max_firings=chance.choice((None, None, None, 3)),
                missed=chance.choice(("skip", "once", "all")),
                missed_limit=chance.randrange(1, 6),
                quiet=quiet,
            )
        )
    return made


def looks_of(chance: random.Random, count: int, start: datetime) -> list[datetime]:
    """What the clock shows at each look: it goes on, stands still, jumps ahead by up to two days, or is set back."""
    now = start + timedelta(seconds=100_000)
    looks = [now]
    for _ in range(count - 1):
        now += timedelta(seconds=chance.choice((0, 60, 1_800, 7_200, 50_000, 170_000, -3_600, -90_000)))
        looks.append(now)
    return looks


async def store_schedules(perdure: AsyncPerdure, found: Sequence[ScheduleTiming], agents: int) -> list[Schedule]:
    """Schedules with these timings, shared out among agents."""
    owners = [(await perdure.create_agent(f"agent {place}", model=MODEL, tools=[])).id for place in range(agents)]
    ids = SequentialIds(salt=7)

    def add_all(tx: Tx) -> list[Schedule]:
        made = []
        for place, timing in enumerate(found):
            schedule = Schedule(
                id=ScheduleId(ids.new("schedule")),
                agent_id=owners[place % agents],
                name=f"number {place}",
                timing=timing,
                messages=(ScheduledMessage(parts=(Text(f"number {place}"),)),),
                next_at=next(due_times(timing, timing.starts_at - timedelta(microseconds=1)), None),
                created_at=timing.starts_at,
                updated_at=timing.starts_at,
            )
            made.append(tx.of(Schedules).add(schedule))
        return made

    return await perdure.app.store.write(add_all)


async def check(perdure: AsyncPerdure, schedules: Sequence[Schedule], looks: Sequence[datetime]) -> Counter[str]:
    """Check that each due time became what its policy says, and that each firing is one run and one message; count
    what became of them."""
    told: Counter[str] = Counter()
    said: Counter[str] = Counter()

    def read(tx: Tx) -> None:
        for agent_id in dict.fromkeys(one.agent_id for one in schedules):
            after = -1
            while page := tx.messages.list(agent_id, limit=1_000, after_seq=after):
                said.update(message.text for message in page if message.role == "user")
                after = page[-1].seq
        for schedule in schedules:
            timing = schedule.timing
            rows = tx.of(Schedules).list_firings(schedule, limit=10_000)[::-1]
            expected = slow_policy(
                slow_due_times(timing, until=max(looks)),
                looks,
                missed=timing.missed,
                limit=timing.missed_limit,
                grace=GRACE,
                max_firings=timing.max_firings,
            )
            assert [Dealt(row.due_at, row.outcome, row.missed) for row in rows] == expected, timing
            fired = [row.run_id for row in rows if row.outcome == "fired"]
            assert len(set(fired)) == len(fired) == said[schedule.name]
            for run_id in fired:
                assert run_id is not None
                assert tx.runs.get(run_id).stop_reason == "end_turn"
            told.update(row.outcome for row in rows)

    await perdure.app.store.read(read)
    return told


async def settle(perdure: AsyncPerdure) -> None:
    """Wait until every run of the store has ended."""

    def has_unended(tx: Tx) -> bool:
        return bool(tx.runs.list_oldest(free_at=None, limit=1))

    async with asyncio.timeout(SETTLE_S):
        while await perdure.app.store.read(has_unended):
            await perdure.app.runner.recover()
            await asyncio.sleep(0.02)


@pytest.mark.slow
@pytest.mark.parametrize("start", [START, SPRING])
async def test_two_engines_fire_each_due_time_as_its_policy_says(tmp_path: Path, start: datetime) -> None:
    """Over one store, at the same moments; the clock jumps to and fro."""
    chance, clock, address = random.Random(f"{start}"), FakeClock(start), new_address(tmp_path)
    looks = looks_of(chance, LOOKS, start)
    async with AsyncExitStack() as stack:
        engines = [
            await stack.enter_async_context(
                await AsyncPerdure.open(
                    address, models={MODEL: scripted_model()}, clock=clock, settings=replace(SETTINGS, schedules="off")
                )
            )
            for _ in range(2)
        ]
        schedules = await store_schedules(engines[0], timings(chance, SCHEDULES, start), AGENTS)
        shares = [0, 0]
        for moment in looks:
            clock.advance((moment - clock.now()).total_seconds())
            while any(counts := await asyncio.gather(*(one.app.service(ScheduleWorker).fire_due() for one in engines))):
                shares = [share + count for share, count in zip(shares, counts, strict=True)]
        await settle(engines[0])

        told = await check(engines[0], schedules, looks)
        assert sum(told.values()) == sum(shares)
        assert told["fired"] > SCHEDULES / 2
        assert min(shares) > 0 or not FULL
        print(f"{len(schedules)} schedules, {len(looks)} looks, {shares} by each engine: {dict(told)}")


@asynccontextmanager
async def firing_processes(tmp_path: Path, address: str, count: int) -> AsyncIterator[list[Child]]:
    """Processes that fire; whoever takes one out puts another one in."""
    children = [await start_process(tmp_path, address) for _ in range(count)]
    try:
        yield children
    finally:
        for child in children:
            await child.kill()


async def start_process(tmp_path: Path, address: str) -> Child:
    environment = {**os.environ, "PYTHONPATH": f"{SRC}{os.pathsep}{SRC.parent}"}
    with (tmp_path / "stderr.txt").open("ab") as errors:
        return Child(
            await asyncio.create_subprocess_exec(
                warm("tests.faults.schedule_program", environment),
                address,
                str(tmp_path / "clock"),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=errors,
                env=environment,
            )
        )


async def test_killed_processes_fire_each_due_time_as_its_policy_says(tmp_path: Path) -> None:
    """Two processes over one store; one of them is killed at each jump of the clock, somewhere in its work."""
    chance, clock = random.Random(24), FileClock(tmp_path / "clock")
    clock.set(START)
    address = new_address(tmp_path)
    looks = [START, *looks_of(chance, KILLED_LOOKS, START)]  # processes look as soon as they start
    async with await AsyncPerdure.open(
        address, models={MODEL: scripted_model()}, clock=clock, settings=replace(SETTINGS, schedules="off")
    ) as perdure:
        schedules = await store_schedules(perdure, timings(chance, KILLED, START), AGENTS)
        kills = 0
        async with firing_processes(tmp_path, address, 2) as children:
            await asyncio.gather(*(child.ready() for child in children))
            for moment in looks:
                clock.set(moment)
                await asyncio.sleep(chance.uniform(0, 0.1))
                victim = chance.randrange(2)
                await children[victim].kill()
                kills += 1
                children[victim] = await start_process(tmp_path, address)
                async with asyncio.timeout(SETTLE_S):
                    while await count_due(perdure, moment):  # noqa: ASYNC110
                        await asyncio.sleep(0.01)
        await settle(perdure)

        told = await check(perdure, schedules, looks)
        assert told["fired"] > KILLED / 2
        assert kills == len(looks)
        print(f"{len(schedules)} schedules, {len(looks)} looks, {kills} kills: {dict(told)}")
    with contextlib.suppress(FileNotFoundError):
        assert "Traceback" not in (tmp_path / "stderr.txt").read_text()


async def count_due(perdure: AsyncPerdure, moment: datetime) -> int:
    """How many schedules are due."""
    return await perdure.app.store.read(lambda tx: len(tx.of(Schedules).list_due(at=moment, limit=10_000)))
