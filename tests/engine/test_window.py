"""The view of a long conversation: it fits, begins where a run begins, and never ends on an outdated memory."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from perdure import AsyncPerdure, Delta, StoredEvent
from perdure.context.sections.assemble import canonical
from perdure.context.sections.tokens import ScriptTokenCounter
from perdure.core.events import PrefixRewritten
from perdure.core.messages import Message
from perdure.core.models import ModelRequest
from perdure.domain.blocks.units import NewBlock
from perdure.testing import FakeClock, InlineStore, ScriptedModel, SequentialIds, calls, says

MODEL = "test/scripted"
WINDOW = 8_400
FILLER = "word " * 400  # about 800 tokens by the estimate


async def open_library(model: ScriptedModel, clock: FakeClock | None = None) -> AsyncPerdure:
    return await AsyncPerdure.open(
        store=InlineStore(), models={MODEL: model}, clock=clock or FakeClock(), ids=SequentialIds()
    )


def count_tokens(request: ModelRequest) -> int:
    return ScriptTokenCounter().count(canonical(request).decode())


def log_messages(request: ModelRequest) -> list[Message]:
    """The rows of the log that a request shows, without the summary before them."""
    return [message for message in request.messages if message.kind != "summary"]


def list_rewrite_reasons(events: Sequence[StoredEvent | Delta]) -> list[str]:
    """Why prefixes were written anew, in order."""
    stored = [sent.event for sent in events if isinstance(sent, StoredEvent)]
    return [event.reason for event in stored if isinstance(event, PrefixRewritten)]


async def test_a_conversation_longer_than_the_window_goes_on_with_its_newest_runs() -> None:
    """Every request fits; what went out of view went by whole runs, with a reason, and is still found."""
    model = ScriptedModel(otherwise=lambda request: says("noted"))
    rewritten: list[str] = []
    async with await open_library(model) as perdure:
        agent = await perdure.create_agent(
            "a", model=MODEL, settings={"context_window_tokens": WINDOW, "auto_recall": False}
        )
        for number in range(20):
            rewritten += list_rewrite_reasons([sent async for sent in agent.stream(f"message {number} {FILLER}")])
        found = await agent.search('"message 3"')

    assert all(count_tokens(request) <= WINDOW for request in model.requests)
    assert all(log_messages(request)[0].role == "user" for request in model.requests)
    assert [request.messages[-1].text.split()[1] for request in model.requests] == [str(number) for number in range(20)]
    assert set(rewritten) == {"first", "window"}
    assert 1 < rewritten.count("window") < 10  # each makes room for several runs
    assert found[0].message.text.startswith("message 3 ")


async def test_a_run_that_calls_tools_is_never_cut_in_two() -> None:
    """The view begins at a person's message also when the runs before it are full of calls."""
    model = ScriptedModel()
    for _ in range(8):
        model._script += [calls("memory_insert", label="notes", new_string=FILLER[:200]), says("noted")]
    async with await open_library(model) as perdure:
        agent = await perdure.create_agent(
            "a",
            model=MODEL,
            settings={"context_window_tokens": WINDOW, "auto_recall": False},
            blocks=[NewBlock(label="notes", limit_chars=50_000)],
        )
        for number in range(8):
            await agent.send(f"{number} {FILLER}")

    for request in model.requests:
        assert log_messages(request)[0].role == "user"
        assert count_tokens(request) <= WINDOW


async def test_a_smaller_window_holds_from_the_next_request_on() -> None:
    """The settings are the reason; the cut comes with it."""
    model = ScriptedModel()
    async with await open_library(model) as perdure:
        agent = await perdure.create_agent("a", model=MODEL)
        for number in range(12):
            await agent.send(f"{number} {FILLER}")
        await agent.update(settings={"context_window_tokens": WINDOW, "auto_recall": False})
        await agent.send("and now?")

    assert count_tokens(model.requests[-2]) > WINDOW
    assert count_tokens(model.requests[-1]) <= WINDOW


@pytest.mark.parametrize("reason", ["settings", "cache_cold"])
async def test_after_a_new_prefix_the_last_word_on_a_block_is_the_newest(reason: str) -> None:
    """An older delta still in view must not stand behind a prefix that knows better."""
    model, clock = ScriptedModel(), FakeClock()
    async with await open_library(model, clock) as perdure:
        agent = await perdure.create_agent("a", model=MODEL)
        await agent.send("1")
        await agent.blocks.update("human", "name is Ada")
        await agent.send("2")
        await agent.blocks.update("human", "name is Bob")
        if reason == "settings":
            agent = await agent.update(settings={"context_window_tokens": 50_000, "auto_recall": False})
        else:
            clock.advance(7_200)
        events = [sent async for sent in agent.stream("3")]

    deltas = [message.text for message in model.requests[-1].messages if message.kind == "memory_delta"]
    assert list_rewrite_reasons(events) == [reason]
    assert "name is Bob" in model.requests[-1].system
    assert "name is Bob" in deltas[-1]
