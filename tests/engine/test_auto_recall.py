"""Automatic recall: what memory has on a message goes with it, and never in its way."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from perdure import AsyncPerdure, InvalidInput
from perdure.context.sections.assemble import digest_of, parse_recalled
from perdure.core.events import MemoryRecalled, StoredEvent
from perdure.engine.run.runner import Runner
from perdure.settings import Settings
from perdure.testing import InlineStore, ScriptedEmbedder, ScriptedModel, calls, fails
from tests.support.library import MODEL, open_async

INSERT = calls("memory_insert", label="human", new_string="Likes clams.")
ON = {"auto_recall": {"budget_tokens": 200, "floor": 0.3}}


async def _open_library(*script: Any, embedder: Any = None) -> AsyncPerdure:
    settings = Settings(model=MODEL, embedding="none")
    model = ScriptedModel(*script)
    return await AsyncPerdure.open(store=InlineStore(), models={MODEL: model}, settings=settings, embedder=embedder)


async def _send(agent: Any, text: str, **more: Any) -> list[Any]:
    """The events of a run."""
    return [sent.event async for sent in agent.stream(text, **more) if isinstance(sent, StoredEvent)]


async def _tails(agent: Any) -> list[str]:
    """What was recalled in each request, oldest first."""
    steps = await agent.steps()
    return [parse_recalled((await agent.request(step.id)).tail) for step in reversed(steps)]


async def test_what_memory_has_goes_with_the_message_and_is_told() -> None:
    """In the tail of every request of the run, the same in each; rebuilt byte for byte; an own part in its account."""
    async with await _open_library(INSERT, "Clams.") as perdure:
        agent = await perdure.create_agent(settings=ON)
        passage = await agent.archive("Walruses eat clams.")

        events = await _send(agent, "What do walruses eat?")

        first, second = await _tails(agent)
        assert "Walruses eat clams." in first
        assert first == second
        (told,) = [event for event in events if isinstance(event, MemoryRecalled)]
        assert [source["id"] for source in told.sources] == [passage.id]
        assert 0 < told.tokens <= 200
        for step in await agent.steps():
            explained = await agent.explain(step.id)
            assert explained.digest == digest_of(await agent.request(step.id))
            parts = {part.name: part.estimated_tokens for part in explained.segments}
            assert told.tokens == parts["recalled"]
            assert sum(parts.values()) == explained.estimated_tokens


@pytest.mark.parametrize(
    ("text", "recalled"), [("2", False), ("2.", False), ("?!", False), ("2 walruses", True), ("海", True)]
)
async def test_the_number_of_an_option_is_looked_up_nowhere(text: str, recalled: bool) -> None:
    """It would be found in any list."""
    async with await _open_library() as perdure:
        agent = await perdure.create_agent(settings=ON)
        await agent.archive("2 walruses at the pier, 海象.")

        told = [event for event in await _send(agent, text) if isinstance(event, MemoryRecalled)]

        assert bool(told) is recalled


async def test_another_try_of_an_answer_recalls_for_the_message_that_it_answers() -> None:
    async with await _open_library(fails(), "Clams.") as perdure:
        agent = await perdure.create_agent(settings=ON)
        await agent.archive("Walruses eat clams.")
        await _send(agent, "What do walruses eat?")
        (failed,) = await agent.runs()
        again = await agent.try_again(failed.id)
        await agent.reply_to(again)

        first, second = await _tails(agent)
        assert "Walruses eat clams." in first and second == first


async def test_what_is_in_view_is_not_recalled_again() -> None:
    """A conversation's own messages are in front of the model; those of another one are not."""
    async with await _open_library() as perdure:
        agent = await perdure.create_agent(settings=ON)
        await agent.send("I saw a walrus at the pier.")
        await agent.send("Where was the walrus?")
        other = (await agent.new_conversation()).id
        await agent.send("Where was the walrus?", conversation=other)

        assert [bool(text) for text in await _tails(agent)] == [False, False, True]
        assert "I saw a walrus at the pier." in (await _tails(agent))[2]


@pytest.mark.parametrize("upto", range(3))
@pytest.mark.parametrize("asked", ["Where was the walrus?", "Good morning!"])
async def test_what_a_fork_has_copied_is_not_recalled_from_its_origin(asked: str, upto: int) -> None:
    """Neither found nor to fill the room that is left; what was said behind the place of the fork is."""
    said = ["I saw a walrus at the pier.", "That walrus was as big as a car.", "The walrus ate all the clams."]
    async with await _open_library() as perdure:
        agent = await perdure.create_agent(settings=ON)
        for text in said:
            await agent.send(text)
        rows = [message for message in await agent.messages() if message.role == "user"]
        fork = await agent.fork_conversation(upto=rows[upto].id)

        await agent.send(asked, conversation=fork.id)

        recalled = (await _tails(agent))[-1]
        assert [text for text in said if text in recalled] == said[upto + 1 :]


async def test_a_bypassed_conversation_is_left_alone() -> None:
    """By its id here; the agent's other conversations go on as they were."""
    async with await _open_library() as perdure:
        agent = await perdure.create_agent(settings=ON)
        await agent.archive("Walruses eat clams.")
        private = (await agent.new_conversation()).id
        agent = await agent.update(settings={**ON, "bypass_session_patterns": [f"{private[:20]}*"]})

        await agent.send("What do walruses eat?", conversation=private)
        await agent.send("What do walruses eat?")

        assert [bool(text) for text in await _tails(agent)] == [False, True]


async def test_a_slow_search_delays_no_answer_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """A query's vector that does not come in time leaves the words; a search that does not, nothing but a note."""
    embedder = ScriptedEmbedder()
    embedder.hang()
    async with await _open_library(embedder=embedder) as perdure:
        ports = perdure.app.ports
        runner: Runner = perdure.app.runner
        runner._ports = replace(ports, settings=replace(ports.settings, recall_timeout_s=3.0))
        agent = await perdure.create_agent(settings=ON)
        await agent.archive("Walruses eat clams.")

        assert "Walruses eat clams." in (await _tails_after(agent, "What do walruses eat?"))[-1]

        async def stuck(*args: Any, **more: Any) -> Any:
            await asyncio.sleep(3_600)

        monkeypatch.setattr(ports.search, "recall", stuck)
        runner._ports = replace(ports, settings=replace(ports.settings, recall_timeout_s=0.2))
        events = await _send(agent, "What do walruses eat?")
        (told,) = [event for event in events if isinstance(event, MemoryRecalled)]
        assert (told.sources, told.problem) == ((), "it was not done within 0.2 s")
        assert (await _tails(agent))[-1] == ""


async def _tails_after(agent: Any, text: str) -> list[str]:
    await agent.send(text)
    return await _tails(agent)


async def test_what_is_recalled_goes_first_when_the_window_is_full() -> None:
    """A message that leaves no room for it is answered without it."""
    async with await _open_library() as perdure:
        on = {"auto_recall": {"budget_tokens": 1_000, "floor": 0}, "context_window_tokens": 6_000}
        agent = await perdure.create_agent(settings=on)
        for number in range(40):
            await agent.archive(f"Walrus number {number} eats clams at the pier.")
        overview = await agent.context()
        room = overview.free_tokens - 300

        reply = await agent.send("walrus " + "x" * room * 2)

        assert reply.stop_reason == "end_turn"
        (step,) = await agent.steps()
        request = await agent.request(step.id)
        assert step.estimated_tokens <= overview.window_tokens - overview.reserve_tokens
        assert parse_recalled(request.tail) == ""


async def test_agents_without_it_search_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither an agent that has it off, nor one that has nothing out of view."""

    async def never(*args: Any, **more: Any) -> Any:
        raise AssertionError("searched")

    perdure = await open_async(tmp_path / "p.db")
    async with perdure:
        monkeypatch.setattr(perdure.app.ports.search, "recall", never)
        plain, fresh = (
            await perdure.create_agent("plain", settings={"auto_recall": False}),
            await perdure.create_agent("fresh"),
        )
        await plain.archive("Walruses eat clams.")
        for agent in (plain, fresh):
            for text in ("What do walruses eat?", "And seals?"):
                events = await _send(agent, text)
                assert not [event for event in events if isinstance(event, MemoryRecalled)]


async def test_a_message_that_waited_is_looked_up_when_its_turn_comes() -> None:
    """Behind another run of its conversation it has no request yet."""
    async with await _open_library() as perdure:
        agent = await perdure.create_agent(settings=ON)
        await agent.archive("Walruses eat clams.")
        accepted = [await agent.submit(text) for text in ("Hello.", "What do walruses eat?")]
        for one in accepted:
            async for _ in agent.follow(one.run.id):
                pass

        assert [bool(text) for text in await _tails(agent)] == [False, True]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"auto_recall": 3}, "auto_recall is 3: give true, false, or an object"),
        ({"auto_recall": {"budget": 3}}, "auto_recall has no 'budget': there are budget_tokens, floor"),
        ({"auto_recall": {"budget_tokens": 0}}, "auto_recall.budget_tokens is 0: give a whole number from 1 to 20,000"),
        ({"auto_recall": {"floor": 2}}, "auto_recall.floor is 2: give a number from 0 to 1"),
        ({"auto_capture": {"commit_token_threshold": "9"}}, "auto_capture.commit_token_threshold is '9'"),
        ({"auto_recal": True}, "there is no setting 'auto_recal': is it 'auto_recall'?"),
        ({"autocapture": True}, "there is no setting 'autocapture': is it 'auto_capture'?"),
        ({"max_files_open": 0}, "max_files_open is 0: give a whole number from 1 on"),
        ({"auto_capture": {"archive": "mine"}}, "auto_capture.archive is 'mine': give an archive's id"),
        ({"bypass_session_patterns": "conv-*"}, "bypass_session_patterns is 'conv-\\*': give a list"),
        ({"bypass_session_patterns": [""]}, "bypass_session_patterns has ''"),
    ],
)
async def test_settings_that_can_not_be_worked_by_are_refused(settings: dict[str, Any], message: str) -> None:
    """With field and value; no agent is made."""
    async with await _open_library() as perdure:
        with pytest.raises(InvalidInput, match=message):
            await perdure.create_agent(settings=settings)
        assert await perdure.agents() == []


@pytest.mark.uses("extractive")
async def test_the_built_in_model_reads_a_request_with_a_recalled_tail() -> None:
    """It still knows the date, and answers."""
    async with await AsyncPerdure.open(store=InlineStore(), settings=Settings(embedding="none")) as perdure:
        agent = await perdure.create_agent(model="perdure/extractive", settings=ON)
        await agent.archive("Ada's walrus eats clams.")

        reply = await agent.send("My name is Ada. What does the walrus eat?")

        (first, *_) = await _tails(agent)
        assert "clams" in first
        assert reply.stop_reason == "end_turn"
        assert json.loads((await agent.request((await agent.steps())[0].id)).tail)["date"]
