"""The ledger of a conversation: what each request cost, what broke its prefix, and what summaries cost."""

from __future__ import annotations

import asyncio
import json
import xml.etree.ElementTree as ET
from collections.abc import AsyncIterator
from dataclasses import dataclass

import pytest

from perdure import AsyncAgent, AsyncPerdure, InvalidInput, RunFailed
from perdure.core.messages import Reasoning
from perdure.core.models import ModelReply
from perdure.core.runs import Usage
from perdure.features.costs.ledger import RequestCost, build_ledger
from perdure.features.costs.plot import KINDS, build_columns, describe, render_svg
from perdure.testing import FakeClock, InlineStore, ScriptedModel, SequentialIds
from tests.support.caching_model import CachingModel

MODEL = "anthropic/claude-sonnet-4-5"  # its prices are in the catalog


def shout(text: str) -> str:
    """Return a text in capitals.

    Args:
        text: what to shout.
    """
    return text.upper()


@dataclass
class Talk:
    perdure: AsyncPerdure
    agent: AsyncAgent
    model: CachingModel
    clock: FakeClock

    async def say(self, text: str, times: int = 1) -> RequestCost:
        """Send a message, and return what the newest request cost."""
        for _ in range(times):
            self.clock.advance(60)
            await self.agent.send(text)
            while tasks := self.perdure.app.runner.after_runs.tasks:
                await asyncio.wait(tasks)
        return (await self.agent.costs()).requests[-1]


@pytest.fixture
async def talk() -> AsyncIterator[Talk]:
    clock = FakeClock()
    model = CachingModel(clock)
    async with await AsyncPerdure.open(
        store=InlineStore(), models={MODEL: model}, tools=[shout], clock=clock, ids=SequentialIds()
    ) as perdure:
        agent = await perdure.create_agent(
            "a", model=MODEL, settings={"context_window_tokens": 12_000, "auto_recall": False}
        )
        yield Talk(perdure, agent, model, clock)


async def test_an_answer_that_is_refused_is_paid_for() -> None:
    """The provider bills an empty answer too, so the run and the ledger have its tokens."""
    usage = Usage(input_tokens=900, output_tokens=3)
    empty = ScriptedModel(ModelReply(parts=(Reasoning("hm"),), usage=usage))
    async with await AsyncPerdure.open(store=InlineStore(), models={MODEL: empty}) as perdure:
        agent = await perdure.create_agent("b", model=MODEL)
        with pytest.raises(RunFailed):
            await agent.send("hi")
        (run,) = await agent.runs()
        (request,) = (await agent.costs()).requests

    assert (request.status, request.input_tokens, request.output_tokens) == ("failed", 900, 3)
    assert request.price
    assert run.usage == usage


@pytest.mark.slow
async def test_the_ledger_agrees_with_what_the_provider_reported_and_with_each_explanation(talk: Talk) -> None:
    """Part by part; the parts sum to the request, and requests and summaries to the whole."""
    await talk.say("word " * 120, times=45)
    ledger = await talk.agent.costs()
    totals = ledger.totals

    for request, usage in zip(ledger.requests, talk.model.usages, strict=True):
        found = await talk.agent.explain(request.step_id)
        assert [(part.name, part.tokens, part.price) for part in request.parts] == [
            (part.name, part.tokens, part.price) for part in found.segments
        ]
        assert request.input_tokens == usage.input_tokens
        assert request.cached_tokens == usage.cached_input_tokens
        assert request.written_tokens == usage.cache_write_tokens
        assert request.price == pytest.approx(found.price)
    assert sum(part.tokens for part in ledger.parts) == totals.input_tokens
    assert totals.summaries > 0
    assert totals.summary_tokens == sum(one.input_tokens + one.output_tokens for one in talk.model.summary_usages)
    assert totals.request_price is not None and totals.summary_price is not None
    assert totals.price == pytest.approx(totals.request_price + totals.summary_price)
    assert totals.uncached_price is not None and (totals.price or 0) < totals.uncached_price


async def test_a_conversation_that_goes_on_misses_nothing(talk: Talk) -> None:
    await talk.say("hello")
    second = await talk.say("and now?")

    assert (second.rewrites, second.miss_reason) == ((), None)
    assert second.missed_tokens < 10  # of rounding
    assert second.cached_tokens > 1_000


async def test_a_new_tool_is_named_as_what_broke_the_prefix(talk: Talk) -> None:
    await talk.say("hello")
    await talk.agent.tools.detach("shout")
    without = await talk.say("hello")
    await talk.agent.tools.attach("shout")
    with_it = await talk.say("hello")

    assert describe(without) == "the agent changed: tool shout removed"
    assert describe(with_it) == "the agent changed: tool shout added"
    assert with_it.miss_reason == "prefix"
    assert with_it.missed_tokens > 0.9 * without.input_tokens - with_it.cached_tokens - 100


async def test_the_setting_that_changed_is_named(talk: Talk) -> None:
    await talk.say("hello")
    await talk.agent.update(settings={"context_window_tokens": 11_000, "auto_recall": False})
    smaller = await talk.say("hello")
    await talk.agent.update(system="You are a pirate.")
    pirate = await talk.say("hello")

    assert describe(smaller) == "the agent changed: setting context_window_tokens changed"
    assert describe(pirate) == "the agent changed: system prompt changed"


async def test_the_memory_edit_that_is_folded_into_a_cold_prefix_is_named_with_its_author(talk: Talk) -> None:
    await talk.say("hello")
    await talk.agent.blocks.update("human", "Her name is Ada.")
    warm = await talk.say("hello")
    talk.clock.advance(7_200)
    cold = await talk.say("hello")

    assert warm.rewrites == ()  # a delta tells it
    assert describe(cold) == "the provider's cache had run out: block human changed by user"


async def test_a_pause_is_named_where_nothing_was_rewritten(talk: Talk) -> None:
    await talk.say("hello")
    talk.clock.advance(7_200)
    cold = await talk.say("hello")

    assert (cold.rewrites, cold.miss_reason) == ((), "idle")
    assert describe(cold) == "the conversation rested, and the provider's cache had run out"


@pytest.mark.slow
async def test_the_messages_that_left_a_full_window_are_named(talk: Talk) -> None:
    await talk.say("word " * 120, times=60)
    texts = [describe(request) for request in (await talk.agent.costs()).requests]

    assert any(text.startswith("the window was full: messages msg-0..") for text in texts)


async def test_a_message_that_was_changed_is_named(talk: Talk) -> None:
    await talk.say("hello")
    first = next(message for message in await talk.agent.messages() if message.role == "user")
    await talk.agent.update_message(first.id, "good evening")

    assert describe(await talk.say("hello")) == f"the agent changed: message msg-{first.seq} revised"


@pytest.mark.slow
async def test_older_requests_are_counted_where_a_limit_leaves_them_out(talk: Talk) -> None:
    await talk.say("hello", times=5)
    ledger, whole = await talk.agent.costs(limit=2), await talk.agent.costs()

    assert ledger.requests == whole.requests[-2:]
    assert (ledger.left_out, whole.left_out) == (3, 0)
    with pytest.raises(InvalidInput, match="limit is 0"):
        await talk.agent.costs(limit=0)


@pytest.mark.slow
async def test_the_plot_is_well_formed_and_shows_every_request(talk: Talk) -> None:
    """In a terminal's columns as in the picture: the sums are those of the ledger, however few columns there are."""
    await talk.say("word " * 120, times=12)
    await talk.agent.tools.detach("shout")
    await talk.say("hello")
    ledger = await talk.agent.costs()
    picture = ET.fromstring(render_svg(ledger, title="Costs of <a> & b"))

    assert [(column.first, column.last) for column in build_columns(ledger, 4)] == [(1, 3), (4, 6), (7, 9), (10, 13)]
    for most in (1, 5, 100):
        columns = build_columns(ledger, most)
        for kind, sums in zip(KINDS, zip(*(column.tokens for column in columns), strict=True), strict=True):
            sizes = [column.last - column.first + 1 for column in columns]
            tokens = sum(mean * size for mean, size in zip(sums, sizes, strict=True))
            assert tokens == pytest.approx(sum(getattr(one, f"{kind}_tokens") for one in ledger.requests))
        assert columns[-1].price == pytest.approx(ledger.totals.price)
    titles = [element.text or "" for element in picture.iter("{http://www.w3.org/2000/svg}title")]
    assert titles[0].startswith("Costs of <a> & b: 13 requests")
    assert sum(title.startswith("request ") for title in titles) == 13
    assert "new prefix: the agent changed" in titles[-1]


async def test_a_conversation_without_requests_costs_nothing(talk: Talk) -> None:
    ledger = await talk.agent.costs()

    assert ledger == build_ledger(ledger.conversation_id, (), ())
    assert ledger.totals.price is None
    assert "no request yet" in render_svg(ledger)
    assert json.dumps(ledger.to_dict())
