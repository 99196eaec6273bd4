"""Tools that the program runs which sends the message: what is taken as one, and where functions are run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from perdure import AsyncPerdure, InvalidInput, MessageAdded, Perdure, RunEnded, tool
from perdure.core.errors import AnswerInvalid
from perdure.core.messages import ToolCall, ToolDecision
from perdure.core.tools.answers import ToolReturn
from perdure.settings import Settings
from perdure.testing import InlineStore, ScriptedModel, calls, says

MODEL = "test/scripted"
SETTINGS = Settings(model=MODEL, embedding="none")


@tool
def pay(n: int = 0) -> str:
    """Pay."""
    return f"paid {n}"


ran: list[int] = []


def here(n: int) -> str:
    """Look here."""
    ran.append(n)
    return f"here {n}"


@pytest.fixture(autouse=True)
def nothing_ran() -> Iterator[None]:
    ran.clear()
    yield


def open_library(*script: Any) -> Perdure:
    return Perdure(store=InlineStore(), models={MODEL: ScriptedModel(*script)}, tools=[pay], settings=SETTINGS)


def ends(events: list[Any]) -> list[str]:
    return [sent.event.stop_reason for sent in events if isinstance(getattr(sent, "event", None), RunEnded)]


def results(events: list[Any]) -> list[str]:
    added = [sent.event.message for sent in events if isinstance(getattr(sent, "event", None), MessageAdded)]
    return [message.text for message in added if message.results]


BOTH = calls("here", ToolCall("b", "here", '{"n": 2}'), call_id="a", n=1)
"""Two calls; the first answer of each test."""


def test_functions_are_run_while_a_message_is_streamed() -> None:
    """The events of the runs that go on follow those of the one that stopped."""
    with open_library(BOTH, calls("here", n=3), says("ok")) as perdure:
        agent = perdure.create_agent(tools=())
        events = list(agent.stream("go", client_tools=[here]))

        assert ends(events) == ["requires_approval", "requires_approval", "end_turn"]
        assert results(events) == ["here 1", "here 2", "here 3"]
        assert agent.pending() == ()


ANSWERS: dict[str, Callable[[Any, Any], Any]] = {
    "answer": lambda agent, answers: agent.answer(answers, client_tools=[here]),
    "stream_answer": lambda agent, answers: list(agent.stream_answer(answers, client_tools=[here])),
}


@pytest.mark.parametrize("how", ANSWERS)
def test_functions_are_run_behind_an_answer(how: str) -> None:
    """Also what waits already beside the calls that are answered."""
    batch = calls("pay", ToolCall("b", "here", '{"n": 2}'), call_id="a")
    with open_library(batch, calls("here", n=3), says("ok")) as perdure:
        agent = perdure.create_agent(tools=("pay",))
        agent.require_approval("pay")
        reply = agent.send("go", client_tools=[here])
        assert [call.name for call in reply.pending] == ["pay", "here"]
        with pytest.raises(AnswerInvalid):
            ANSWERS[how](agent, [ToolDecision("a", True, None, '{"n": "many"}')])
        assert (len(agent.pending()), ran) == (2, [])
        ANSWERS[how](agent, [ToolDecision("a", True)])

        assert [m.text for m in agent.messages() if m.results] == ["here 2", "paid 0", "here 3"]
        assert agent.pending() == ()


@pytest.mark.parametrize("streamed", [False, True])
async def test_coroutines_get_the_same(streamed: bool) -> None:
    async def here(n: int) -> str:
        """Look here."""
        return f"here {n}"

    model = ScriptedModel(BOTH, says("ok"), BOTH, calls("here", n=3), says("ok"))
    async with await AsyncPerdure.open(store=InlineStore(), models={MODEL: model}, settings=SETTINGS) as perdure:
        agent = await perdure.create_agent(tools=())
        if streamed:
            assert ends([sent async for sent in agent.stream("go", client_tools=[here])])[-1] == "end_turn"
        else:
            assert (await agent.send("go", client_tools=[here])).text == "ok"
        accepted = await agent.submit("go", client_tools=[here])
        assert ends([sent async for sent in agent.follow(accepted.run.id)]) == ["requires_approval"]
        answers = [ToolReturn(call.call_id, "there") for call in await agent.pending()]
        if streamed:
            assert ends([sent async for sent in agent.stream_answer(answers, client_tools=[here])])[-1] == "end_turn"
        else:
            reply = await agent.answer(answers, client_tools=[here])
            assert reply is not None and reply.text == "ok"


def test_functions_that_are_called_for_ever_end_with_the_limit_of_the_message() -> None:
    model = ScriptedModel(otherwise=calls("here", n=1))
    with Perdure(store=InlineStore(), models={MODEL: model}, settings=SETTINGS) as perdure:
        agent = perdure.create_agent(tools=())
        reply = agent.send("go", client_tools=[here], max_steps=3)

    assert (reply.stop_reason, len(model.requests)) == ("max_steps", 3)


REFUSED: dict[str, dict[str, Any]] = {
    "letters": {"name": "run it!"},
    "1 to 64": {"name": "x" * 65},
    "has the name 'größe'": {"name": "größe"},
    "a tool's arguments are of type 'object'": {"name": "a", "parameters": {"type": "array", "items": {}}},
    "properties": {"name": "a", "parameters": {"type": "object", "properties": [1]}},
    "can't be written as JSON": {"name": "a", "parameters": {"properties": {"n": {"default": float("nan")}}}},
}


@pytest.mark.parametrize("why", REFUSED)
def test_what_a_provider_would_refuse_is_refused_before_anything_is_stored(why: str) -> None:
    with open_library(says("ok")) as perdure:
        agent = perdure.create_agent(tools=())
        with pytest.raises(InvalidInput, match=why):
            agent.send("go", client_tools=[REFUSED[why]])

        assert agent.message_count() == 0
        assert agent.send("go", client_tools=[{"name": "Bash", "parameters": {"required": []}}]).text == "ok"
