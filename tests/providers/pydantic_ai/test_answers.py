"""What providers stream, as they document it, and what becomes of it."""

from __future__ import annotations

import json

import pytest

from perdure.core.errors import ModelRefused, ModelReplyEmpty, ModelReplyInvalid, ModelStreamCut
from perdure.core.messages import Reasoning, Text, ToolCall
from perdure.core.models import ModelDelta
from perdure.core.runs import Usage
from tests.providers.pydantic_ai.support import KEY, answer, asking, sse, two_turns
from tests.support.http_payloads import Payload


def signature(part: object) -> object:
    assert isinstance(part, Reasoning) and part.signature
    return json.loads(part.signature)


async def test_anthropic_thinking_and_parallel_calls() -> None:
    deltas, reply, _ = await answer("anthropic", sse("anthropic_thinking_tools"))
    thought, redacted, *message = reply.parts
    assert isinstance(thought, Reasoning) and thought.text == "Two cities are asked for. I call the tool twice."
    assert signature(thought) == {
        "provider": "anthropic",
        "signature": "EqQBCgIYAhIM1gbcDa9GJwZA2b3hGgxBdjrkzLoky3dl1pk=",
    }
    assert signature(redacted) == {
        "provider": "anthropic",
        "id": "redacted_thinking",
        "signature": "EmwKAhgBEgy3va3pzix/LafPsn4aDFIT2Xlxh0L5L8rLVyIw",
    }
    assert message == [
        Text("I look both up."),
        ToolCall("toolu_01T1x1fJ", "get_weather", '{"city": "Reykjavík"}'),
        ToolCall("toolu_02A7k9", "list_cities", "{}"),
    ]
    assert reply.usage == Usage(
        input_tokens=1253, output_tokens=97, cached_input_tokens=1044, cache_write_tokens=188, reasoning_tokens=0
    )
    assert reply.stop_reason == "end_turn"
    assert deltas == [
        ModelDelta("reasoning", "Two cities are asked for. "),
        ModelDelta("reasoning", "I call the tool twice."),
        ModelDelta("text", "I look "),
        ModelDelta("text", "both up."),
        ModelDelta("tool_name", "get_weather", 0, "toolu_01T1x1fJ"),
        ModelDelta("tool_arguments", '{"city": "Reyk', 0, "toolu_01T1x1fJ"),
        ModelDelta("tool_arguments", 'javík"}', 0, "toolu_01T1x1fJ"),
        ModelDelta("tool_name", "list_cities", 1, "toolu_02A7k9"),
    ]


async def test_the_exchange_has_what_went_over_the_wire_and_no_key() -> None:
    _, reply, _ = await answer("anthropic", sse("anthropic_text"))
    assert reply.parts == (Text("Hello!"),)
    assert (exchange := reply.exchange) is not None
    assert exchange.request["url"].endswith("/v1/messages") and exchange.request["bytes"] > 500
    assert exchange.request["tools"] == 3 and exchange.request["options"]["max_retries"] == 0
    assert exchange.response["id"] == "msg_1nZdL29x" and exchange.response["status"] == 200
    assert exchange.response["parts"] == [{"type": "text", "text": "Hello!"}]
    assert KEY not in repr(exchange)


async def test_gemini_thoughts_and_calls_whose_signature_stands_on_the_reasoning() -> None:
    deltas, reply, _ = await answer("google", sse("gemini_thoughts_tools"))
    thought, *called = reply.parts
    assert isinstance(thought, Reasoning) and thought.text == "**Weighing it**\n\nThe user wants two lookups."
    assert signature(thought) == {"provider": "google", "signature": "CpcBAdHtim9Q7sWjZ2VtaW5pLXNpZ25hdHVyZQ=="}
    assert called == [
        ToolCall("fc_8f2a", "get_weather", '{"city":"Reykjavík"}'),
        ToolCall("fc_8f2b", "list_cities", "{}"),
    ]
    assert reply.usage == Usage(input_tokens=812, output_tokens=95, cached_input_tokens=512, reasoning_tokens=71)
    assert [delta.index for delta in deltas if delta.kind == "tool_name"] == [0, 1]
    assert "".join(delta.text for delta in deltas if delta.kind == "reasoning") == thought.text


async def test_gemini_text_with_a_signature_at_its_end() -> None:
    deltas, reply, _ = await answer("google", sse("gemini_text"))
    signed, text = reply.parts
    assert text == Text("Hello!")
    assert signature(signed) == {"provider": "google", "signature": "CiQB0e2Kb3NpZ25lZA=="}
    assert deltas == [ModelDelta("text", "Hel"), ModelDelta("text", "lo!")]


async def test_openai_reasoning_and_calls() -> None:
    deltas, reply, _ = await answer("openai-responses", sse("openai_responses_reasoning_tools"))
    thought, *called = reply.parts
    assert isinstance(thought, Reasoning) and thought.text == "**Looking up two cities**"
    assert signature(thought) == {"provider": "openai", "id": "rs_67ca", "signature": "gAAAAABotdR8mZb7UFn3q1"}
    assert called == [
        ToolCall("call_N4u2", "get_weather", '{"city":"Reykjavík"}'),
        ToolCall("call_P7q9", "list_cities", "{}"),
    ]
    assert reply.usage == Usage(input_tokens=1328, output_tokens=211, cached_input_tokens=1024, reasoning_tokens=128)
    arguments = [delta.text for delta in deltas if delta.kind == "tool_arguments" and delta.index == 0]
    assert arguments == ['{"city":', '"Reykjavík"}']


@pytest.mark.parametrize(
    ("provider", "payload"),
    [
        ("anthropic", Payload.sse(sse("anthropic_text").body.replace(b'"end_turn"', b'"max_tokens"'))),
        ("google", Payload.sse(sse("gemini_text").body.replace(b'"STOP"', b'"MAX_TOKENS"'))),
        ("openai-responses", sse("openai_responses_incomplete")),
    ],
)
async def test_an_answer_that_is_too_long_says_so(provider: str, payload: Payload) -> None:
    _, reply, _ = await answer(provider, payload)
    assert reply.stop_reason == "max_tokens_exceeded"
    assert reply.parts[-1] == Text("Hello!")


@pytest.mark.parametrize(
    ("provider", "payload", "why"),
    [
        ("anthropic", Payload.sse(sse("anthropic_text").body.replace(b'"end_turn"', b'"refusal"')), "refusal"),
        ("google", sse("gemini_safety"), "SAFETY"),
        ("google", sse("gemini_blocked_prompt"), "PROHIBITED_CONTENT"),
        ("openai-responses", sse("openai_responses_refusal"), "I can't help with that."),
    ],
)
async def test_a_refusal_is_an_error_with_its_reason(provider: str, payload: Payload, why: str) -> None:
    with pytest.raises(ModelRefused, match=why):
        await answer(provider, payload)


async def test_an_empty_answer_is_an_error() -> None:
    head, _, rest = sse("anthropic_text").body.partition(b"event: content_block_start")
    end = rest[rest.index(b"event: message_delta") :]
    with pytest.raises(ModelReplyEmpty) as caught:
        await answer("anthropic", Payload.sse(head + end), asking("anthropic", two_turns()[:1]))
    assert caught.value.exchange is not None
    assert caught.value.usage.input_tokens > 0


async def test_a_call_that_gemini_calls_malformed_is_an_error() -> None:
    body = sse("gemini_text").body.replace(b'"STOP"', b'"MALFORMED_FUNCTION_CALL"')
    with pytest.raises(ModelReplyInvalid, match="MALFORMED_FUNCTION_CALL"):
        await answer("google", Payload.sse(body))


@pytest.mark.parametrize("cut", [False, True], ids=["ends early", "connection breaks"])
@pytest.mark.parametrize(
    ("provider", "name"),
    [
        ("anthropic", "anthropic_thinking_tools"),
        ("google", "gemini_thoughts_tools"),
        ("openai-responses", "openai_responses_reasoning_tools"),
    ],
)
async def test_a_stream_that_is_cut_is_an_error(provider: str, name: str, cut: bool) -> None:
    with pytest.raises(ModelStreamCut) as caught:
        await answer(provider, sse(name, cut=cut, upto=0.6))
    assert caught.value.retryable and caught.value.exchange is not None
