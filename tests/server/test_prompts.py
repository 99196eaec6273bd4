"""Prompts without an agent's memory, payloads that are not sent, and agents behind OpenAI's chat API."""

from __future__ import annotations

import gc
import json
from contextlib import aclosing
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from starlette.requests import Request

from perdure.core.runs import Usage
from perdure.providers.pydantic_ai.model import DirectModel
from perdure.server.wire.http import json_bytes
from perdure.testing import ScriptedModel, calls, fails, says
from perdure.testing.http_model import HttpModel
from tests.providers.pydantic_ai.support import MODELS, sse
from tests.server.routed import GPT, MODEL, Routed, routed
from tests.support.http_payloads import PayloadServer
from tests.support.openai_chats import openai_chat
from tests.support.servers import in_process

UNKNOWN = "agent-123e4567-e89b-42d3-a456-426614174000"


async def new_agent(server: Routed) -> str:
    made = await server.post("/v1/agents/", {"model": MODEL, "memory_blocks": [{"label": "human", "value": "Ada"}]})
    return str(made["id"])


def requests_of(server: Routed, handle: str) -> list[Any]:
    model = server.library.app.models.find(handle)
    assert isinstance(model, ScriptedModel)
    return model.requests


async def test_a_prompt_is_answered_without_the_agent() -> None:
    """By its model or another one; no memory, no tools, and nothing is stored."""
    async with routed(says("A poem.", usage=Usage(input_tokens=7, output_tokens=3))) as server:
        agent_id = await new_agent(server)
        path = f"/v1/agents/{agent_id}/generate"
        own = await server.post(path, {"prompt": "Write.", "system_prompt": "You rhyme."})
        other = await server.post(path, {"prompt": "Write.", "override_model": GPT})
        [request] = requests_of(server, MODEL)

        assert (own["content"], own["model"]) == ("A poem.", MODEL)
        assert (own["usage"]["prompt_tokens"], own["usage"]["completion_tokens"]) == (7, 3)
        assert own["usage"]["total_tokens"] == 10
        assert (request.system, request.tools, request.tail) == ("You rhyme.", (), "")
        assert [message.text for message in request.messages] == ["Write."]
        assert (other["content"], other["model"], requests_of(server, GPT)[0].system) == ("OK.", GPT, "")
        assert await server.get(f"/v1/agents/{agent_id}/messages", include_return_message_types="user_message") == []
        assert await server.get("/v1/runs/", agent_id=agent_id) == []


async def test_bad_prompts_are_refused() -> None:
    """Blank 422; no such model or agent 404; a failing model as with messages."""
    async with routed(fails("slow down", kind="llm_rate_limit")) as server:
        path = f"/v1/agents/{await new_agent(server)}/generate"
        for prompt in ("", "  ", None):
            assert (await server.refused("POST", path, {"prompt": prompt}))[0] == 422
        assert (await server.refused("POST", path, {"prompt": "a", "override_model": "no/no"}))[0] == 404
        assert (await server.refused("POST", f"/v1/agents/{UNKNOWN}/generate", {"prompt": "a"}))[0] == 404
        answer = await server.http.post(path, json={"prompt": "a"})
        assert (answer.status_code, answer.json()["error"]["type"]) == (429, "llm_rate_limit")


async def test_a_payload_is_what_a_run_would_send(tmp_path: Path) -> None:
    """The same body as the next message's, without asking the model or storing anything."""
    async with HttpModel(otherwise=says("hi")) as http:
        model = openai_chat(model="test", base_url=http.url)
        async with aclosing(model), in_process(tmp_path, model=model) as (client, perdure):
            agent = await perdure.create_agent()
            path = f"/v1/agents/{agent.id}/messages"
            await client.post(path, json={"input": "one"})
            payload = (await client.post(f"{path}/preview-raw-payload", json={"input": "two"})).json()
            other = {"input": "two", "override_system": "You are a parrot."}
            overridden = (await client.post(f"{path}/preview-raw-payload", json=other)).json()
            before = (await client.get(path, params={"include_return_message_types": "user_message"})).json()
            await client.post(path, json={"input": "two"})

            assert len(http.requests) == 2 and len(before) == 1
            sent = http.requests[1]
            *payload["messages"], _ = payload["messages"]  # the last one has the time
            *sent["messages"], _ = sent["messages"]
            assert payload == sent
            assert sent["messages"][-1] == {"role": "user", "content": "two"}
            assert overridden["messages"][0] == {"role": "system", "content": "You are a parrot."}


@pytest.mark.parametrize(
    ("provider", "answer", "messages"),
    [("anthropic", "anthropic_text", "messages"), ("google", "gemini_text", "contents")],
)
async def test_a_payload_has_the_form_of_its_provider(
    tmp_path: Path, provider: str, answer: str, messages: str
) -> None:
    """As the provider's own SDK builds it; nothing is sent."""
    async with PayloadServer(sse(answer)) as http:
        model = DirectModel(provider=provider, model=MODELS[provider], api_key="k", base_url=http.url)
        async with aclosing(model), in_process(tmp_path, model=model) as (client, perdure):
            path = f"/v1/agents/{(await perdure.create_agent()).id}/messages"
            await client.post(path, json={"input": "one"})
            payload = (await client.post(f"{path}/preview-raw-payload", json={"input": "two"})).json()
            assert len(http.received) == 1
            await client.post(path, json={"input": "two"})
            sent = http.received[1].json

    for body in (payload, sent):
        *body[messages], last = body[messages]
        parts = last.get("content") or last["parts"]
        assert [part["text"] for part in parts[:-1]] == ["two"]  # the last one has the time
    assert payload == sent


async def test_a_payload_of_a_model_without_the_chat_api() -> None:
    """It has OpenAI's form, with the tools of the client in it."""
    async with routed() as server:
        path = f"/v1/agents/{await new_agent(server)}/messages/preview-raw-payload"
        look = {"name": "look", "description": "Look.", "parameters": {"type": "object", "properties": {}}}
        payload = await server.post(path, {"input": "hi", "client_tools": [look]})

        assert payload["model"] == "scripted"
        assert [message["role"] for message in payload["messages"]] == ["system", "system", "user", "system"]
        assert "look" in [tool["function"]["name"] for tool in payload["tools"]]
        assert (await server.refused("POST", path, {"messages": []}))[0] == 422
        assert not requests_of(server, MODEL)


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
    """Calls end the answer, and what the caller's tools returned goes on with it."""
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
        answered = await ask([*asked, {"role": "assistant", "content": None, "tool_calls": [call]}, result])

    assert (reason, text, call["function"]) == ("tool_calls", "", {"name": "look", "arguments": '{"at": "sky"}'})
    assert answered == ("stop", "It is blue.", None)


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
