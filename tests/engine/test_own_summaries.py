"""With the modes `self_compact_...` the agent's own model writes summaries, behind the bytes that it was sent."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from perdure import AsyncAgent, AsyncPerdure
from perdure.context.sections.assemble import canonical
from perdure.core.errors import ModelOverflow
from perdure.core.models import ModelReply, ModelRequest
from perdure.core.nodes import SummaryNode
from perdure.testing import FakeClock, InlineStore, ScriptedModel, SequentialIds, calls, says

MODEL, OTHER = "test/scripted", "test/other"
GOOD = "They said message after message, word after word."
SELF = "self_compact_sliding_window"


async def compacted(
    summarises: Callable[[ModelRequest], ModelReply], *, say: int = 30, **settings: Any
) -> tuple[ScriptedModel, tuple[SummaryNode, ...]]:
    """The model of a conversation whose window was filled at least once, and its summaries."""
    model = ScriptedModel(summarises=summarises)
    async with await AsyncPerdure.open(
        store=InlineStore(), models={MODEL: model, OTHER: ScriptedModel()}, clock=FakeClock(), ids=SequentialIds()
    ) as perdure:
        own = {"context_window_tokens": 20_000, "auto_recall": False, "summaries": {"background": False}, **settings}
        agent = await perdure.create_agent("a", model=MODEL, settings=own, tools=["conversation_search"])
        await talk(agent, say)
        nodes = await perdure.app.store.read(lambda tx: tx.nodes.list(agent.id, 0, limit=100))
    return model, tuple(nodes)


async def talk(agent: AsyncAgent, count: int) -> None:
    for number in range(count):
        await agent.send(f"message {number} {'word ' * 300}")


def is_begun_by(request: ModelRequest, before: ModelRequest) -> bool:
    """Whether a request, without its last message, and one that was sent before have the same bytes as far as both go;
    the status of that one, which no provider caches, does not count."""
    one, other = (
        canonical(ModelRequest(model="", system=whole.system, tools=whole.tools, messages=messages))
        for whole, messages in ((request, request.messages[:-1]), (before, before.messages))
    )
    return one.startswith(other) or other.startswith(one)


@pytest.mark.parametrize("mode", [SELF, "self_compact_all"])
async def test_a_summary_is_asked_for_behind_the_bytes_that_were_sent(mode: str) -> None:
    """So the provider reads all of them from its cache; the request names what leaves, and has the agent's options."""
    model, nodes = await compacted(lambda _: says(GOOD), compaction={"mode": mode, "model": OTHER}, temperature=0.5)
    request = model.summary_requests[0]

    assert nodes[0].text.startswith(GOOD) and nodes[0].method == "normal"
    assert nodes[0].model == MODEL
    assert any(is_begun_by(request, before) for before in model.requests)
    assert len(request.messages) > 5 and request.tools and request.options.temperature == 0.5
    ask = request.messages[-1]
    assert ask.kind == "alert" and '"type": "summary_request", "marker": "' in ask.text
    shown = nodes[0].upto_message_seq - nodes[0].from_message_seq + 1
    assert f"the last {shown} messages before this one, from the one that begins with 'message 0 word" in ask.text


@pytest.mark.slow
async def test_later_summaries_follow_the_prefix_with_those_before() -> None:
    """Each leaves out what is recorded already; the audit is the same as of every summary."""
    model, nodes = await compacted(lambda _: says(GOOD), say=70, compaction={"mode": SELF})
    last = model.summary_requests[-1]

    assert len(nodes) > 1
    assert last.messages[0].kind == "summary"
    assert any(is_begun_by(last, before) for before in model.requests)
    count = int(last.messages[-1].text.partition("the last ")[2].split()[0])
    assert 1 < count < len(last.messages) - 1
    assert f"begins with '{last.messages[-1 - count].text[:12]}" in last.messages[-1].text


async def test_an_answer_that_calls_a_tool_is_repaired() -> None:
    """It is no record; the second request has the same beginning."""
    answers = iter([calls("conversation_search", query="word"), says(GOOD)])
    model, nodes = await compacted(lambda _: next(answers, says(GOOD)), compaction={"mode": SELF})
    first, repair = model.summary_requests[:2]

    assert (nodes[0].method, nodes[0].rejected) == ("aggressive", "empty")
    assert repair.messages[: len(first.messages)] == first.messages


async def test_what_the_provider_finds_too_large_is_summarised_from_a_transcript() -> None:
    """By the second call, so a summary never takes more than two."""

    def answer(request: ModelRequest) -> ModelReply:
        if request.tools:
            raise ModelOverflow("too many tokens")
        return says(GOOD)

    model, nodes = await compacted(answer, compaction={"mode": SELF})
    first, second = model.summary_requests[:2]

    assert first.tools and not second.tools
    assert "<source>" in second.messages[-1].text
    assert nodes[0].made_by == "model" and "ModelOverflow" in (nodes[0].rejected or "")


async def test_the_agent_s_instructions_and_form_of_answers() -> None:
    """Its own prompt is used; a form that answers must have is not for a summary."""
    model, _ = await compacted(
        lambda _: says(GOOD),
        compaction={"mode": SELF, "prompt": "Record it all in {words} words."},
        response_format={"type": "json_object"},
    )
    request = model.summary_requests[0]

    assert "Record it all in " in request.messages[-1].text and "{words}" not in request.messages[-1].text
    assert request.options.response_format is None


async def test_other_modes_show_the_model_a_transcript() -> None:
    model, _ = await compacted(lambda _: says(GOOD), compaction={"mode": "sliding_window"})

    assert not model.summary_requests[0].tools
    assert "<source>" in model.summary_requests[0].messages[-1].text
