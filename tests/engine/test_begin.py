"""A message that nothing stands before: accepted and begun in one transaction."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from perdure import AsyncPerdure
from perdure.core.errors import RunFailed
from perdure.core.models import ModelDelta, ModelReply, ModelRequest
from perdure.storage.stores.open import open_store
from perdure.testing import InlineStore, ScriptedModel, calls, says
from perdure.testing.clock import START

MODEL = "test/scripted"


class Counting(InlineStore):
    """A store that counts its commits."""

    commits = 0

    async def write(self, unit: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        self.commits += 1
        return await super().write(unit, *args, **kwargs)


class Slow(ScriptedModel):
    """A model that takes a minute."""

    async def respond(self, request: ModelRequest) -> AsyncIterator[ModelDelta | ModelReply]:
        await asyncio.sleep(60)
        async for piece in super().respond(request):
            yield piece


async def test_a_plain_reply_takes_two_commits() -> None:
    """One before the model is asked, one after it has answered."""
    store = Counting()
    async with await AsyncPerdure.open(store=store, models={MODEL: ScriptedModel()}) as perdure:
        agent = await perdure.create_agent("a", model=MODEL)
        store.commits = 0

        await agent.send("hello")

        assert store.commits == 2


async def test_every_request_shows_all_that_was_said(tmp_path: Path) -> None:
    """Whether its rows were read or are known from the run that wrote them; also with another conversation between."""
    model = ScriptedModel(calls("conversation_search", query="one"), otherwise=says("ok"))
    async with await AsyncPerdure.open(tmp_path / "agents.db", models={MODEL: model}) as perdure:
        agent = await perdure.create_agent("a", model=MODEL)
        other = await agent.new_conversation()
        await agent.send("one")
        await agent.send("aside", conversation=other.id)
        await agent.send("two")
        await agent.send("three")

        shown = [(message.role, message.text) for message in model.requests[-1].messages]
        said = [(message.role, message.text) for message in await agent.messages() if message.conversation_seq == 0]

        assert shown == said[:-1]
        assert [text for role, text in shown if role == "user"] == ["one", "two", "three"]


async def test_a_message_whose_sender_left_does_not_block_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was accepted and begun, and its sender is gone before anything of it could be driven."""
    handed = asyncio.Event()
    store = await open_store(tmp_path / "agents.db", at=START)
    write = store.write

    async def note_and_write(*arguments: Any, **named: Any) -> Any:
        handed.set()
        return await write(*arguments, **named)

    async with await AsyncPerdure.open(store=store, models={MODEL: ScriptedModel()}) as perdure:
        agent = await perdure.create_agent("a", model=MODEL)
        monkeypatch.setattr(store, "write", note_and_write)
        leaving = asyncio.create_task(agent.send("one"))
        await handed.wait()
        leaving.cancel()

        async with asyncio.timeout(50):
            assert (await agent.send("two")).text == "OK."

        said = [message.text for message in await agent.messages()]
        assert said == ["one", "OK.", "two", "OK."]


async def test_a_message_whose_sender_left_is_answered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody has to find its run later: it is driven as soon as it is accepted."""
    handed = asyncio.Event()
    store = await open_store(tmp_path / "agents.db", at=START)
    write = store.write

    async def note_and_write(*arguments: Any, **named: Any) -> Any:
        handed.set()
        return await write(*arguments, **named)

    async with await AsyncPerdure.open(store=store, models={MODEL: Slow()}) as perdure:
        agent = await perdure.create_agent("a", model=MODEL)
        monkeypatch.setattr(store, "write", note_and_write)
        leaving = asyncio.create_task(agent.send("one"))
        await handed.wait()
        leaving.cancel()
        runner = perdure.app.runner
        await asyncio.gather(leaving, *runner._accepting, return_exceptions=True)

        assert list(runner._drivers) == [(agent.id, 0)]


async def test_a_run_cancelled_as_soon_as_it_is_accepted_ends() -> None:
    """Its model is not waited for."""
    async with await AsyncPerdure.open(store=InlineStore(), models={MODEL: Slow()}) as perdure:
        agent = await perdure.create_agent("a", model=MODEL)
        accepted = await agent.submit("hello")

        await agent.cancel(accepted.run.id)

        async with asyncio.timeout(50):
            events = [event async for event in agent.follow(accepted.run.id)]
        assert events
        assert (await agent.run(accepted.run.id)).status == "cancelled"


async def test_a_prefix_that_cannot_be_written_fails_the_run_and_keeps_the_message(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """What was said is in the log, and the next message is answered."""

    def broken(*arguments: object, **named: object) -> str:
        raise ZeroDivisionError("planted")

    caplog.set_level(logging.CRITICAL)
    async with await AsyncPerdure.open(store=InlineStore(), models={MODEL: ScriptedModel()}) as perdure:
        agent = await perdure.create_agent("a", model=MODEL)
        with monkeypatch.context() as patch:
            patch.setattr("perdure.engine.prompt.prefixes.compile_system", broken)
            with pytest.raises(RunFailed, match="planted"):
                await agent.send("one")

        assert (await agent.send("two")).text == "OK."
        assert [message.text for message in await agent.messages()] == ["one", "two", "OK."]
