"""Automatic capture: what a conversation collected becomes passages, once, and never in an answer's way."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from perdure import AsyncPerdure, NotFound, Passage
from perdure.core.blocks import Author
from perdure.core.errors import StoreFull
from perdure.core.ids import AgentId
from perdure.core.messages import Text
from perdure.domain.agents.capture import capture, capture_due
from perdure.settings import Settings
from perdure.testing import InlineStore, ScriptedModel, says
from tests.support.library import MODEL

ON = {"auto_capture": {"commit_token_threshold": 100}}
LONG = "The walrus at the pier of Torshavn eats clams every morning before the ferry comes in."


@asynccontextmanager
async def _open_library(*script: Any) -> AsyncIterator[AsyncPerdure]:
    settings = Settings(model=MODEL, embedding="none")
    models = {MODEL: ScriptedModel(*script)}
    async with await AsyncPerdure.open(store=InlineStore(), models=models, settings=settings) as perdure:
        yield perdure


async def _list_captured(perdure: AsyncPerdure, agent: Any) -> list[Passage]:
    """What is stored when nothing is under way any more."""
    await perdure.app.runner.after_runs.captures.close()
    return list(await agent.passages())


async def test_what_the_threshold_collected_is_stored_with_its_origin() -> None:
    """Nothing before; then all turns, who said them and when, and from where to where."""
    async with _open_library(says("Which pier?"), says("I see.")) as perdure:
        agent = await perdure.create_agent(settings=ON)
        await agent.send("I saw a walrus.")
        assert await _list_captured(perdure, agent) == []

        await agent.send(LONG)

        (passage,) = await _list_captured(perdure, agent)
        first, second, third, fourth = await agent.messages()
        assert passage.text.splitlines() == [
            "user: I saw a walrus.",
            "assistant: Which pier?",
            f"user: {LONG}",
            "assistant: I see.",
        ]
        assert passage.source == {
            "type": "capture",
            "agent_id": agent.id,
            "conversation_id": (await agent.conversations())[0].id,
            "first_message_id": first.id,
            "last_message_id": fourth.id,
            "first_seq": first.seq,
            "last_seq": fourth.seq,
        }
        assert [turn["id"] for turn in passage.metadata["turns"]] == [first.id, second.id, third.id, fourth.id]
        assert passage.occurred_at == first.occurred_at


async def test_nothing_is_stored_twice() -> None:
    """Whoever tries again: the next run, or somebody who thought that it was still due."""
    async with _open_library() as perdure:
        agent = await perdure.create_agent(settings=ON)
        store, ids, now = perdure.app.store, perdure.app.ports.ids, perdure.app.ports.clock.now()
        for _ in range(3):
            await agent.send(LONG)
            await _list_captured(perdure, agent)
        before = await _list_captured(perdure, agent)
        newest = (await agent.messages())[-1].seq

        assert await store.read(capture_due, agent.id, 0) is None
        assert not await store.write(capture, agent.id, 0, before[-1].source["last_seq"], ids=ids, at=now)
        while await store.write(capture, agent.id, 0, newest, ids=ids, at=now):
            pass

        turns = [turn["id"] for passage in await agent.passages() for turn in passage.metadata["turns"]]
        assert turns == [message.id for message in await agent.messages()]


async def test_a_capture_that_failed_is_made_up_for_after_the_next_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """The answers come all the same."""
    async with _open_library() as perdure:
        agent = await perdure.create_agent(settings=ON)
        store = perdure.app.store
        write = store.write

        async def failing(work: Any, *args: Any, **more: Any) -> Any:
            if work is capture:
                raise StoreFull("the disk is full")
            return await write(work, *args, **more)

        monkeypatch.setattr(store, "write", failing)
        reply = await agent.send(LONG * 2)
        assert (reply.stop_reason, await _list_captured(perdure, agent)) == ("end_turn", [])
        monkeypatch.undo()

        await agent.send("And now?")

        turns = [turn["id"] for passage in await _list_captured(perdure, agent) for turn in passage.metadata["turns"]]
        assert turns == [message.id for message in await agent.messages()]


async def test_what_was_removed_is_not_captured_and_what_was_revised_as_it_is_shown() -> None:
    """Before the capture; what is captured stays as it was then."""
    async with _open_library() as perdure:
        agent = await perdure.create_agent(settings={"auto_capture": {"commit_token_threshold": 5_000}})
        await agent.send("My password is quince.")
        await agent.send("I live in Torshavn.")
        gone, _, revised, _ = await agent.messages()
        author, now = Author(kind="user", id="user-1"), perdure.app.ports.clock.now()
        await perdure.app.store.write(lambda tx: tx.messages.revise(gone.id, None, author=author, at=now))
        await perdure.app.store.write(
            lambda tx: tx.messages.revise(revised.id, (Text("I live in Bergen."),), author=author, at=now)
        )

        agent = await agent.update(settings=ON)
        await agent.send(LONG * 2)

        text = "\n".join(passage.text for passage in await _list_captured(perdure, agent))
        assert "quince" not in text
        assert ("Bergen" in text, "Torshavn." in text.replace(LONG, "")) == (True, False)


async def test_a_bypassed_conversation_is_not_captured() -> None:
    """Nor one of an agent without the setting."""
    async with _open_library() as perdure:
        on = {**ON, "bypass_session_patterns": ["0"]}
        for settings in ({}, on):
            agent = await perdure.create_agent(settings=settings)
            await agent.send(LONG * 4)
            assert await _list_captured(perdure, agent) == []
        other = (await agent.new_conversation()).id
        await agent.send(LONG * 4, conversation=other)
        assert {passage.source["conversation_id"] for passage in await _list_captured(perdure, agent)} == {other}


async def test_a_long_history_is_captured_in_steps_and_long_turns_in_parts() -> None:
    """At most 200 rows in a transaction; passages of a size that an embedder reads."""
    async with _open_library() as perdure:
        agent = await perdure.create_agent(settings=ON)
        history = [("user", None, f"Fact {number}.", perdure.app.ports.clock.now()) for number in range(450)]
        await agent.import_messages(history)
        await agent.send("x" * 20_000)

        passages = await _list_captured(perdure, agent)
        assert max(len(passage.text) for passage in passages) < 8_000
        text = "\n".join(passage.text for passage in passages)
        assert [line for line in text.splitlines() if "Fact" in line] == [f"user: Fact {n}." for n in range(450)]
        assert text.count("x") == 20_000


async def test_captures_go_to_the_archive_of_the_setting_and_are_found_by_others() -> None:
    """The agent itself is shown its turns, not the passage that repeats them."""
    async with _open_library() as perdure:
        shared = await perdure.archives.create("shared")
        settings = {"auto_capture": {"commit_token_threshold": 100, "archive": shared.id}}
        agent = await perdure.create_agent(settings=settings)
        await shared.attach_to(agent.id)
        await agent.send(LONG * 2)
        assert await _list_captured(perdure, agent) != []

        assert {source.kind for source in (await agent.recall("walrus", blocks=False)).sources} == {"turn"}
        assert {source.kind for source in (await perdure.recall("walrus", archives=["shared"])).sources} == {"passage"}
        with pytest.raises(NotFound):
            await perdure.create_agent(
                settings={"auto_capture": {"archive": "archive-00000000-0000-4000-8000-000000000000"}}
            )
        assert len(await perdure.agents()) == 1


async def test_two_captures_at_the_same_time_store_once() -> None:
    """As two processes would, with the same row in mind."""
    async with _open_library() as perdure:
        agent = await perdure.create_agent(settings={"auto_capture": {"commit_token_threshold": 100_000}})
        for number in range(120):
            await agent.send(f"Fact {number}.")
        agent_id: AgentId = agent.id
        ports, newest = perdure.app.ports, (await agent.messages(limit=1, newest_first=True))[0].seq

        async def one() -> None:
            for _ in range(3):
                await ports.store.write(capture, agent_id, 0, newest, ids=ports.ids, at=ports.clock.now())
                await asyncio.sleep(0)

        await asyncio.gather(one(), one())

        turns = [turn["id"] for passage in await agent.passages() for turn in passage.metadata["turns"]]
        assert turns == [message.id for message in await agent.messages(limit=1_000)]


async def test_a_reset_takes_what_had_not_reached_the_threshold() -> None:
    """Of every conversation that it empties, once, and not of those that go past capture."""
    async with _open_library(*[says("Which pier?")] * 3) as perdure:
        agent = await perdure.create_agent(settings=ON | {"bypass_session_patterns": ["2"]})
        other = await agent.new_conversation()
        private = await agent.new_conversation()
        await agent.send("I saw a walrus.")
        await agent.send("It was in Torshavn.", conversation=other.id)
        await agent.send("Nobody may know.", conversation=private.id)
        assert await _list_captured(perdure, agent) == []

        await agent.reset()

        assert sorted(passage.text for passage in await _list_captured(perdure, agent)) == [
            "user: I saw a walrus.\nassistant: Which pier?",
            "user: It was in Torshavn.\nassistant: Which pier?",
        ]
        assert await agent.reset() == []
        assert len(await _list_captured(perdure, agent)) == 2


async def test_a_reset_goes_on_where_the_archive_of_capture_is_gone(caplog: pytest.LogCaptureFixture) -> None:
    async with _open_library(says("I see.")) as perdure:
        house = await perdure.archives.create("house")
        agent = await perdure.create_agent(
            settings={"auto_capture": {"commit_token_threshold": 100, "archive": house.id}}
        )
        await agent.send("I saw a walrus.")
        await house.delete()

        (reset,) = await agent.reset()

        assert reset.message_count == 2
        assert house.id in caplog.text


async def test_what_is_said_while_a_reset_captures_is_captured_too(monkeypatch: pytest.MonkeyPatch) -> None:
    async with _open_library(*[says("Which pier?")] * 2) as perdure:
        agent = await perdure.create_agent(settings=ON)
        await agent.send("I saw a walrus.")
        store = perdure.app.store
        write, late = store.write, True

        async def talking(work: Any, *args: Any, **more: Any) -> Any:
            nonlocal late
            done = await write(work, *args, **more)
            if late and work.__name__ == "capture":
                late = False
                await agent.send("It was in Torshavn.")
            return done

        monkeypatch.setattr(store, "write", talking)
        (reset,) = await agent.reset()

        assert reset.message_count == 4
        assert [passage.text.splitlines()[0] for passage in await _list_captured(perdure, agent)] == [
            "user: I saw a walrus.",
            "user: It was in Torshavn.",
        ]


async def test_of_a_conversation_that_is_deleted_nothing_more_is_captured() -> None:
    async with _open_library(says("Which pier?")) as perdure:
        agent = await perdure.create_agent(settings=ON)
        line = await agent.new_conversation()
        await agent.send("I saw a walrus.", conversation=line.id)

        await agent.delete_conversation(line.id)

        assert await _list_captured(perdure, agent) == []
