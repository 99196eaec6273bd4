"""Two apps over one store, as two processes or machines have it: whatever one began, the other reads, stops, answers;
and what goes on in the background is done by one of them."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest

from perdure import AsyncPerdure
from perdure.core.errors import ConversationBusy
from perdure.core.events import Delta, DeltaStreamed, RunEnded, StoredEvent
from perdure.core.models import ModelDelta, ModelReply, ModelRequest
from perdure.core.tools.answers import ToolReturn
from perdure.features.groups.runner import GroupRunner
from perdure.features.groups.values import GroupTurnEnded
from perdure.settings import Settings
from perdure.testing import ScriptedEmbedder, ScriptedModel, calls, says
from tests.support.two_apps import MODEL, STORES, Gate, address_of, two_apps

pytestmark = pytest.mark.parametrize("store", STORES)

WEATHER = {"name": "weather", "description": "The weather.", "parameters": {"type": "object", "properties": {}}}


class Counting:
    """A model that takes a moment; `most` is how many requests it had at once."""

    def __init__(self) -> None:
        self.most = self._now = 0

    async def respond(self, request: ModelRequest) -> AsyncIterator[ModelReply]:
        self._now += 1
        self.most = max(self.most, self._now)
        await asyncio.sleep(0.01)
        self._now -= 1
        yield says("done")


async def test_one_conversation_has_one_run_at_a_time(store: str, tmp_path: Path) -> None:
    """Messages of both processes are answered one after the other; who does not want to wait is told so."""
    model = Counting()
    async with two_apps(await address_of(store, tmp_path), model) as apps:
        agents = [await apps[0].create_agent("a", model=MODEL), await apps[1].agent("a")]
        sent = [asyncio.create_task(agents[number % 2].send(f"text {number}")) for number in range(8)]
        await asyncio.sleep(0.02)
        with pytest.raises(ConversationBusy):
            await agents[1].send("at once", if_busy="reject")
        await asyncio.gather(*sent)
        texts = [message.text for message in await agents[0].messages(limit=50) if message.role == "user"]
        roles = [message.role for message in await agents[0].messages(limit=50) if message.kind == "message"]

    assert model.most == 1
    assert sorted(texts) == [f"text {number}" for number in range(8)]
    assert roles == ["user", "assistant"] * 8


async def test_a_stream_is_read_and_resumed_by_another_process(store: str, tmp_path: Path) -> None:
    """The previews of a background run too, from any place in it on."""
    gate = Gate(says("It rains."), deltas=(ModelDelta("text", "It "), ModelDelta("text", "rains.")))
    async with two_apps(await address_of(store, tmp_path), gate) as (first, second):
        agent = await first.create_agent("a", model=MODEL)
        accepted = await agent.submit("hello")
        events = list[StoredEvent]()
        async with asyncio.timeout(20):
            async for sent in second.runs.follow_run(accepted.run):
                assert isinstance(sent, StoredEvent)  # another process's previews are stored ones
                events.append(sent)
                if isinstance(sent.event, DeltaStreamed):
                    gate.let()
            resumed = [sent async for sent in second.runs.follow_run(accepted.run, after=2)]
            own = [one async for one in first.runs.follow_run(accepted.run) if not isinstance(one, Delta)]

    assert [event.seq for event in events] == list(range(1, len(events) + 1))
    assert any(isinstance(event.event, DeltaStreamed) for event in events)
    assert isinstance(events[-1].event, RunEnded)
    assert resumed == events[2:]
    assert own == events


async def test_a_run_is_cancelled_from_another_process(store: str, tmp_path: Path) -> None:
    """It waits for its model, and stops at the next beat at the latest."""
    gate = Gate(says("too late"))
    async with two_apps(await address_of(store, tmp_path), gate) as (first, second):
        agent = await first.create_agent("a", model=MODEL)
        sending = asyncio.create_task(agent.send("hello"))
        await gate.reached(1)
        (run,) = await (await second.agent("a")).runs(limit=1)
        await second.runs.cancel(run.id)
        async with asyncio.timeout(5):
            reply = await sending

    assert reply.stop_reason == "cancelled"


async def test_answers_to_calls_come_to_another_process(store: str, tmp_path: Path) -> None:
    """The caller's tools and approvals: the run that stopped in one process goes on in the other."""
    model = ScriptedModel(calls("weather"), calls("archival_memory_insert", content="It rains."), says("done"))
    async with two_apps(await address_of(store, tmp_path), model) as (first, second):
        agent = await first.create_agent("a", model=MODEL)
        await agent.require_approval("archival_memory_insert")
        stopped = await agent.send("hello", client_tools=[WEATHER])
        assert [call.name for call in stopped.pending] == ["weather"]
        other = await second.agent("a")
        (call,) = await other.pending()
        asks = await other.answer([ToolReturn(call.call_id, "rain")])
        assert asks is not None
        assert [call.name for call in asks.pending] == ["archival_memory_insert"]
        reply = await (await first.agent("a")).approve()

    assert reply is not None
    assert (reply.text, reply.stop_reason) == ("done", "end_turn")


@pytest.mark.slow
async def test_background_work_is_shared_and_done_once(store: str, tmp_path: Path) -> None:
    """Vectors, schedules and files, with both processes at it."""
    embedders = [ScriptedEmbedder(), ScriptedEmbedder()]
    address, model = await address_of(store, tmp_path), ScriptedModel(otherwise=says("done"))
    settings = Settings(model=MODEL)
    async with (
        await AsyncPerdure.open(address, models={MODEL: model}, settings=settings, embedder=embedders[0]) as first,
        await AsyncPerdure.open(address, models={MODEL: model}, settings=settings, embedder=embedders[1]) as second,
    ):
        agent = await first.create_agent("a", model=MODEL)
        schedules = [
            await agent.schedules.create(f"alarm {number}", every=timedelta(hours=1), max_firings=1, starts_at="in 1s")
            for number in range(6)
        ]
        folder = await first.folders.create("notes")
        await folder.upload(b"Oslo is north of Rome.", name="cities.txt")
        archives = [await first.archives.create("facts"), await second.archives.get("facts")]
        for number in range(20):
            await archives[number % 2].insert(f"fact number {number}")
        async with asyncio.timeout(20):
            while sum([len(await agent.schedules.firings(one.id)) for one in schedules]) < 6:  # noqa: ASYNC110
                await asyncio.sleep(0.05)
            while (await folder.files())[0].status != "completed" or len(_texts(embedders)) < 20:  # noqa: ASYNC110
                await asyncio.sleep(0.05)
        asked = await agent.runs(limit=50)

    assert len(asked) == 6
    assert {count for text, count in _texts(embedders).items() if text.startswith("fact number")} == {1}


@pytest.mark.slow
async def test_a_turn_of_a_group_is_followed_from_another_process(store: str, tmp_path: Path) -> None:
    """Both may send to the group; each turn has its speeches once."""
    model = ScriptedModel(otherwise=says("I have spoken."))
    async with two_apps(await address_of(store, tmp_path), model) as (first, second):
        agents = [await first.create_agent(name, model=MODEL) for name in ("ann", "bob")]
        group = await first.groups.create("round_robin", agents=agents)
        other = await second.groups.get(group.id)
        async with asyncio.timeout(20):
            turns = await asyncio.gather(*[(group, other)[number % 2].submit(f"task {number}") for number in range(4)])
            for turn in turns:
                events = [event async for event in second.app.service(GroupRunner).follow(turn)]
                assert isinstance(events[-1], GroupTurnEnded)
        said = [entry for entry in await group.messages(limit=100) if entry.kind != "user"]

    assert len(said) == 8
    assert len(model.requests) == 8


def _texts(embedders: list[ScriptedEmbedder]) -> Counter[str]:
    """How often each text was embedded, by both."""
    return Counter(text for embedder in embedders for request in embedder.requests for text in request)
