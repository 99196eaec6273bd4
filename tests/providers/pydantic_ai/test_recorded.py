"""Conversations that were recorded at Anthropic, Google and OpenAI's responses API: what each answer becomes, and that
the next request we write brings back what the recorded one did."""

from __future__ import annotations

import base64
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest

from perdure.core.messages import Message, Part, Reasoning, Role, Text, ToolCall, ToolResult
from perdure.core.models import ModelDelta, ModelOptions, ModelReply, ModelRequest
from perdure.core.runs import Usage
from perdure.providers.pydantic_ai.model import DirectModel
from tests.providers.pydantic_ai.support import MODELS, log
from tests.providers.recorded import Recorded
from tests.support.http_payloads import PayloadServer

PROVIDERS = {"anthropic": "anthropic", "gemini": "google", "openai": "openai-responses"}


def without_streams(model: Any) -> Any:
    """The model, which can only answer in one piece."""
    from pydantic_ai.models.wrapper import WrapperModel  # only the process that needs it takes the time to load it

    class WithoutStreams(WrapperModel):
        @asynccontextmanager
        async def request_stream(self, *args: Any, **kwargs: Any) -> AsyncIterator[Any]:
            raise NotImplementedError
            yield

    return WithoutStreams(model)


async def replay(
    name: str, number: int = 1, messages: tuple[Message, ...] = (), *, system: str = ""
) -> tuple[list[ModelDelta], ModelReply, Any]:
    """The deltas and the reply to a recorded answer, and the body of the request that we wrote for it."""
    recorded = Recorded(name)
    provider = PROVIDERS[name.partition("_")[0]]
    model_request = recorded.request(number)
    model = MODELS[provider]  # those that were recorded come and go, and the SDKs warn of it
    request = ModelRequest(
        model=f"{provider}/{model}",
        system=system,
        messages=messages or log(("user", (Text("Hello"),))),
        tools=tuple(tool(one) for one in model_request.get("tools", ())[:1]),
        options=ModelOptions(
            max_output_tokens=4096
        ),  # for more, Anthropic's SDK streams what nobody asked it to stream
    )
    async with PayloadServer(recorded.answer(number)) as server:
        direct = DirectModel(provider=provider, model=model, api_key="k-1", base_url=server.url)
        if not recorded.streamed:
            connection = await direct._get_connection()
            direct._connection = replace(connection, model=without_streams(connection.model))
        try:
            *deltas, reply = [piece async for piece in direct.respond(request)]
        finally:
            await direct.aclose()
    assert isinstance(reply, ModelReply)
    return [delta for delta in deltas if isinstance(delta, ModelDelta)], reply, server.received[0].json


def tool(recorded: Mapping[str, Any]) -> Mapping[str, Any]:
    """A tool of the recorded request, its schema replaced by a small one: schemas are another test's."""
    names = recorded.get("functionDeclarations", [recorded])
    return {"name": names[0]["name"], "description": "Do it.", "parameters": {"type": "object", "properties": {}}}


def signed(part: Part) -> Any:
    assert isinstance(part, Reasoning) and part.signature
    return json.loads(part.signature)


async def after(name: str, results: Mapping[str, str], *, user: str, then: str = "", turns: int = 1) -> Any:
    """The request that follows the recorded answers, with what each tool gave, and what the user said last."""
    history: list[tuple[Role, tuple[Part, ...]]] = [("user", (Text(user),))]
    for number in range(1, turns + 1):
        _, reply, _ = await replay(name, number)
        calls = [part for part in reply.parts if isinstance(part, ToolCall)]
        history.append(("assistant", tuple(reply.parts)))
        history += [("tool", (ToolResult(call.call_id, call.name, results[call.name]),)) for call in calls]
    if then:
        history.append(("user", (Text(then),)))
    _, _, body = await replay(name, 1, log(*history))
    return body


# Anthropic


def turns(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Messages of Anthropic's in one spelling: blocks in lists, without cache marks and what is the default."""
    spelled = []
    for message in messages:
        content = message["content"]
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
        spelled.append({"role": message["role"], "content": [block_of(block) for block in blocks]})
    return spelled


def block_of(block: dict[str, Any]) -> dict[str, Any]:
    kept = {name: value for name, value in block.items() if name not in ("cache_control", "caller", "is_error")}
    if isinstance(kept.get("content"), list):
        (only,) = kept["content"]
        kept["content"] = only["text"]
    return kept


async def test_anthropic_thinking_and_a_call_in_one_piece() -> None:
    _, reply, _ = await replay("anthropic_thinking_tools_whole")
    recorded = json.loads(Recorded("anthropic_thinking_tools_whole").answer().body)
    thinking, *log_message = recorded["content"]
    thought, *rest = reply.parts
    assert isinstance(thought, Reasoning) and thought.text == thinking["thinking"]
    assert signed(thought) == {"provider": "anthropic", "signature": thinking["signature"]}
    assert rest == [
        *(Text(block["text"]) for block in log_message[:-1]),
        ToolCall(log_message[-1]["id"], "get_user_country", "{}"),
    ]
    assert reply.usage == Usage(
        input_tokens=recorded["usage"]["input_tokens"], output_tokens=recorded["usage"]["output_tokens"]
    )


async def test_anthropic_thinking_streamed() -> None:
    deltas, reply, _ = await replay("anthropic_thinking_stream")
    thought, text = reply.parts
    assert isinstance(thought, Reasoning) and thought.text.startswith("The user has simply greeted me")
    assert "".join(delta.text for delta in deltas if delta.kind == "reasoning") == thought.text
    assert text == Text("Hello! How can I help you today?")
    assert reply.usage == Usage(input_tokens=36, output_tokens=49)


async def test_anthropic_a_call_streamed() -> None:
    deltas, reply, _ = await replay("anthropic_tools_stream")
    assert reply.parts == (
        ToolCall("toolu_01DoxA6XXQEf12XZeM869dvZ", "get_weather", '{"location": "San Francisco, CA"}'),
    )
    assert "".join(d.text for d in deltas if d.kind == "tool_arguments") == '{"location": "San Francisco, CA"}'
    assert reply.usage == Usage(input_tokens=567, output_tokens=57)


async def test_anthropic_counts_what_was_written_to_the_cache_and_read_from_it() -> None:
    """The input counts all of it."""
    _, wrote, _ = await replay("anthropic_cache_whole", 1)
    _, read, _ = await replay("anthropic_cache_whole", 2)
    assert wrote.usage == Usage(input_tokens=1114, output_tokens=391, cache_write_tokens=1111)
    assert read.usage == Usage(input_tokens=1517, output_tokens=33, cached_input_tokens=1111, cache_write_tokens=403)


@pytest.mark.parametrize(
    ("name", "results", "then"),
    [
        ("anthropic_thinking_tools_whole", {"get_user_country": "Mexico"}, ""),
        ("anthropic_tools_stream", {"get_weather": "It's sunny."}, ""),
        ("anthropic_thinking_stream", {}, "How are you?"),
        ("anthropic_redacted_stream", {}, "What?"),
        ("anthropic_cache_whole", {}, "Can you summarize that in one sentence?"),
    ],
)
async def test_anthropic_is_asked_next_as_was_recorded(name: str, results: Mapping[str, str], then: str) -> None:
    """Signature and redacted thinking unchanged, before the call that it led to; calls and results under their ids."""
    recorded = Recorded(name)
    (first,) = turns(recorded.request(1)["messages"])
    body = await after(name, results, user=first["content"][0]["text"], then=then)
    assert turns(body["messages"]) == turns(recorded.request(2)["messages"])


async def test_anthropic_marks_stand_where_they_were_recorded() -> None:
    """At the end of what was said; a mark of ours stands at the end of the turn before, too."""
    recorded = Recorded("anthropic_cache_whole")
    (first,) = turns(recorded.request(1)["messages"])
    body = await after(
        recorded.name, {}, user=first["content"][0]["text"], then="Can you summarize that in one sentence?"
    )
    ours, theirs = ([["cache_control" in block for block in message["content"]] for message in one["messages"]]
                    for one in (body, recorded.request(2)))  # fmt: skip
    assert theirs == [[False], [False], [True]]
    assert ours == [[False], [True], [True]]


# Gemini


NO_SIGNATURE = base64.urlsafe_b64encode(b"skip_thought_signature_validator").decode()


def contents(turn: Any) -> Any:
    """What Gemini's messages say, whatever ids a client gave to the calls, in whichever alphabet it wrote bytes, and
    without the signature that newer models want on a call that has none."""
    if isinstance(turn, list):
        return [contents(one) for one in turn]
    if isinstance(turn, dict):
        kept = {name: contents(value) for name, value in turn.items() if name != "id"}
        if (signature := kept.pop("thoughtSignature", None)) is not None and signature != NO_SIGNATURE:
            kept["thoughtSignature"] = signature.replace("+", "-").replace("/", "_")
        return kept
    return turn


async def test_gemini_calls_streamed() -> None:
    deltas, reply, _ = await replay("gemini_tools_stream")
    (call,) = reply.parts
    assert isinstance(call, ToolCall) and call.call_id
    assert (call.name, json.loads(call.arguments)) == ("get_capital", {"country": "France"})
    assert [delta.kind for delta in deltas] == ["tool_name", "tool_arguments"]
    assert reply.usage == Usage(input_tokens=52, output_tokens=5)
    deltas, reply, _ = await replay("gemini_tools_stream", 3)
    assert reply.parts == (Text("The temperature in Paris is 30°C.\n"),)
    assert [delta.text for delta in deltas] == ["The temperature in Paris", " is 30°C.\n"]


async def test_gemini_is_asked_next_as_was_recorded() -> None:
    recorded = Recorded("gemini_tools_stream")
    results = {"get_capital": "Paris", "get_temperature": "30°C"}
    body = await after(recorded.name, results, user="What is the temperature of the capital of France?", turns=2)
    assert contents(body["contents"]) == contents(recorded.request(3)["contents"])


async def test_gemini_gets_the_signature_of_a_call_back_on_the_call() -> None:
    recorded = Recorded("gemini_signed_call_whole")
    _, reply, _ = await replay(recorded.name)
    thought, call = reply.parts
    assert isinstance(thought, Reasoning) and thought.text == "" and isinstance(call, ToolCall)
    (part,) = json.loads(recorded.answer().body)["candidates"][0]["content"]["parts"]
    given = signed(thought)["signature"].replace("-", "+").replace("_", "/")
    assert given == part["thoughtSignature"]
    assert reply.usage == Usage(input_tokens=605, output_tokens=168, reasoning_tokens=154)
    body = await after(recorded.name, {"get_audio_resource_link": "See file 2d36ae"}, user="What's the content?")
    assert contents(body["contents"][1]) == contents(recorded.extract("2.model_turn"))


async def test_gemini_thoughts_in_one_piece_and_streamed() -> None:
    _, reply, _ = await replay("gemini_thinking_whole")
    thought, text = reply.parts
    parts = json.loads(Recorded("gemini_thinking_whole").answer().body)["candidates"][0]["content"]["parts"]
    assert (thought, text) == (Reasoning(parts[0]["text"], thought.signature), Text(parts[1]["text"]))  # type: ignore[union-attr]
    assert reply.usage == Usage(input_tokens=29, output_tokens=1737, reasoning_tokens=1001)
    body = await after("gemini_thinking_whole", {}, user="How do I cross the street?", then="And a river?")
    assert contents(body["contents"][1]) == contents(Recorded("gemini_thinking_whole").request(2)["contents"][1])

    deltas, reply, _ = await replay("gemini_thinking_stream")
    for kind, expected in (("reasoning", Reasoning), ("text", Text)):
        whole = "".join(part.text for part in reply.parts if isinstance(part, expected))
        assert whole and "".join(delta.text for delta in deltas if delta.kind == kind) == whole
    assert any(isinstance(part, Reasoning) and part.signature for part in reply.parts)


# OpenAI's responses


def items(given: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Input items in one spelling: without the ids and the status of what needs none, texts as they are."""
    spelled = []
    for item in given:
        kept = {name: value for name, value in item.items() if value and name not in ("status", "phase")}
        if kept.get("type") == "reasoning":
            kept["summary"] = [text["text"] for text in item["summary"] if text["text"]]
        else:
            kept.pop("id", None)
        if kept.get("type", "message") == "message":
            content = kept["content"]
            text = content if isinstance(content, str) else "".join(part["text"] for part in content)
            kept = {"role": kept["role"], "content": text}
        spelled.append(kept)
    return spelled


async def test_openai_reasoning_a_text_and_a_call_streamed() -> None:
    recorded = Recorded("openai_responses_stream")
    deltas, reply, _ = await replay(recorded.name)
    thought, text, call = reply.parts
    assert isinstance(thought, Reasoning) and thought.text.startswith("**Determining the oldest major city**")
    assert isinstance(text, Text) and text.text.endswith("Let me check the weather there.")
    assert isinstance(call, ToolCall) and call.arguments == '{"location":"St. Augustine, Florida"}'
    for kind, part in (("reasoning", thought.text), ("text", text.text), ("tool_arguments", call.arguments)):
        assert "".join(delta.text for delta in deltas if delta.kind == kind) == part
    assert reply.usage == Usage(input_tokens=67, output_tokens=232, reasoning_tokens=174)
    body = await after(recorded.name, {"get_weather": "It's sunny."}, user=recorded.request()["input"][0]["content"])
    assert items(body["input"]) == items(recorded.request(2)["input"])


async def test_openai_encrypted_reasoning_streamed() -> None:
    recorded = Recorded("openai_responses_encrypted_stream")
    _, reply, _ = await replay(recorded.name)
    thought, text = reply.parts
    sent = recorded.request(2)["input"][1]
    assert signed(thought) == {"provider": "openai", "id": sent["id"], "signature": sent["encrypted_content"]}
    assert isinstance(text, Text) and text.text.startswith("In 2000, the **Sears Tower**")
    assert reply.usage == Usage(input_tokens=20, output_tokens=282, reasoning_tokens=214)
    body = await after(recorded.name, {}, user=recorded.request()["input"][0]["content"], then="Thank you.")
    assert items(body["input"]) == items(recorded.request(2)["input"])


async def test_openai_reasoning_and_a_call_in_one_piece() -> None:
    recorded = Recorded("openai_responses_whole")
    _, reply, _ = await replay(recorded.name)
    reasoned, called = json.loads(recorded.answer().body)["output"]
    *thoughts, call = reply.parts
    assert [part.text for part in thoughts if isinstance(part, Reasoning)] == [
        summary["text"] for summary in reasoned["summary"]
    ]
    assert len(thoughts) == 5 and signed(thoughts[0])["signature"] == reasoned["encrypted_content"]
    assert call == ToolCall(called["call_id"], called["name"], called["arguments"])
    assert reply.usage == Usage(input_tokens=124, output_tokens=1926, reasoning_tokens=1792)
    _, last, _ = await replay(recorded.name, 2)
    assert last.usage == Usage(input_tokens=2087, output_tokens=124, cached_input_tokens=2048)
    (output,) = [item for item in recorded.request(2)["input"] if item.get("type") == "function_call_output"]
    body = await after(
        recorded.name, {called["name"]: output["output"]}, user=recorded.request()["input"][0]["content"]
    )
    assert items(body["input"]) == items(recorded.request(2)["input"])
