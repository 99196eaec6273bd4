"""What OpenAI and Ollama send, in the shapes that their documentation shows, and what is sent to them.

What they were recorded to send is in `test_recorded_chats`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from perdure.core.ids import AgentId, MessageId
from perdure.core.messages import Message, Part, Reasoning, Role, Text, ToolCall, ToolResult
from perdure.core.models import ModelDelta, ModelOptions, ModelReply, ModelRequest
from perdure.core.runs import StopReason, Usage
from perdure.testing.clock import START
from tests.support.http_payloads import Payload, PayloadServer, Received
from tests.support.openai_chats import openai_chat

PAYLOADS = Path(__file__).parent / "payloads"
CITY = '{"city":"Reykjavík"}'
TOOLS = tuple(
    {"name": name, "description": f"Do {name}.", "parameters": {"type": "object", "properties": {}}}
    for name in ("get_weather", "list_cities")
)
SCHEMA = {"type": "json_schema", "json_schema": {"name": "place", "schema": {"type": "object"}, "strict": True}}


def log(*entries: tuple[Role, tuple[Part, ...]]) -> tuple[Message, ...]:
    return tuple(
        Message(
            id=MessageId(f"message-{seq}"),
            agent_id=AgentId("agent-1"),
            seq=seq,
            conversation_seq=1,
            role=role,
            parts=parts,
            created_at=START,
            occurred_at=START,
        )
        for seq, (role, parts) in enumerate(entries, 1)
    )


async def answer(
    name: str, messages: tuple[Message, ...] | None = None, *, provider: str = "openai", **options: Any
) -> tuple[list[ModelDelta], ModelReply, Received]:
    """The deltas, the reply, and the request, of a file in `payloads`; what is no stream is asked for in one piece."""
    body = (PAYLOADS / name).read_bytes()
    stream = name.endswith(".sse")
    payload = Payload.sse(body) if stream else Payload(body=body, headers={"content-type": "application/json"})
    model_request = ModelRequest(
        model=f"{provider}/test",
        system="You remember.",
        messages=log(("user", (Text("Weather?"),))) if messages is None else messages,
        tools=TOOLS,
        options=ModelOptions(**options),
    )
    async with PayloadServer(payload) as server:
        chat = openai_chat(model="test", base_url=server.url, provider=provider, api_key="k-1", stream=stream)
        try:
            *deltas, reply = [piece async for piece in chat.respond(model_request)]
        finally:
            await chat.aclose()
    assert isinstance(reply, ModelReply)
    (received,) = server.received
    return [delta for delta in deltas if isinstance(delta, ModelDelta)], reply, received


@pytest.mark.parametrize(
    ("name", "parts", "usage", "stop_reason"),
    [
        (
            "openai_chat/stream_tools.sse",
            (ToolCall("call_abc123", "get_weather", CITY), ToolCall("call_def456", "list_cities", "{}")),
            Usage(input_tokens=1117, output_tokens=174, cached_input_tokens=1024, reasoning_tokens=128),
            "end_turn",
        ),
        ("openai_chat/stream_text.sse", (Text("Hello!"),), Usage(input_tokens=19, output_tokens=10), "end_turn"),
        (
            "openai_chat/whole_tools.json",
            (ToolCall("call_abc123", "get_weather", '{\n"city": "Reykjavík"\n}'),),
            Usage(input_tokens=82, output_tokens=17, cached_input_tokens=64, reasoning_tokens=5),
            "end_turn",
        ),
        (
            "openai_chat/whole_length.json",
            (Text("Once upon a"),),
            Usage(input_tokens=12, output_tokens=3),
            "max_tokens_exceeded",
        ),
        (
            "ollama/stream_tools.sse",
            (Reasoning("The user wants the weather."), ToolCall("call_8k2m1x0p", "get_weather", CITY)),
            Usage(),
            "end_turn",
        ),
        (
            "ollama/stream_tools_usage.sse",
            (Reasoning("The user wants the weather."), ToolCall("call_8k2m1x0p", "get_weather", CITY)),
            Usage(input_tokens=161, output_tokens=94),
            "end_turn",
        ),
        (
            "ollama/whole_tools.json",
            (Reasoning("The user wants the weather."), ToolCall("call_8k2m1x0p", "get_weather", CITY)),
            Usage(input_tokens=161, output_tokens=94),
            "end_turn",
        ),
    ],
)
async def test_an_answer_becomes_parts_counts_and_a_reason(
    name: str, parts: tuple[Part, ...], usage: Usage, stop_reason: StopReason
) -> None:
    """Cached and reasoning tokens are counted; what a server does not count is 0. The deltas say the same as the
    parts."""
    deltas, reply, _ = await answer(name, provider=name.partition("/")[0].removesuffix("_chat"))

    assert (reply.parts, reply.usage, reply.stop_reason) == (parts, usage, stop_reason)
    assert reply.exchange is not None and reply.exchange.response["status"] == 200
    for kind, expected in (("text", Text), ("reasoning", Reasoning)):
        message = "".join(delta.text for delta in deltas if delta.kind == kind)
        assert message == "".join(
            part.text for part in parts if isinstance(part, Text | Reasoning) and type(part) is expected
        )
    for index, call in enumerate(part for part in parts if isinstance(part, ToolCall)):
        of_call = [delta for delta in deltas if delta.kind.startswith("tool_") and delta.index == index]
        assert "".join(delta.text for delta in of_call if delta.kind == "tool_name") == call.name
        assert "".join(delta.text for delta in of_call if delta.kind == "tool_arguments") == call.arguments
        assert {delta.call_id for delta in of_call} == {call.call_id}


async def test_openai_streams_a_call_in_pieces() -> None:
    """Each piece is a delta, with the number and the id of its call."""
    deltas, _, _ = await answer("openai_chat/stream_tools.sse")

    assert deltas == [
        ModelDelta("tool_name", "get_weather", 0, "call_abc123"),
        *(ModelDelta("tool_arguments", text, 0, "call_abc123") for text in ('{"', "city", '":"', "Reykjavík", '"}')),
        ModelDelta("tool_name", "list_cities", 1, "call_def456"),
        ModelDelta("tool_arguments", "{}", 1, "call_def456"),
    ]


async def test_ollama_streams_a_call_in_one_piece() -> None:
    """Its arguments are one delta; thoughts come before, in a field of their own; empty contents say nothing."""
    deltas, _, _ = await answer("ollama/stream_tools.sse", provider="ollama")

    assert deltas == [
        ModelDelta("reasoning", "The user"),
        ModelDelta("reasoning", " wants the weather."),
        ModelDelta("tool_name", "get_weather", 0, "call_8k2m1x0p"),
        ModelDelta("tool_arguments", CITY, 0, "call_8k2m1x0p"),
    ]


@pytest.mark.parametrize("name", ["openai_chat/stream_tools.sse", "ollama/stream_tools.sse"])
async def test_an_answer_goes_back_with_its_results_behind_it(name: str) -> None:
    """Calls under their ids, arguments as they were written, each result naming its call; reasoning stays here."""
    _, reply, _ = await answer(name)
    called = [part for part in reply.parts if isinstance(part, ToolCall)]
    results = tuple(ToolResult(call.call_id, call.name, f"did {call.name}") for call in called)
    history = log(("user", (Text("Weather?"),)), ("assistant", reply.parts), ("tool", results))
    _, _, received = await answer("openai_chat/stream_text.sse", history)

    assert received.json["messages"] == [
        {"role": "system", "content": "You remember."},
        {"role": "user", "content": "Weather?"},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {"id": call.call_id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
                for call in called
            ],
        },
        *({"role": "tool", "tool_call_id": call.call_id, "content": f"did {call.name}"} for call in called),
    ]


@pytest.mark.parametrize("provider", ["openai", "ollama"])
async def test_a_streamed_request_wishes_for_its_usage(provider: str) -> None:
    """Ollama and OpenAI tell it only then; what is not wished for is not sent."""
    _, _, received = await answer("openai_chat/stream_text.sse", provider=provider)

    assert (received.method, received.path) == ("POST", "/v1/chat/completions")
    assert received.headers["authorization"] == "Bearer k-1"
    assert set(received.json) == {"model", "messages", "tools", "stream", "stream_options"}
    assert (received.json["stream"], received.json["stream_options"]) == (True, {"include_usage": True})
    assert received.json["tools"] == [{"type": "function", "function": tool} for tool in TOOLS]


async def test_a_request_in_one_piece_has_no_stream_options() -> None:
    """OpenAI refuses them there."""
    _, _, received = await answer("openai_chat/whole_tools.json")

    assert received.json["stream"] is False
    assert "stream_options" not in received.json


FORCED = {"type": "function", "function": {"name": "get_weather"}}


@pytest.mark.parametrize(
    ("provider", "options", "field", "value"),
    [
        ("openai", {"tool_choice": ("get_weather",)}, "tool_choice", FORCED),
        ("openai", {"tool_choice": ("get_weather", "list_cities")}, "tool_choice", "required"),
        ("openai", {"tool_choice": "required"}, "tool_choice", "required"),
        ("openai", {"tool_choice": "none"}, "tool_choice", "none"),
        ("ollama", {"tool_choice": ("get_weather",)}, "tool_choice", FORCED),
        ("ollama", {"tool_choice": ("get_weather", "list_cities")}, "tool_choice", "required"),
        ("openai", {"parallel_tool_calls": False}, "parallel_tool_calls", False),
        ("openai", {"parallel_tool_calls": True}, "parallel_tool_calls", True),
        ("openai", {"response_format": {"type": "json_object"}}, "response_format", {"type": "json_object"}),
        ("openai", {"response_format": SCHEMA}, "response_format", SCHEMA),
        ("ollama", {"response_format": SCHEMA}, "response_format", SCHEMA),
    ],
)
async def test_a_wish_stands_in_the_body(provider: str, options: dict[str, Any], field: str, value: Any) -> None:
    """In the API's own words, and all tools are still offered."""
    _, _, received = await answer("openai_chat/stream_text.sse", provider=provider, **options)

    assert received.json[field] == value
    assert len(received.json["tools"]) == len(TOOLS)
