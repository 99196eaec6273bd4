"""Prompts without an agent's memory, and payloads that are not sent."""

from __future__ import annotations

from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

from perdure.core.runs import Usage
from perdure.providers.pydantic_ai.model import DirectModel
from perdure.testing import ScriptedModel, fails, says
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


async def test_a_payload_of_a_conversation_has_its_messages_and_its_model(tmp_path: Path) -> None:
    """By its id; by `default` with an agent, and by the agent's id, it is of the first one."""
    async with HttpModel(otherwise=says("hi")) as http:
        model = openai_chat(model="test", base_url=http.url)
        async with aclosing(model), in_process(tmp_path, model=model) as (client, perdure):
            agent = await perdure.create_agent()
            await agent.send("first line")
            other = await agent.new_conversation()
            body = {"input": "two", "streaming": False}
            await client.post(f"/v1/conversations/{other.id}/messages", json={**body, "input": "other line"})
            payloads = {}
            for name, more in ((other.id, {}), (agent.id, {}), ("default", {"agent_id": agent.id})):
                path = f"/v1/conversations/{name}/messages/preview-raw-payload"
                payloads[name] = (await client.post(path, json=body | more)).json()
            nobody = await client.post("/v1/conversations/default/messages/preview-raw-payload", json=body)
            await client.post(f"/v1/conversations/{other.id}/messages", json=body)
            sent = http.requests[-1]

            *payloads[other.id]["messages"], _ = payloads[other.id]["messages"]  # the last one has the time
            *sent["messages"], _ = sent["messages"]
            assert payloads[other.id] == sent
            said = str(sent["messages"])
            assert ("other line" in said, "first line" in said) == (True, False)
            assert payloads[agent.id] == payloads["default"]
            assert "first line" in str(payloads["default"]["messages"])
            assert (nobody.status_code, "agent_id" in nobody.text) == (422, True)


@pytest.mark.slow
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
