"""What fills the window: the parts are those of the next request, and sum to the window."""

from __future__ import annotations

from typing import Any

import pytest

from perdure import AsyncPerdure, ModelReply, ModelRequest, Text, Usage
from perdure.context.request.overview import ContextOverview
from perdure.context.sections.tokens import MESSAGE_OVERHEAD_TOKENS, ScriptTokenCounter
from perdure.context.window.budget import Certificate, Segment
from perdure.core.errors import NotFound
from perdure.core.ids import ConversationId
from perdure.settings import Settings
from perdure.testing import FakeClock, InlineStore, ScriptedModel, SequentialIds, calls, says

MODEL = "test/scripted"
COUNTER = ScriptTokenCounter()


async def open_library(*script: Any, otherwise: Any = None) -> AsyncPerdure:
    return await AsyncPerdure.open(
        store=InlineStore(),
        models={MODEL: ScriptedModel(*script, otherwise=otherwise)},
        settings=Settings(model=MODEL),
        clock=FakeClock(),
        ids=SequentialIds(),
    )


def build_overview(tokens: int, *, overcount: int = 0) -> ContextOverview:
    """An overview of 1,000 tokens of which 250 are kept for the answer."""
    parts = (Segment("tools", 10), Segment("system prompt", 90), Segment("messages", tokens))
    return ContextOverview(
        model="a/b",
        certificate=Certificate(window_tokens=1_000, reserve_tokens=250, segments=parts, overcount=overcount),
        sent=True,
    )


@pytest.mark.parametrize("overcount", [0, 61, -40])
def test_the_parts_the_reserve_and_the_rest_are_the_window(overcount: int) -> None:
    """Also when the estimate is corrected: then each part is its share of what is left."""
    overview = build_overview(201, overcount=overcount)

    assert overview.used_tokens == 301 - overcount == sum(part.tokens for part in overview.parts)
    assert overview.used_tokens + overview.reserve_tokens + overview.free_tokens == overview.window_tokens
    assert [part.estimated_tokens for part in overview.parts] == [10, 90, 201]
    assert overview.over_tokens == 0


def test_more_than_fits_is_said_to_be() -> None:
    """Nothing is free then, and how much has to go is known."""
    overview = build_overview(2_000)

    assert overview.free_tokens == 0
    assert overview.over_tokens == 2_100 + 250 - 1_000


async def test_the_overview_is_what_the_next_request_is_sent_on() -> None:
    """With the new message, its estimate is that of the step to the token; a memory edit from outside is counted."""
    async with await open_library(otherwise=says("Hello.")) as perdure:
        agent = await perdure.create_agent("Ada", settings={"context_window_tokens": 16_000})
        for text in ("hello", "and again", "a third time"):
            before = await agent.context()
            await agent.send(text)
            step = (await agent.steps(limit=1))[0]

            said = COUNTER.count(text) + MESSAGE_OVERHEAD_TOKENS
            assert before.estimated_tokens + said == step.estimated_tokens, text
            assert (before.window_tokens, before.reserve_tokens) == (16_000, 4_000)
            await agent.blocks.append("human", f"said {text}")
            assert (await agent.context()).pending_edits == 1


async def test_what_was_measured_corrects_the_estimate() -> None:
    """And is told apart from what was not: before the first answer, and after the settings changed."""

    def half(request: ModelRequest) -> ModelReply:
        return ModelReply(parts=(Text("Hm."),), usage=Usage(input_tokens=1_500, output_tokens=2))

    async with await open_library(otherwise=half) as perdure:
        agent = await perdure.create_agent("Ada")
        first = await agent.context()
        await agent.send("hello")
        after = await agent.context()
        agent = await agent.update(description="d", system="Be brief. {CORE_MEMORY}")
        changed = await agent.context()

        assert (first.measured_tokens, first.sent, first.rewrite) == (None, False, "first")
        assert (after.measured_tokens, after.sent, after.rewrite) == (1_500, True, None)
        assert 1_500 < after.used_tokens < 1_540 < after.estimated_tokens
        assert (changed.measured_tokens, changed.sent, changed.rewrite) == (None, False, "settings")
        assert changed.estimated_tokens < after.estimated_tokens


async def test_summaries_and_stubs_in_view_are_told() -> None:
    """What left the window is counted behind the handles of its summaries."""
    filler = "word " * 400
    async with await open_library(otherwise=says("noted")) as perdure:
        agent = await perdure.create_agent("Ada", settings={"context_window_tokens": 8_000})
        for number in range(12):
            await agent.send(f"{number} {filler}")
        await agent.send(filler * 12)
        overview = await agent.context()
        parts = {part.name: part.tokens for part in overview.parts}

        assert overview.nodes
        assert parts["summary"] > 0
        assert overview.stubs
        assert overview.over_tokens == 0
        assert overview.hidden_messages + overview.message_count >= await agent.message_count()


async def test_a_call_that_is_open_is_left_out() -> None:
    """While a tool runs, the view ends before its call: a request could not be made of it."""
    seen: list[ContextOverview] = []

    async def look() -> str:
        """Look at the context."""
        seen.append(await agent.context())
        return "looked"

    perdure = await AsyncPerdure.open(
        store=InlineStore(),
        models={MODEL: ScriptedModel(calls("look"), says("done"))},
        settings=Settings(model=MODEL),
        tools=[look],
    )
    async with perdure:
        agent = await perdure.create_agent("Ada")
        await agent.send("look")

        (during,) = seen
        assert during.message_count == 1
        assert {part.name: part.tokens for part in during.parts}["newest turn"] > 0
        assert (await agent.context()).message_count == 4


async def test_the_context_of_a_conversation_that_is_not_there_is_an_error() -> None:
    """Also of another agent's."""
    async with await open_library() as perdure:
        agent, other = await perdure.create_agent("Ada"), await perdure.create_agent("Bob")
        theirs = await other.new_conversation()

        for conversation in (theirs.id, ConversationId("conv-00000000-0000-4000-8000-000000000000")):
            with pytest.raises(NotFound):
                await agent.context(conversation=conversation)
