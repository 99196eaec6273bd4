"""Answers that say nothing, and words that go out by `send_message`."""

from __future__ import annotations

import json
from typing import Any

import pytest

from perdure.core.errors import ModelRefused
from perdure.core.messages import Text
from perdure.core.models import ModelReply
from perdure.testing import calls, says
from tests.server.routed import Routed, new_agent, routed

SOURCE = 'def act(x: str) -> str:\n    """Do.\n\n    Args:\n        x: value\n    """\n    {0}\n'


async def _shown(server: Routed, agent: Any) -> tuple[str, list[tuple[str, str]]]:
    """(Why the turn ended, the type of each message and what it says)."""
    body = {"messages": [{"role": "user", "content": "go"}]}
    answer = await server.post(f"/v1/agents/{agent['id']}/messages", body)
    return answer["stop_reason"]["stop_reason"], [
        (one["message_type"], str(one.get("content") or one.get("reasoning") or "")) for one in answer["messages"]
    ]


@pytest.mark.slow
@pytest.mark.parametrize("agent_type", ["letta_v1_agent", "memgpt_agent", "memgpt_v2_agent"])
@pytest.mark.parametrize("body", ["return x", "raise ValueError(x)"])
@pytest.mark.parametrize("text", ["", "  \n"])
async def test_an_empty_answer_after_a_tool_ends_the_turn(text: str, body: str, agent_type: str) -> None:
    """Whether the tool succeeded or failed: what it did is told, and the next turn goes on from there."""
    empty = ModelReply(parts=(Text(text),) if text else ())
    act = calls("act", x="1") if agent_type == "letta_v1_agent" else calls("act", x="1", request_heartbeat=True)
    async with routed(act, empty, calls("send_message", message="more")) as server:
        await server.post("/v1/tools/", {"source_code": SOURCE.format(body)})
        agent = await new_agent(server, tools=["act", "send_message"], agent_type=agent_type)

        assert await _shown(server, agent) == ("end_turn", [("tool_call_message", ""), ("tool_return_message", "")])
        assert await _shown(server, agent) == ("end_turn", [("assistant_message", "more")])


async def test_an_empty_answer_to_a_person_is_an_error() -> None:
    """It is asked for again before, and nothing else was done that could be told."""
    async with routed(*[ModelReply(parts=())] * 9) as server:
        agent = await new_agent(server)
        body = {"messages": [{"role": "user", "content": "go"}]}
        failed = await server.http.post(f"/v1/agents/{agent['id']}/messages", json=body)

    assert (failed.status_code, failed.json()["error"]["type"]) == (500, "llm_empty_response")
    assert "messages" not in failed.json()


async def test_a_failure_tells_what_was_done_before_it() -> None:
    """In the body of the error, as the answer would have shown it."""
    async with routed(calls("act", x="1"), ModelRefused("no")) as server:
        await server.post("/v1/tools/", {"source_code": SOURCE.format("return x")})
        agent = await new_agent(server, tools=["act"])
        body = {"messages": [{"role": "user", "content": "go"}]}
        failed = await server.http.post(f"/v1/agents/{agent['id']}/messages", json=body)

    assert failed.status_code >= 400
    assert [one["message_type"] for one in failed.json()["messages"]] == ["tool_call_message", "tool_return_message"]


@pytest.mark.parametrize("agent_type", ["letta_v1_agent", "memgpt_agent", "memgpt_v2_agent"])
@pytest.mark.parametrize("extra", [{}, {"inner_thoughts": "I greet."}, {"thinking": "I greet."}, {"id": "m-1"}])
async def test_send_message_ends_the_turn(agent_type: str, extra: dict[str, str]) -> None:
    """Of every type of agent that has it, whatever else it is given; thoughts that were asked for are told."""
    async with routed(calls("send_message", message="hi", **extra), says("unasked")) as server:
        agent = await new_agent(server, tools=["send_message"], agent_type=agent_type)

        reason, shown = await _shown(server, agent)

    is_told = agent_type != "letta_v1_agent" and extra and "id" not in extra
    thought = [("reasoning_message", "I greet.")] if is_told else []
    assert (reason, shown) == ("end_turn", [*thought, ("assistant_message", "hi")])


MEANT: list[tuple[Any, str]] = [
    (5, "5"),
    (0, "0"),
    (0.5, "0.5"),
    (False, "false"),
    (["One.", "Two."], "One.\nTwo."),
    ([{"type": "text", "text": "One."}, None], "One."),
    ([1, 2], "[1, 2]"),
    ({"text": "Hi.", "mood": 1}, "Hi."),
    ({"answer": [1]}, '{"answer": [1]}'),
    ({"role": "assistant", "content": [{"type": "text", "text": "Hello."}]}, "Hello."),
    ({"message": {"text": "Bye."}}, "Bye."),
    ([["Deep."]], "Deep."),
]


@pytest.mark.slow
@pytest.mark.parametrize("streams", [False, True])
@pytest.mark.parametrize("agent_type", ["letta_v1_agent", "memgpt_agent"])
@pytest.mark.parametrize(("given", "words"), MEANT, ids=[words for _, words in MEANT])
async def test_what_is_no_text_is_said_as_one(given: Any, words: str, agent_type: str, streams: bool) -> None:
    """A number, a list or an object in place of the message: the person sees it, and so does the next turn."""
    async with routed(calls("send_message", message=given), says("unasked")) as server:
        agent = await new_agent(server, tools=["send_message"], agent_type=agent_type)
        path = f"/v1/agents/{agent['id']}/messages"
        if streams:
            body = {"messages": [{"role": "user", "content": "go"}], "stream_tokens": True}
            streamed = await server.http.post(f"{path}/stream", json=body)
            lines = [line[6:] for line in streamed.text.splitlines() if line.startswith("data: {")]
            said = [one for one in map(json.loads, lines) if one["message_type"] == "assistant_message"]
            assert "".join(one["content"] for one in said) == words
        else:
            assert await _shown(server, agent) == ("end_turn", [("assistant_message", words)])
        listed = await server.get(path)

    assert [one["content"] for one in listed if one["message_type"] == "assistant_message"] == [words]


@pytest.mark.slow
@pytest.mark.parametrize("agent_type", ["letta_v1_agent", "memgpt_agent"])
@pytest.mark.parametrize(
    "given",
    [None, "", " \n", [], {}, [""], {"text": ""}, [[]], json.loads("[" * 700 + "1" + "]" * 700)],
    ids=lambda given: str(given)[:20],
)
async def test_a_message_that_says_nothing_is_refused(given: Any, agent_type: str) -> None:
    """The model is told so and may say something."""
    async with routed(calls("send_message", message=given), calls("send_message", message="hi")) as server:
        agent = await new_agent(server, tools=["send_message"], agent_type=agent_type)
        body = {"messages": [{"role": "user", "content": "go"}]}

        answer = await server.post(f"/v1/agents/{agent['id']}/messages", body)

    shown = [(one["message_type"], one.get("status"), one.get("content")) for one in answer["messages"]]
    assert shown == [
        ("tool_call_message", None, None),
        ("tool_return_message", "error", None),
        ("assistant_message", None, "hi"),
    ]


async def test_thoughts_of_other_loops_are_understood_by_every_tool() -> None:
    """`inner_thoughts` and a heartbeat are no reason to refuse a call; a tool's own argument of the name stays its."""
    own = 'def think(inner_thoughts: str) -> str:\n    """Do.\n\n    Args:\n        inner_thoughts: v\n    """\n'
    own += "    return inner_thoughts\n"
    thoughtful = calls("act", x="1", inner_thoughts="Now.", request_heartbeat=True)
    async with routed(thoughtful, calls("think", inner_thoughts="mine"), says("done")) as server:
        for source in (SOURCE.format("return x"), own):
            await server.post("/v1/tools/", {"source_code": source})
        agent = await new_agent(server, tools=["act", "think"])
        body = {"messages": [{"role": "user", "content": "go"}]}

        answer = await server.post(f"/v1/agents/{agent['id']}/messages", body)

    returns = [one["tool_return"] for one in answer["messages"] if one["message_type"] == "tool_return_message"]
    assert returns == ["1", "mine"]
