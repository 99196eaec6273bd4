"""Keys: whose chat it is, whose memory a model gets, what a key may use, and errors before any route."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from perdure.core.incoming.principals import UseLimits
from perdure.features.openai_front.open_answers import OpenAnswers
from perdure.testing import HttpModel, ScriptedModel, says
from tests.features.access.worlds import World, open_world
from tests.features.openai_front.support import PATH
from tests.support.servers import MODEL

pytestmark = pytest.mark.uses("access")


@pytest.fixture
async def world() -> AsyncIterator[World]:
    async with open_world() as world:
        yield world


async def ask(world: World, key: str | None, model: str, *texts: str) -> httpx.Response:
    roles = ("user", "assistant")
    messages = [{"role": roles[place % 2], "content": text} for place, text in enumerate(texts)]
    headers = {} if key is None else {"authorization": f"Bearer {key}"}
    answer = await world.http.post(PATH, json={"model": model, "messages": messages}, headers=headers)
    world.clock.advance(60)
    return answer


async def test_the_same_chat_of_two_keys_is_two_conversations(world: World) -> None:
    """Neither goes on in the other's."""
    agent = await world.library.create_agent("ann", tools=())
    for key in (world.keys["user"], world.keys["builder"]):
        await ask(world, key, "ann", "hello")
        await ask(world, key, "ann", "hello", "Hello.", "again")

    said = [[row.text for row in await agent.messages(conversation=one.id)] for one in await agent.conversations()]
    assert said[1:] == [["hello", "Hello.", "again", "Hello."]] * 2


async def test_an_agent_gives_its_memory_to_a_key(world: World) -> None:
    """By its setting; for each other key one is made."""
    created, text = await world.access().create_key("mine", "user")
    async with world.client(world.keys["builder"]) as builder:
        body: dict[str, Any] = {"name": "ann", "model": MODEL, "memory_of": {"key": created.id}}
        made = (await builder.post("/v1/agents/", json=body)).json()
        assert "id" in made, made
        shown = (await builder.get(f"/v1/agents/{made['id']}")).json()
    for key in (text, world.keys["user"]):
        assert (await ask(world, key, f"memory/{MODEL}", "hello")).status_code == 200
    if tasks := set(world.library.app.service(OpenAnswers).tasks):
        await asyncio.wait(tasks)
    held = {one.name: one.info.message_count for one in await world.library.agents()}

    assert shown["memory_of"] == {"key": created.id}
    assert held.pop("ann") == 2
    [(name, count)] = held.items()  # each key has one of its own
    assert name.startswith("memory-key-") and count == 2


async def test_limits_of_a_key_count_for_models(world: World) -> None:
    """What a model with memory used is counted for the day, and beyond it nothing is asked."""
    model = world.library.app.models.find(MODEL)
    assert isinstance(model, ScriptedModel)
    _, key = await world.access().create_key("small", "user", limits=UseLimits(tokens_per_day=10))
    first = await ask(world, key, f"memory/{MODEL}", "hello")
    asked = len(model.requests)
    second = await ask(world, key, f"memory/{MODEL}", "hello again")

    assert (first.status_code, second.status_code) == (200, 429)
    assert second.json()["error"]["type"] == "rate_limit_error" and len(model.requests) == asked


async def test_errors_of_the_gate_have_openai_s_form(world: World) -> None:
    """Without a key, with too small a scope, with a body that is not JSON."""
    missing = await ask(world, None, "ann", "hello")
    small = await ask(world, world.keys["read-only"], "ann", "hello")
    headers = {"authorization": f"Bearer {world.keys['user']}", "content-type": "application/json"}
    broken = await world.http.post(PATH, content=b"{", headers=headers)
    text = await world.http.post(PATH, content=b"x", headers={**headers, "content-type": "text/plain"})

    assert (missing.status_code, missing.json()["error"]["code"]) == (401, "invalid_api_key")
    assert (small.status_code, small.json()["error"]["type"]) == (403, "permission_error")
    assert broken.status_code == 400 and broken.json()["error"]["type"] == "invalid_request_error"
    assert text.status_code == 415 and set(text.json()["error"]) == {"message", "type", "code", "param"}
    listed = await world.http.get("/openai/v1/models", headers={"authorization": f"Bearer {world.keys['read-only']}"})
    assert listed.status_code == 200


async def test_streams_count_for_the_day_of_a_key(monkeypatch: pytest.MonkeyPatch) -> None:
    """A provider tells the tokens of a stream only if it is asked; who has not asked does not see them."""
    async with HttpModel(otherwise=says("hi")) as provider:
        monkeypatch.setenv("OPENAI_BASE_URL", provider.url)
        monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
        async with open_world() as world:
            _, key = await world.access().create_key("small", "user", limits=UseLimits(tokens_per_day=1))
            async with world.client(key) as client:
                answers = []
                for word in ("one", "two"):
                    messages = [{"role": "user", "content": word}]
                    body = {"model": "memory/openai/test", "stream": True, "messages": messages}
                    answers.append(await client.post(PATH, json=body))
                    if tasks := set(world.library.app.service(OpenAnswers).tasks):
                        await asyncio.wait(tasks)

    assert [one.status_code for one in answers] == [200, 429]
    assert provider.requests[0]["stream_options"] == {"include_usage": True}
    assert "hi" in answers[0].text and '"choices": []' not in answers[0].text


async def test_a_refused_request_leaves_no_empty_conversation(world: World) -> None:
    """The system text alone is longer than the key's limit."""
    agent = await world.library.create_agent("ann", tools=())
    _, key = await world.access().create_key("short", "user", limits=UseLimits(message_chars=100))
    messages = [{"role": "system", "content": "x" * 200}, {"role": "user", "content": "hello"}]
    body = {"model": "ann", "messages": messages}
    for headers in ({}, {"x-conversation": "tea"}):
        answer = await world.http.post(PATH, json=body, headers={"authorization": f"Bearer {key}", **headers})
        assert answer.status_code in (400, 413), answer.text

    assert [one.seq for one in await agent.conversations()] == [0]
    short = await world.http.post(
        PATH, json={"model": "ann", "messages": messages[1:]}, headers={"authorization": f"Bearer {key}"}
    )
    assert short.status_code == 200
