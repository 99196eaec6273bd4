"""Following a run: events in order, deltas before the fact, and coming back after having left."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from perdure import Delta, MessageAdded, NotFound, RunEnded, StoredEvent
from perdure.core.events import DeltaStreamed, RunQueued, RunStarted, StepStarted
from perdure.core.ids import RunId
from perdure.library.agent import AsyncAgent
from perdure.testing import calls, fails, says
from tests.support.library import SlowSpeaker, open_async, open_sync


def kinds(sent: list[StoredEvent | Delta]) -> list[str]:
    """The types in order, repeated ones once."""
    names = [one.type if isinstance(one, Delta) else one.event.type for one in sent]
    return [name for index, name in enumerate(names) if index == 0 or name != names[index - 1]]


def numbers(sent: list[StoredEvent | Delta]) -> list[int]:
    return [one.seq for one in sent if isinstance(one, StoredEvent)]


async def until_ended(agent: AsyncAgent, run_id: RunId, *, after: int = 0) -> list[StoredEvent | Delta]:
    return [sent async for sent in agent.follow(run_id, after=after)]


def test_a_stream_tells_the_run_in_order(tmp_path: Path) -> None:
    """Bracketed events without gaps; the pieces of an answer come before the message that they make up."""
    script = (calls("memory_insert", label="human", new_string="Ada"), says("Hello dear Ada."))
    with open_sync(tmp_path / "agents.db", *script) as perdure:
        sent = list(perdure.create_agent().stream("I am Ada."))

    assert kinds(sent) == [
        "run.queued",
        "message.added",
        "run.started",
        "prefix.rewritten",
        "step.started",
        "delta",
        "message.added",
        "memory.edited",
        "message.added",
        "step.started",
        "delta",
        "message.added",
        "run.ended",
    ]
    assert numbers(sent) == list(range(1, len(numbers(sent)) + 1))
    text = [one for one in sent if isinstance(one, Delta) and one.kind == "text"]
    fact = [one.event.message for one in sent if isinstance(one, StoredEvent) and isinstance(one.event, MessageAdded)]
    assert "".join(delta.text for delta in text) == "Hello dear Ada."
    assert len(text) == 3
    assert fact[-1] is not None and {delta.message_id for delta in text} == {fact[-1].id}


async def test_deltas_come_while_the_model_speaks(tmp_path: Path) -> None:
    """The first word is there before the last one is said."""
    model = SlowSpeaker("one ", "two")
    async with await open_async(tmp_path / "agents.db", model=model) as perdure:
        agent = await perdure.create_agent()
        words = []
        async for sent in agent.stream("count"):
            if isinstance(sent, Delta):
                words.append((sent.text, model.go.is_set()))
                model.go.set()

    assert words == [("one ", False), ("two", True)]


def test_a_failing_run_ends_its_stream_with_the_reason(tmp_path: Path) -> None:
    """A stream always ends well: a failure is its last event, not an exception."""
    with open_sync(tmp_path / "agents.db", fails("down")) as perdure:
        *_, last = perdure.create_agent().stream("hello")

    assert isinstance(last, StoredEvent) and isinstance(last.event, RunEnded)
    assert last.event.failure is not None and last.event.failure.message == "down"


def test_leaving_a_stream_does_not_stop_the_run(tmp_path: Path) -> None:
    """Who goes after the first event finds the whole answer later."""
    with open_sync(tmp_path / "agents.db", says("a long answer")) as perdure:
        agent = perdure.create_agent()
        for sent in agent.stream("hello"):
            assert isinstance(sent, StoredEvent) and isinstance(sent.event, RunQueued)
            run_id = sent.event.run_id
            break
        *_, last = agent.follow(run_id)

        assert isinstance(last, StoredEvent) and isinstance(last.event, RunEnded)
        assert [message.text for message in agent.messages()] == ["hello", "a long answer"]


async def test_a_stream_can_be_left_while_the_model_speaks(tmp_path: Path) -> None:
    """The run goes on without a listener."""
    model = SlowSpeaker("one ", "two")
    async with await open_async(tmp_path / "agents.db", model=model) as perdure:
        agent = await perdure.create_agent()
        stream = agent.stream("count")
        async for sent in stream:
            if isinstance(sent, Delta):
                break
        await stream.aclose()  # type: ignore[attr-defined]  # an async generator in fact
        model.go.set()
        run_id = (await agent.messages())[0].run_id
        assert run_id is not None
        await until_ended(agent, run_id)

        assert [message.text for message in await agent.messages()] == ["count", "one two"]


async def test_a_streaming_run_can_be_cancelled(tmp_path: Path) -> None:
    """It ends at once with the reason `cancelled`; what was said stays, and the next message is answered."""
    model = SlowSpeaker("one ", "two")
    async with await open_async(tmp_path / "agents.db", model=model) as perdure:
        agent = await perdure.create_agent()
        sent = []
        async for one in agent.stream("count"):
            sent.append(one)
            if isinstance(one, StoredEvent) and isinstance(one.event, RunQueued):
                run_id = one.event.run_id
            if isinstance(one, Delta):
                await agent.cancel(run_id)
        last = sent[-1]
        assert isinstance(last, StoredEvent) and isinstance(last.event, RunEnded)
        assert last.event.stop_reason == "cancelled"
        model.go.set()

        assert (await agent.send("again")).text == "one two"
        # What was said before the stop stays.
        assert [message.text for message in await agent.messages()] == ["count", "one ", "again", "one two"]
        assert (await agent.cancel(run_id)).status == "cancelled"


async def test_a_background_run_can_be_followed_from_any_event(tmp_path: Path) -> None:
    """Its deltas are stored: whoever comes back with the last number it saw gets all the rest, and nothing twice."""
    model = SlowSpeaker("one ", "two ", "three")
    async with await open_async(tmp_path / "agents.db", model=model) as perdure:
        agent = await perdure.create_agent()
        run_id = (await agent.submit("count")).run.id
        await model.speaking.wait()
        seen = []
        async for sent in agent.follow(run_id):
            seen.append(sent)
            if isinstance(sent, StoredEvent) and isinstance(sent.event, StepStarted):
                break
        asyncio.get_running_loop().call_later(0.1, model.go.set)
        rest = await until_ended(agent, run_id, after=numbers(seen)[-1])
        everything = await until_ended(agent, run_id)

        assert numbers([*seen, *rest]) == list(range(1, len(everything) + 1))
        assert not any(isinstance(sent, Delta) for sent in rest)
        assert [*seen, *rest] == everything
        previews = [
            one.event.delta.text
            for one in everything
            if isinstance(one, StoredEvent) and isinstance(one.event, DeltaStreamed)
        ]
        assert "".join(previews) == "one two three"
        for after in range(len(everything) + 2):  # at the end, and beyond, nothing is waited for
            async with asyncio.timeout(10):
                assert await until_ended(agent, run_id, after=after) == everything[after:]


async def test_a_run_goes_on_and_can_be_followed_after_a_restart(tmp_path: Path) -> None:
    """A store closed in the middle of an answer: the next process asks again, and the events go on where they were."""
    path, model = tmp_path / "agents.db", SlowSpeaker("one ", "two")
    async with await open_async(path, model=model) as perdure:
        agent = await perdure.create_agent("helper")
        run_id = (await agent.submit("count")).run.id
        await model.speaking.wait()

    async with await open_async(path, says("one two")) as perdure:
        agent = await perdure.agent("helper")
        told = await until_ended(agent, run_id)

    started = [
        one.event.lease_number for one in told if isinstance(one, StoredEvent) and isinstance(one.event, RunStarted)
    ]
    assert started == [1, 2]
    assert numbers(told) == list(range(1, len(numbers(told)) + 1))
    assert "step.abandoned" in kinds(told)
    assert kinds(told)[-1] == "run.ended"


async def test_many_can_follow_one_run(tmp_path: Path) -> None:
    """Each gets every event in order."""
    async with await open_async(tmp_path / "agents.db", says("hello")) as perdure:
        agent = await perdure.create_agent()
        run_id = (await agent.submit("hi")).run.id
        first, *others = await asyncio.gather(*(until_ended(agent, run_id) for _ in range(5)))

    assert numbers(first) == list(range(1, len(numbers(first)) + 1))
    assert [numbers(other) for other in others] == [numbers(first)] * 4


async def test_an_unknown_run_is_not_found(tmp_path: Path) -> None:
    """Following, cancelling or reading it is answered by an error, not by waiting."""
    async with await open_async(tmp_path / "agents.db") as perdure:
        agent = await perdure.create_agent()
        unknown = RunId("run-00000000-0000-4000-8000-000000000000")
        with pytest.raises(NotFound):
            await until_ended(agent, unknown)
        with pytest.raises(NotFound):
            await agent.cancel(unknown)
        with pytest.raises(NotFound):
            await agent.run(unknown)


async def test_deleting_an_agent_ends_what_it_was_saying(tmp_path: Path) -> None:
    """Who follows a run of an agent that is deleted is told, and does not wait for ever."""
    model = SlowSpeaker("one ", "two")
    async with await open_async(tmp_path / "agents.db", model=model) as perdure:
        agent = await perdure.create_agent()
        with pytest.raises(NotFound):
            async with asyncio.timeout(50):
                async for sent in agent.stream("count"):
                    if isinstance(sent, Delta):
                        await perdure.delete_agent(agent.id)
