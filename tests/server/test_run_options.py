"""What one request sets for its own model calls: another model, another system text."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from letta_client.types.agents import LettaResponse

from perdure import AsyncPerdure
from perdure.core.messages import Text
from perdure.core.runs import RunOptions
from perdure.engine.records.run_request import NewMessage, RunRequest
from perdure.settings import Settings
from perdure.testing import ScriptedModel, calls, says
from perdure.testing.http_model import ChunkList, HttpModel
from tests.server.routed import GPT, MODEL, Routed, routed
from tests.support.library import SlowSpeaker
from tests.support.openai_chats import openai_chat
from tests.support.servers import in_process

OTHER = "You are a parrot."


async def new_agent(server: Routed) -> str:
    made = await server.post("/v1/agents/", {"model": MODEL})
    return str(made["id"])


def requests_of(server: Routed, handle: str) -> list[Any]:
    """The requests that a scripted model got."""
    model = server.library.app.models.find(handle)
    assert isinstance(model, ScriptedModel)
    return model.requests


async def test_one_request_uses_another_model_and_prompt() -> None:
    """The model gets the whole system text as it was sent; the step names the model; the next request is as before."""
    async with routed(says("first"), says("third")) as server:
        agent_id = await new_agent(server)
        path = f"/v1/agents/{agent_id}/messages"
        await server.post(path, {"input": "one"})
        reply = await server.post(path, {"input": "two", "override_model": GPT, "override_system": OTHER})
        await server.post(path, {"input": "three"})
        run_id = reply["messages"][0]["run_id"]
        [step] = await server.get(f"/v1/runs/{run_id}/steps")
        [overridden] = requests_of(server, GPT)
        first, third = requests_of(server, MODEL)

        assert (step["model_handle"], step["provider_name"], step["model"]) == (GPT, "openai", "gpt-4o-mini")
        assert overridden.system == OTHER
        assert [message.text for message in overridden.messages] == ["one", "first", "two"]
        assert third.system == first.system != OTHER
        assert [message.text for message in third.messages][-3:] == ["two", "OK.", "three"]
        assert (await server.get(f"/v1/agents/{agent_id}"))["model"] == MODEL
        assert (await server.library.agent_of(agent_id).request(step["id"])).system == OTHER  # type: ignore[arg-type]


async def test_settings_for_one_model_are_not_for_another() -> None:
    """A model without reasoning would refuse an effort; the temperature is for any."""
    async with routed() as server:
        settings = {"provider_type": "openai", "reasoning": {"reasoning_effort": "high"}, "temperature": 0.5}
        agent = await server.post("/v1/agents/", {"model": MODEL, "model_settings": settings})
        path = f"/v1/agents/{agent['id']}/messages"
        await server.post(path, {"input": "one", "override_model": GPT})
        await server.post(path, {"input": "two", "override_model": MODEL})
        [other], [own] = requests_of(server, GPT), requests_of(server, MODEL)

        assert (other.options.reasoning_effort, other.options.temperature) == (None, 0.5)
        assert (own.options.reasoning_effort, own.options.temperature) == ("high", 0.5)


@pytest.mark.parametrize("where", ["", "/stream", "/async"])
async def test_every_way_to_send_takes_them(where: str) -> None:
    """Whole, streamed and in the background."""
    async with routed() as server:
        agent_id = await new_agent(server)
        body = {"input": "hi", "override_model": GPT, "override_system": OTHER}
        answer = await server.http.post(f"/v1/agents/{agent_id}/messages{where}", json=body)
        if where == "/async":  # its stream ends with the run
            await server.http.post(f"/v1/runs/{answer.json()['id']}/stream", json={})

        assert answer.status_code == 200
        assert requests_of(server, GPT)[0].system == OTHER and not requests_of(server, MODEL)


async def test_a_model_that_is_not_there_is_refused() -> None:
    """Before anything is stored: 404 names the models that there are."""
    async with routed() as server:
        agent_id = await new_agent(server)
        for where in (f"agents/{agent_id}", f"conversations/{agent_id}"):
            status, detail = await server.refused(
                "POST", f"/v1/{where}/messages", {"input": "hi", "override_model": "nobody/none"}
            )
            assert (status, "Handle nobody/none not found" in detail, GPT in detail) == (404, True, True)

        assert await server.get(f"/v1/agents/{agent_id}/messages", include_return_message_types="user_message") == []
        assert await server.get("/v1/runs/", agent_id=agent_id) == []


TOKENS = [
    {"token": "Hel", "logprob": -0.1, "bytes": [72, 101, 108], "top_logprobs": [{"token": "Hi", "logprob": -2}]},
    {"token": "lo", "logprob": -0.5},
]


def answer_in_tokens(body: Mapping[str, Any]) -> ChunkList:
    """An answer that tells its tokens as far as the request asks for them."""
    chunks: list[dict[str, Any]] = []
    for number, token in enumerate(TOKENS):
        choice: dict[str, Any] = {"index": 0, "delta": {"content": token["token"]}}
        if body.get("logprobs"):
            choice["logprobs"] = {"content": [token], "refusal": None}
        if body.get("return_token_ids"):
            choice["token_ids"] = [100 + number]
        chunks.append({"id": "c", "choices": [choice]})
    return ChunkList([*chunks, {"id": "c", "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}, "[DONE]"])


@pytest.fixture
async def teller(tmp_path: Path) -> AsyncIterator[tuple[httpx.AsyncClient, HttpModel, str]]:
    """A client, the server of a model that tells its tokens, and the path of an agent's messages."""
    async with HttpModel() as http:
        http.then(answer_in_tokens)
        model = openai_chat(model="test", base_url=http.url)
        async with aclosing(model), in_process(tmp_path, model=model) as (client, perdure):
            agent = await perdure.create_agent()
            yield client, http, f"/v1/agents/{agent.id}/messages"


async def test_the_tokens_of_an_answer(teller: tuple[httpx.AsyncClient, HttpModel, str]) -> None:
    """Their probabilities in OpenAI's shape; with their numbers also turn by turn."""
    client, http, path = teller
    body = {"input": "hi", "return_logprobs": True, "top_logprobs": 1, "return_token_ids": True}
    reply = (await client.post(path, json=body)).json()

    LettaResponse.model_validate(reply)
    assert (http.requests[0]["logprobs"], http.requests[0]["top_logprobs"]) == (True, 1)
    first, second = reply["logprobs"]["content"]
    assert (first["token"], first["logprob"], first["bytes"]) == ("Hel", -0.1, [72, 101, 108])
    assert first["top_logprobs"] == [{"token": "Hi", "logprob": -2.0, "bytes": None}]
    assert (second["token"], second["top_logprobs"], reply["logprobs"]["refusal"]) == ("lo", [], None)
    [turn] = reply["turns"]
    assert (turn["role"], turn["content"], turn["output_ids"]) == ("assistant", "Hello", [100, 101])
    assert turn["output_token_logprobs"] == [[-0.1, 100, None], [-0.5, 101, None]]


async def test_without_the_wish_nothing_is_said_of_tokens(teller: tuple[httpx.AsyncClient, HttpModel, str]) -> None:
    """The provider is not asked for them, and both fields are null."""
    client, http, path = teller
    reply = (await client.post(path, json={"input": "hi", "top_logprobs": 3})).json()

    assert http.requests[0].keys().isdisjoint({"logprobs", "top_logprobs", "return_token_ids"})
    assert (reply["logprobs"], reply["turns"]) == (None, None)


async def test_turns_hold_the_results_of_tools() -> None:
    """A model that does not tell its tokens: what it and its tools said, without numbers."""
    async with routed(calls("memory_insert", label="human", new_string="Ada"), says("Noted.")) as server:
        made = await server.post("/v1/agents/", {"model": MODEL, "memory_blocks": [{"label": "human", "value": ""}]})
        reply = await server.post(f"/v1/agents/{made['id']}/messages", {"input": "hi", "return_token_ids": True})

        LettaResponse.model_validate(reply)
        roles = [(turn["role"], turn["tool_name"], turn["output_ids"]) for turn in reply["turns"]]
        assert roles == [("assistant", None, None), ("tool", "memory_insert", None), ("assistant", None, None)]
        assert reply["turns"][-1]["content"] == "Noted." and reply["logprobs"] is None


async def test_a_developer_speaks_as_the_system() -> None:
    """OpenAI's newer word for the same role."""
    async with routed() as server:
        path = f"/v1/agents/{await new_agent(server)}/messages"
        await server.post(path, {"messages": [{"role": "developer", "content": "Be brief."}]})
        history = await server.get(path, order="asc")

        assert ("system_message", "Be brief.") in [(one["message_type"], one.get("content")) for one in history]


async def test_they_are_part_of_the_stored_run(tmp_path: Path) -> None:
    """A process that goes on with the run uses the same model and prompt."""
    settings = replace(Settings(), model=MODEL)
    slow = SlowSpeaker("w", "ait")
    perdure = await AsyncPerdure.open(tmp_path / "p.db", models={MODEL: ScriptedModel(), GPT: slow}, settings=settings)
    agent = await perdure.create_agent()
    options = RunOptions(model=GPT, system=OTHER)
    accepted = await agent.send_request(
        RunRequest(agent_id=agent.id, messages=(NewMessage((Text("hi"),)),), options=options)
    )
    await slow.speaking.wait()
    await perdure.close()

    models = {MODEL: ScriptedModel(), GPT: ScriptedModel(says("done"))}
    async with await AsyncPerdure.open(tmp_path / "p.db", models=models, settings=settings) as perdure:
        reply = await perdure.messages.reply_to(accepted)

        assert reply.text == "done"
        assert [request.system for request in models[GPT].requests] == [OTHER]
