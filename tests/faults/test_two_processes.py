"""Two real processes on one file: no other service is needed to keep them apart."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from perdure import RunEnded, StoredEvent
from perdure.storage.tx import Tx
from tests.faults.children import Child, Line, Place, make_agents, open_store
from tests.simulator.invariants import check_agent
from tests.support.stores import opened

pytestmark = pytest.mark.faults

ANSWER_S = 15.0


@asynccontextmanager
async def two_processes(place: Place) -> AsyncIterator[tuple[Child, Child]]:
    """Two that are ready on one store; they are gone afterwards."""
    async with await Child.start(place) as first, await Child.start(place) as second:
        await asyncio.gather(first.ready(), second.ready())
        yield first, second


def keys_of(name: str, count: int) -> list[str]:
    return [f"{name}{number}" for number in range(count)]


async def check(place: Place, line: Line, texts: list[str]) -> None:
    """Every promise holds of the agent of `line`, which was sent these texts."""

    def unit(tx: Tx) -> None:
        check_agent(tx, tx.conversations.get(line.conversation).agent_id, sent=texts)

    async with opened(place.store) as store:
        await store.read(unit)


async def check_leases(place: Place, lines: Sequence[Line], *, taken_over: Collection[str] = ()) -> None:
    """As long as both processes live, each run stays with the one that began it, and no call is cut off. The runs in
    `taken_over` were begun by one that is dead."""

    def unit(tx: Tx) -> None:
        for agent_id in {line.agent: None for line in lines}:
            leases = {run.id: run.lease_number for run in tx.runs.list(agent_id)}
            assert {run_id for run_id, number in leases.items() if number != 1} == {*taken_over} & {*leases}
            for message in tx.messages.list(agent_id, limit=1_000):
                if message.run_id not in taken_over:
                    assert [result for result in message.results if result.status != "success"] == []

    async with opened(place.store) as store:
        await store.read(unit)


async def test_messages_to_one_conversation_are_answered_one_after_the_other(tmp_path: Path) -> None:
    """Two processes that send to one conversation at once: all is answered, and no run stands within another."""
    place = Place(tmp_path)
    line, *_ = await make_agents(place)
    async with two_processes(place) as children:
        for child, name in zip(children, "xy", strict=True):
            for key in keys_of(name, 6):
                child.send(line.order(key, "append note"))
        for child, name in zip(children, "xy", strict=True):
            for key in keys_of(name, 6):
                told = await child.hears("ended", key, timeout_s=ANSWER_S)
                assert (told["stop_reason"], told["text"]) == ("end_turn", f"done {key}")
        assert [await child.close() for child in children] == [0, 0]

    keys = [*keys_of("x", 6), *keys_of("y", 6)]
    await check(place, line, [f"{key} append note" for key in keys])
    await check_leases(place, [line])
    async with await open_store(place) as perdure:
        block = await (await perdure.agent(line.agent)).blocks.get("human")
    assert sorted(block.value.split("\n")) == keys
    assert sorted(place.effects_left()) == [f"note {key}" for key in keys]


async def test_conversations_do_not_wait_for_each_other(tmp_path: Path) -> None:
    """While one conversation is busy for long, all others are answered, by either process; a block they share misses
    no edit."""
    place = Place(tmp_path)
    slow, *lines = await make_agents(place)
    async with two_processes(place) as children:
        children[0].send(slow.order("s", "slow"))
        await children[0].hears("accepted", "s", timeout_s=ANSWER_S)
        orders = [
            (child, line.order(f"{name}{number}-{turn}", "share append"))
            for turn in range(3)
            for child, name in zip(children, "xy", strict=True)
            for number, line in enumerate(lines)
        ]
        for child, order in orders:
            child.send(order)
        for child, order in orders:
            told = await child.hears("ended", order["key"], timeout_s=ANSWER_S)
            assert told["stop_reason"] == "end_turn"

        assert not any("refused" in told for child in children for told in child.told)
    await check_leases(place, [slow, *lines])
    async with await open_store(place) as perdure:
        shared = await (await perdure.agent(lines[0].agent)).blocks.get("shared")
    assert sorted(shared.value.split("\n")) == sorted(order["key"] for _, order in orders)
    assert shared.version == len(orders)


async def test_a_busy_conversation_refuses_who_does_not_want_to_wait(tmp_path: Path) -> None:
    """With `if_busy="reject"` the other process is told at once, and which run it would have to wait for."""
    place = Place(tmp_path)
    line, *_ = await make_agents(place)
    async with two_processes(place) as (first, second):
        first.send(line.order("s", "slow"))
        run_id = (await first.hears("accepted", "s", timeout_s=ANSWER_S))["run_id"]
        second.send(line.order("r", "append", if_busy="reject"))
        refused = await second.hears("refused", "r", timeout_s=ANSWER_S)

    assert (refused["error"], refused["run_id"]) == ("conversation_busy", run_id)


async def test_the_run_of_a_killed_process_is_taken_over(tmp_path: Path) -> None:
    """The living process ends what the dead one had begun, nobody asking, and then goes on with the conversation."""
    place = Place(tmp_path)
    line, *_ = await make_agents(place)
    async with two_processes(place) as (first, second):
        first.send(line.order("s", "append slow"))
        run_id = (await first.hears("accepted", "s", timeout_s=ANSWER_S))["run_id"]
        await asyncio.sleep(0.3)  # until its tool runs
        await first.kill()
        second.send(line.order("s", "append slow"))
        second.send(line.order("t", "append"))
        again = await second.hears("accepted", "s", timeout_s=ANSWER_S)
        ended = await second.hears("ended", "s", timeout_s=ANSWER_S)
        await second.hears("ended", "t", timeout_s=ANSWER_S)

    assert (again["run_id"], ended["text"]) == (run_id, "done s")
    await check(place, line, ["s append slow", "t append"])
    await check_leases(place, [line], taken_over=[run_id])


async def test_a_killed_run_is_taken_over_though_nobody_asks(tmp_path: Path) -> None:
    """A process looks for abandoned runs by itself, within some seconds."""
    place = Place(tmp_path)
    line, *_ = await make_agents(place)
    async with two_processes(place) as (first, _), await open_store(place) as perdure:
        first.send(line.order("s", "slow"))
        run_id = (await first.hears("accepted", "s", timeout_s=ANSWER_S))["run_id"]
        await asyncio.sleep(0.3)
        await first.kill()
        agent = await perdure.agent(line.agent)
        async with asyncio.timeout(ANSWER_S):
            *_, last = [sent async for sent in agent.follow(run_id)]

    assert isinstance(last, StoredEvent) and isinstance(last.event, RunEnded)
    assert last.event.stop_reason == "end_turn"


async def test_a_run_is_cancelled_from_another_process(tmp_path: Path) -> None:
    """A cancel request of one process stops a slow tool of the other."""
    place = Place(tmp_path)
    line, *_ = await make_agents(place)
    async with two_processes(place) as (first, second):
        first.send(line.order("s", "slow"))
        run_id = (await first.hears("accepted", "s", timeout_s=ANSWER_S))["run_id"]
        await asyncio.sleep(0.3)
        second.send({"agent": line.agent, "cancel": run_id})
        ended = await first.hears("ended", "s", timeout_s=ANSWER_S)
        second.send(line.order("t", "append"))
        await second.hears("ended", "t", timeout_s=ANSWER_S)

    assert ended["stop_reason"] == "cancelled"
    await check(place, line, ["s slow", "t append"])


async def test_two_processes_make_one_store(tmp_path: Path) -> None:
    """Processes that open a new file at the same moment both get it: one makes the tables, the other waits."""
    for number in range(3):
        place = Place(tmp_path / str(number))
        place.folder.mkdir()
        async with two_processes(place):
            pass
