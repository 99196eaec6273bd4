"""`/v1/chat/completions`: an agent's first conversation behind OpenAI's chat API, as Letta has it."""

from __future__ import annotations

import gc
import json
from typing import Any
from unittest.mock import patch

import pytest
from starlette.requests import Request

from perdure.server.wire.http import json_bytes
from perdure.testing import ScriptedModel, calls, fails, says
from tests.server.routed import MODEL, Routed, routed

UNKNOWN = "agent-123e4567-e89b-42d3-a456-426614174000"


async def new_agent(server: Routed) -> str:
    made = await server.post("/v1/agents/", {"model": MODEL, "memory_blocks": [{"label": "human", "value": "Ada"}]})
    return str(made["id"])


def requests_of(server: Routed, handle: str) -> list[Any]:
    model = server.library.app.models.find(handle)
    assert isinstance(model, ScriptedModel)
    return model.requests


LOOK = {"type": "object", "properties": {"at": {"type": "string"}}, "required": ["at"]}
CHAT: list[dict[str, Any]] = [
    {"role": "system", "content": "You are a bot."},
    {"role": "user", "content": "one"},
    {"role": "assistant", "content": "1"},
    {"role": "user", "content": [{"type": "text", "text": "two"}]},
]


async def test_an_agent_behind_openai_s_chat_api() -> None:
    """It gets what users said since the last answer; the answer has OpenAI's shape."""
    script = calls("memory_insert", label="human", new_string="x"), says("Done."), says("Again.")
    async with routed(*script) as server:
        agent_id = await new_agent(server)
        whole = await server.post("/v1/chat/completions", {"model": agent_id, "messages": CHAT})
        history = await server.get(f"/v1/agents/{agent_id}/messages", include_return_message_types="user_message")

        assert [message["content"] for message in history] == ["two"]
        assert (whole["object"], whole["model"]) == ("chat.completion", agent_id)
        [choice] = whole["choices"]
        assert (choice["message"]["content"], choice["finish_reason"]) == ("Done.", "stop")
        assert whole["usage"]["total_tokens"] == 27


async def test_a_chat_completion_is_streamed() -> None:
    """The role, the pieces of the text, the reason, the usage if asked for, and the end marker."""
    async with routed(says("one two"), fails("it is down")) as server:
        body = {"model": await new_agent(server), "messages": CHAT, "stream": True}
        answer = await server.http.post("/v1/chat/completions", json=body | {"stream_options": {"include_usage": True}})
        lines = [line.removeprefix("data: ") for line in answer.text.splitlines() if line]
        chunks = [json.loads(line) for line in lines[:-1]]
        failed = await server.http.post("/v1/chat/completions", json=body)

        assert lines[-1] == "[DONE]" and {chunk["object"] for chunk in chunks} == {"chat.completion.chunk"}
        deltas = [chunk["choices"][0]["delta"] for chunk in chunks if chunk["choices"]]
        assert deltas == [{"role": "assistant", "content": ""}, {"content": "one "}, {"content": "two"}, {}]
        assert chunks[-2]["choices"][0]["finish_reason"] == "stop"
        assert chunks[-1]["usage"]["total_tokens"] == 12
        assert '"message":"it is down"' in failed.text and failed.text.endswith("data: [DONE]\n\n")


async def test_no_stream_holds_the_body_of_its_request() -> None:
    """A stream may take an hour: of a completion, of a message, and of a run that is followed again."""
    held: list[int] = []

    def noting(shape: Any) -> bytes:
        requests = [one for one in gc.get_objects() if type(one) is Request]
        held.append(sum("_body" in vars(one) or "_json" in vars(one) for one in requests))
        return json_bytes(shape)

    gc.collect()  # what other tests have left
    async with routed(says("one"), says("two")) as server:
        agent_id = await new_agent(server)
        background = {"input": "hi", "streaming": True, "background": True}
        with patch("perdure.server.wire.sse.json_bytes", noting):
            await server.http.post("/v1/chat/completions", json={"model": agent_id, "messages": CHAT, "stream": True})
            await server.http.post(f"/v1/agents/{agent_id}/messages", json=background)
            [run, _] = await server.get("/v1/runs/")
            await server.http.post(f"/v1/runs/{run['id']}/stream", json={"starting_after": 0})

    assert len(held) > 6 and not any(held)


@pytest.mark.parametrize("stream", [False, True])
async def test_a_chat_completion_calls_the_tools_of_its_caller(stream: bool) -> None:
    """Calls end the answer, and what the caller's tools returned goes on with it; sent again, it has the same answer,
    and in another request none."""
    tool = {"type": "function", "function": {"name": "look", "description": "Look.", "parameters": LOOK}}
    async with routed(calls("look", at="sky"), says("It is blue.")) as server:
        body = {"model": await new_agent(server), "tools": [tool], "stream": stream}

        async def ask(messages: list[dict[str, Any]]) -> tuple[str | None, str, Any]:
            answer = await server.http.post("/v1/chat/completions", json=body | {"messages": messages})
            if not stream:
                choice = answer.json()["choices"][0]
                return choice["finish_reason"], choice["message"]["content"], choice["message"].get("tool_calls")
            lines = [line.removeprefix("data: ") for line in answer.text.splitlines() if line][:-1]
            choices = [json.loads(line)["choices"][0] for line in lines]
            found = [choice["delta"]["tool_calls"] for choice in choices if "tool_calls" in choice["delta"]]
            text = "".join(choice["delta"].get("content", "") for choice in choices)
            return choices[-1]["finish_reason"], text, found[0] if found else None

        asked = [{"role": "user", "content": "what do you see"}]
        reason, text, (call,) = await ask(asked)
        result = {"role": "tool", "tool_call_id": call["id"], "content": "blue"}
        behind = [{"role": "assistant", "content": None, "tool_calls": [call]}, result]
        answered, again = await ask([*asked, *behind]), await ask([*asked, *behind])
        other = body | {"messages": [{"role": "user", "content": "what else"}, *behind]}
        refused = await server.refused("POST", "/v1/chat/completions", other)

    assert (reason, text, call["function"]) == ("tool_calls", "", {"name": "look", "arguments": '{"at": "sky"}'})
    assert answered == again == ("stop", "It is blue.", None)
    assert refused[0] == 422 and "were answered before by another request" in refused[1]


async def test_a_new_question_gives_up_a_call_without_a_result() -> None:
    """A client that begins anew is not refused for ever; the model is told."""
    tool = {"type": "function", "function": {"name": "look", "description": "Look.", "parameters": LOOK}}
    async with routed(calls("look", at="sky"), says("Well."), says("Fine.")) as server:
        body = {"model": await new_agent(server), "tools": [tool]}
        answers = []
        for text in ("what do you see", "and how are you?", "good?"):
            chat = body | {"messages": [{"role": "user", "content": text}]}
            answers.append((await server.post("/v1/chat/completions", chat))["choices"][0]["message"]["content"])
        request = requests_of(server, MODEL)[1]

    assert answers == ["", "Well.", "Fine."]
    assert [result.text for message in request.messages for result in message.results] == ["The caller gave no result."]


async def test_bad_chat_completions_are_refused() -> None:
    """No agent, no id of one, nothing new to answer."""
    async with routed() as server:
        agent_id = await new_agent(server)
        path = "/v1/chat/completions"
        assert (await server.refused("POST", path, {"model": UNKNOWN, "messages": CHAT}))[0] == 404
        assert (await server.refused("POST", path, {"model": "gpt-4o", "messages": CHAT}))[0] == 422
        for messages in ([], CHAT[:1], CHAT[:3]):
            assert (await server.refused("POST", path, {"model": agent_id, "messages": messages}))[0] == 422
