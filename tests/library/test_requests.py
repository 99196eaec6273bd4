"""Requests that were made, looked at later: listed, built again byte for byte, explained."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from perdure import AsyncPerdure, ModelReply, ModelRequest, Perdure, Text, Usage
from perdure.context.sections.assemble import canonical, digest_of
from perdure.core.errors import InvalidInput, NotFound, ReplayMismatch
from perdure.core.ids import RunId, StepId
from perdure.core.models import ModelOptions
from perdure.settings import Settings
from perdure.testing import FakeClock, InlineStore, ScriptedModel, calls, fails, says
from tests.support.library import open_sync

MODEL = "openai/gpt-4.1"  # its prices are in the catalog
FILLER = "word " * 400


async def open_library(model: ScriptedModel, clock: FakeClock | None = None, path: Path | None = None) -> AsyncPerdure:
    store = InlineStore() if path is None else InlineStore(path)
    return await AsyncPerdure.open(
        store=store, models={MODEL: model}, settings=Settings(model=MODEL), clock=clock or FakeClock()
    )


def tamper(path: Path, sql: str, *values: str) -> None:
    """Change the file behind the store's back."""
    with closing(sqlite3.connect(path)) as connection, connection:
        assert connection.execute(sql, values).rowcount


def measured(request: ModelRequest) -> ModelReply:
    """An answer to a request that was as large as its bytes suggest, two thirds of it from the cache."""
    tokens = len(canonical(request)) // 4
    usage = Usage(input_tokens=tokens, output_tokens=10, cached_input_tokens=tokens * 2 // 3)
    return ModelReply(parts=(Text("Noted."),), usage=usage)


async def test_every_request_is_built_again_byte_for_byte() -> None:
    """Whatever happened since: memory edits, evictions, stubs, other settings, a removed message."""
    model = ScriptedModel(calls("memory_insert", label="human", new_string="Name: Ada"), otherwise=measured)
    async with await open_library(model) as perdure:
        agent = await perdure.create_agent("Ada", settings={"context_window_tokens": 8_000})
        await agent.send("I am Ada.")
        for number in range(12):
            await agent.send(f"{number} {FILLER * (1 + number % 3)}")
            if number % 4 == 0:
                await agent.blocks.append("human", f"said {number}")
        await agent.update(
            system="Be brief. {CORE_MEMORY}", settings={"context_window_tokens": 9_000, "temperature": 0}
        )
        await agent.send("and now?")
        await agent.send("and \ud800 then?")
        steps = await agent.steps(limit=100)
        requests = [await agent.request(step.id) for step in steps]

    assert len(steps) == len(model.requests)
    assert [canonical(request) for request in reversed(requests)] == [canonical(request) for request in model.requests]
    assert {step.rewritten for step in steps} >= {"first", "window", "settings"}
    assert (requests[0].options.temperature, requests[-1].options) == (0, ModelOptions())


async def test_a_request_that_was_sent_otherwise_is_an_error(tmp_path: Path) -> None:
    """A store that was tampered with is told from one that was not; so is one of which something is missing."""
    path = tmp_path / "perdure.db"
    async with await open_library(ScriptedModel(otherwise=measured), path=path) as perdure:
        agent = await perdure.create_agent("Ada")
        await agent.send("I am Ada.")
        (step,) = await agent.steps()
        tamper(path, "UPDATE messages SET parts = replace(parts, 'Ada', 'Eve') WHERE role = 'user'")

        with pytest.raises(ReplayMismatch, match="can't be rebuilt") as mismatch:
            await agent.request(step.id)
        assert mismatch.value.step_id == step.id
        assert len(mismatch.value.recorded) == len(mismatch.value.rebuilt) == 64
        assert mismatch.value.recorded != mismatch.value.rebuilt
        with pytest.raises(ReplayMismatch):
            await agent.explain(step.id)

        tamper(path, "DELETE FROM prefixes")
        with pytest.raises(ReplayMismatch, match="prefix") as missing:
            await agent.request(step.id)
        assert missing.value.rebuilt == ""


async def test_a_step_of_an_older_store_is_rebuilt_without_a_check(tmp_path: Path) -> None:
    """It recorded no digest: there is nothing to compare with, and its explanation says so."""
    path = tmp_path / "perdure.db"
    async with await open_library(ScriptedModel(otherwise=measured), path=path) as perdure:
        agent = await perdure.create_agent("Ada")
        await agent.send("I am Ada.")
        (step,) = await agent.steps()
        digest = digest_of(await agent.request(step.id))
        tamper(path, "UPDATE steps SET recipe = replace(recipe, ?, '')", digest)

        assert digest_of(await agent.request(step.id)) == digest
        assert (await agent.explain(step.id)).digest == ""


async def test_steps_are_listed_newest_first() -> None:
    """Of the agent, of a conversation, of a run; page by page; with what each took and where the cache was lost."""
    clock = FakeClock()
    model = ScriptedModel(calls("conversation_search", query="x"), otherwise=measured)
    async with await open_library(model, clock) as perdure:
        agent = await perdure.create_agent("Ada")
        first = await agent.send("one")
        line = await agent.new_conversation()
        second = await agent.send("two", conversation=line.id)
        await agent.send("three")
        clock.advance(7_200)
        await agent.blocks.update("human", "Name: Ada")
        await agent.send("four")
        steps = await agent.steps()

        assert [step.rewritten for step in steps] == ["cache_cold", None, "first", None, "first"]
        assert [step.run_id for step in steps[2:]] == [second.run_id, first.run_id, first.run_id]
        assert [step.index for step in steps] == [0, 0, 0, 1, 0]
        assert [step.id for step in await agent.steps(conversation=line.id)] == [steps[2].id]
        assert list(await agent.steps(run_id=first.run_id)) == steps[3:]
        assert list(await agent.steps(run_id=first.run_id, before=steps[3].id)) == steps[4:]
        assert await agent.steps(run_id=first.run_id, conversation=line.id) == []
        page = await agent.steps(limit=2)
        assert [*page, *await agent.steps(before=page[-1].id)] == steps
        usage = steps[0].usage
        plain = usage.input_tokens - usage.cached_input_tokens
        assert steps[0].price == pytest.approx((plain * 2 + usage.cached_input_tokens * 0.5 + 10 * 8) / 1_000_000)


async def test_a_failed_step_is_listed_with_its_estimate() -> None:
    """Nothing was measured of it, so it has no price; the request that failed can be looked at."""
    model = ScriptedModel(fails("the provider is down"))
    async with await open_library(model) as perdure:
        agent = await perdure.create_agent("Ada")
        async for _ in agent.stream("hello"):
            pass
        (step,) = await agent.steps()
        found = await agent.explain(step.id)

        assert (step.status, step.price, step.usage) == ("failed", None, Usage())
        assert step.failure is not None
        assert not found.measured
        assert found.input_tokens == step.estimated_tokens > 0
        assert canonical(await agent.request(step.id)) == canonical(model.requests[0])


async def test_an_explanation_adds_up_to_what_was_measured() -> None:
    """The parts are those of the request; the price is the step's."""
    async with await open_library(ScriptedModel(otherwise=measured)) as perdure:
        agent = await perdure.create_agent("Ada", human="Name: Ada")
        await agent.send("one")
        await agent.send("two")
        step = (await agent.steps(limit=1))[0]
        found = await agent.explain(step.id)

        assert (found.input_tokens, found.cached_tokens) == (step.usage.input_tokens, step.usage.cached_input_tokens)
        assert all(part.tokens for part in found.segments if part.name != "summary")
        assert sum(part.estimated_tokens for part in found.segments) == found.estimated_tokens
        assert found.price == pytest.approx(step.price)
        assert found.message_count == 3


async def test_another_agent_s_steps_are_not_found() -> None:
    """Whether they exist or not."""
    async with await open_library(ScriptedModel(says("hi"))) as perdure:
        agent, other = await perdure.create_agent("Ada"), await perdure.create_agent("Bob")
        sent = await agent.send("hello")
        (step,) = await agent.steps()

        for step_id in (step.id, StepId("step-00000000-0000-4000-8000-000000000000"), StepId("nonsense")):
            for look in (other.request(step_id), other.explain(step_id), other.steps(before=step_id)):
                with pytest.raises(NotFound):
                    await look
        with pytest.raises(NotFound):
            await other.steps(run_id=sent.run_id)
        with pytest.raises(NotFound):
            await agent.steps(run_id=RunId("run-00000000-0000-4000-8000-000000000000"))
        for limit in (0, 10_001):
            with pytest.raises(InvalidInput):
                await agent.steps(limit=limit)


def test_plain_calls_give_the_same(tmp_path: Path) -> None:
    """`Agent` has the methods of `AsyncAgent`."""
    with open_sync(tmp_path / "agents.db", says("hi")) as perdure:
        agent = perdure.create_agent("Ada")
        agent.send("hello")
        (step,) = agent.steps()

        assert agent.request(step.id).messages[-1].text == "hello"
        assert agent.explain(step.id).step_id == step.id
        assert isinstance(perdure, Perdure)
