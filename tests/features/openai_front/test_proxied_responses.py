"""Models with memory by OpenAI's responses API; the client's own types validate each answer."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import openai
import pytest
from openai import AsyncOpenAI
from openai.types.responses import Response

from perdure.testing import calls, says
from perdure.testing.http_model import CutOff, Status
from tests.features.openai_front.test_openai_client import EVENT, FUNCTION, checked
from tests.features.openai_front.test_proxy import HANDLE, Proxied, proxied
from tests.server.routed import MODEL


@asynccontextmanager
async def client(monkeypatch: pytest.MonkeyPatch, *script: Any) -> AsyncIterator[tuple[AsyncOpenAI, Proxied]]:
    async with proxied(monkeypatch, *script) as proxy:
        address = f"{str(proxy.http.base_url).rstrip('/')}/openai/v1"
        async with AsyncOpenAI(base_url=address, api_key="none", max_retries=0) as own:
            yield own, proxy


@pytest.mark.parametrize("model", [HANDLE, f"memory/{MODEL}"])
async def test_a_model_with_memory_responds(monkeypatch: pytest.MonkeyPatch, model: str) -> None:
    """What the answer before said goes along; all is one conversation."""
    async with client(monkeypatch, says("A1"), says("A2")) as (own, proxy):
        first = checked(
            Response, await own.responses.create(model=model, input="U1", instructions="Rhyme.", max_output_tokens=50)
        )
        second = await own.responses.create(model=model, input="U2", previous_response_id=first.id)
        await proxy.kept()
        [said] = await proxy.conversations()

        assert said == ["U1", first.output_text, "U2", second.output_text]
        assert (first.status, first.instructions, first.max_output_tokens) == ("completed", "Rhyme.", 50)
        if model == HANDLE:
            sent = proxy.provider.requests[-1]["messages"]
            assert [one["content"] for one in sent[:2]] == ["U1", "A1"] and sent[2]["content"].endswith("U2")
            assert proxy.provider.requests[0]["max_completion_tokens"] == 50


async def test_a_named_conversation_goes_along(monkeypatch: pytest.MonkeyPatch) -> None:
    async with client(monkeypatch, says("A1"), says("A2")) as (own, proxy):
        first: Any = await own.responses.create(model=HANDLE, input="U1", conversation="tea")
        await own.responses.create(model=HANDLE, input="U2", conversation=first.conversation.id)
        await proxy.kept()

        assert await proxy.conversations() == [["U1", "A1", "U2", "A2"]]
        assert [one["role"] for one in proxy.provider.requests[-1]["messages"]] == ["user", "assistant", "user"]


async def test_a_response_of_a_model_is_streamed(monkeypatch: pytest.MonkeyPatch) -> None:
    """By OpenAI's events, whose names, numbers and types are right."""
    async with client(monkeypatch, says("one two three")) as (own, proxy):
        stream = await own.responses.create(model=HANDLE, input="Hello", stream=True)
        events = [
            EVENT.validate_python(one.model_dump(mode="json", by_alias=True, exclude_unset=True))
            async for one in stream
        ]
        await proxy.kept()

        assert [one.sequence_number for one in events] == [*range(len(events))]
        assert "".join(one.delta for one in events if one.type == "response.output_text.delta") == "one two three"
        assert events[-1].type == "response.completed" and events[-1].response.output_text == "one two three"
        assert events[-1].response.usage.output_tokens > 0
        assert await proxy.conversations() == [["Hello", "one two three"]]


@pytest.mark.parametrize("streams", [False, True])
async def test_a_model_calls_the_tools_of_the_program(monkeypatch: pytest.MonkeyPatch, streams: bool) -> None:
    """Call and result reach the provider as its chat API has them."""
    async with client(monkeypatch, calls("look", at="sky"), says("It is blue.")) as (own, proxy):

        async def ask(items: Any) -> Any:
            if not streams:
                return checked(Response, await own.responses.create(model=HANDLE, tools=[FUNCTION], input=items))
            async with own.responses.stream(model=HANDLE, tools=[FUNCTION], input=items) as stream:
                return await stream.get_final_response()

        items: list[Any] = [{"role": "user", "content": "what do you see"}]
        first = await ask(items)
        [call] = first.output
        result: Any = {"type": "function_call_output", "call_id": call.call_id, "output": "blue"}
        second = await ask([*items, call.model_dump(exclude_none=True), result])
        await proxy.kept()
        [tool] = proxy.provider.requests[0]["tools"]
        _, made, answered = proxy.provider.requests[1]["messages"]

        assert (call.name, json.loads(call.arguments), second.output_text) == ("look", {"at": "sky"}, "It is blue.")
        assert tool["function"]["name"] == "look" and tool["function"]["strict"] is True
        assert made["tool_calls"][0]["id"] == answered["tool_call_id"] == call.call_id
        assert await proxy.conversations() == [["what do you see", "It is blue."]]


async def test_a_broken_answer_is_a_failed_response(monkeypatch: pytest.MonkeyPatch) -> None:
    """An error of the provider has OpenAI's form."""
    async with client(monkeypatch, CutOff(says("half of it"), 2), Status(429, "slow down")) as (own, _):
        stream = await own.responses.create(model=HANDLE, input="U1", stream=True)
        last = [one async for one in stream][-1]
        with pytest.raises(openai.RateLimitError) as limited:
            await own.responses.create(model=HANDLE, input="U1")

        assert last.type == "response.failed" and last.response.error is not None
        assert limited.value.code == "llm_rate_limit"


@pytest.mark.parametrize("named", [{"user": "bob"}, {"extra_headers": {"X-Conversation": "c1"}}])
async def test_a_chat_that_is_sent_whole_is_not_sent_twice(monkeypatch: pytest.MonkeyPatch, named: Any) -> None:
    """Its conversation is named, too; by a user's name alone nothing of another chat goes along."""
    async with client(monkeypatch, says("A1"), says("A2"), says("A3")) as (own, proxy):
        whole: Any = [
            {"role": "user", "content": "U1"},
            {"role": "assistant", "content": "A1"},
            {"role": "user", "content": "U2"},
        ]
        new: Any = [{"role": "user", "content": "New chat"}]
        for items in (whole[:1], whole, new):
            await own.responses.create(model=HANDLE, input=items, **named)
            await proxy.kept()
        _, second, third = ([one["content"] for one in sent["messages"]] for sent in proxy.provider.requests)

        assert second[:2] == ["U1", "A1"] and len(second) == 3
        if "user" in named:
            assert len(third) == 1
            assert await proxy.conversations() == [["U1", "A1", "U2", "A2"], ["New chat", "A3"]]
        else:
            assert await proxy.conversations() == [["U1", "A1", "U2", "A2", "New chat", "A3"]]
