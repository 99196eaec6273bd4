"""Conversations that were recorded at OpenAI, OpenRouter and Ollama: what each answer becomes, and that the next
request we write is the one that was recorded."""

from __future__ import annotations

from typing import Any

import pytest

from perdure.core.messages import Message, Part, Role, Text, ToolCall, ToolResult
from perdure.core.models import ModelDelta, ModelOptions, ModelReply, ModelRequest
from perdure.core.runs import Usage
from tests.providers.recorded import Recorded
from tests.providers.test_recordings import log
from tests.support.http_payloads import PayloadServer
from tests.support.openai_chats import openai_chat


async def replay(
    name: str, number: int = 1, messages: tuple[Message, ...] | None = None, *, answer: int = 0
) -> tuple[ModelReply, Any]:
    """The reply to a recorded answer, and the body of the request that we wrote for it.

    Args:
        messages: the log behind the system text; default: the recorded request's own messages.
        answer: the number of the answer, if that of the request is not kept.
    """
    recorded = Recorded(name)
    model_request = recorded.request(number)
    system = [message["content"] for message in model_request["messages"] if message["role"] == "system"]
    provider = name.partition("_")[0]
    request = ModelRequest(
        model=f"{provider}/{model_request['model']}",
        system="".join(system),
        messages=log(*map(entry, model_request["messages"][len(system) :])) if messages is None else messages,
        tools=tuple(tool["function"] for tool in model_request.get("tools", ())),
        options=ModelOptions(tool_choice=model_request.get("tool_choice", "auto")),
    )
    async with PayloadServer(recorded.answer(answer or number)) as server:
        chat = openai_chat(
            model=model_request["model"],
            base_url=server.url,
            provider=provider,
            api_key="k-1",
            stream=recorded.streamed,
        )
        try:
            *deltas, reply = [piece async for piece in chat.respond(request)]
        finally:
            await chat.aclose()
    assert isinstance(reply, ModelReply)
    assert all(isinstance(delta, ModelDelta) for delta in deltas)
    for call in reply.parts:
        if isinstance(call, ToolCall) and recorded.streamed:  # the deltas say the same
            of_call = [d for d in deltas if isinstance(d, ModelDelta) and d.call_id == call.call_id]
            assert "".join(d.text for d in of_call if d.kind == "tool_arguments") == call.arguments
    (received,) = server.received
    return reply, received.json


def entry(message: dict[str, Any]) -> tuple[Role, tuple[Part, ...]]:
    """A message of OpenAI's as one of our log."""
    parts: tuple[Part, ...] = (Text(message["content"]),) if message["content"] else ()
    if message["role"] == "tool":
        return "tool", (ToolResult(message["tool_call_id"], "", message["content"]),)
    calls = [
        ToolCall(call["id"], call["function"]["name"], call["function"]["arguments"])
        for call in message.get("tool_calls", ())
    ]
    return message["role"], (*parts, *calls)


def normalize_messages(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Messages in which an answer without text has none, however a client writes that."""
    return [message | {"content": message["content"] or None} for message in messages]


COUNTRY = ToolCall("call_rI3WKPYvVwlOgCGRjsPP2hEx", "get_country", "{}")
WEATHER = ToolCall("call_NS4iQj14cDFwc0BnrKqDHavt", "get_weather", '{"city": "Mexico City"}')
PRODUCT = ToolCall("call_SkGkkGDvHQEEk0CGbnAh2AQw", "get_product_name", "{}")


@pytest.mark.parametrize(
    ("name", "number", "parts", "usage"),
    [
        ("openai_chat_stream", 1, (COUNTRY,), Usage(input_tokens=398, output_tokens=10)),
        ("openai_chat_stream", 2, (WEATHER, PRODUCT), Usage(input_tokens=417, output_tokens=44)),
        (
            "openai_chat_whole",
            1,
            (
                ToolCall("call_jYdIdRZHxZTn5bWCq5jlMrJi", "delete_file", '{"path": ".env"}'),
                ToolCall("call_TmlTVWQbzrXCZ4jNsCVNbNqu", "create_file", '{"path": "test.txt"}'),
            ),
            Usage(input_tokens=71, output_tokens=46),
        ),
        (
            "openai_chat_whole",
            2,
            (Text("The file `.env` has been deleted and `test.txt` has been created successfully."),),
            Usage(input_tokens=133, output_tokens=19),
        ),
        ("ollama_tools_stream", 1, (ToolCall("toolcall-0989d0d6-0", "greet_everyone", '{"url":"world"}'),), Usage()),
        # Some of Ollama's models end a call as if they had said something.
        ("ollama_stopped_call_stream", 1, (ToolCall("call_vrp71z1i", "get_boiling_point", "{}"),), Usage()),
        ("ollama_after_tools_stream", 1, (Text("The boiling point of polyjuice is -212."),), Usage()),
    ],
)
async def test_a_recorded_answer(name: str, number: int, parts: tuple[Part, ...], usage: Usage) -> None:
    """Texts and calls as they were recorded, byte for byte, and their counts."""
    reply, _ = await replay(name, number)

    assert (reply.parts, reply.usage, reply.stop_reason) == (parts, usage, "end_turn")


async def test_openrouter_counts_what_came_from_a_cache() -> None:
    """Cached and reasoning tokens; a `reasoning` that is null is none."""
    reply, _ = await replay("openrouter_whole")

    assert reply.usage == Usage(input_tokens=687, output_tokens=240, cached_input_tokens=682, reasoning_tokens=165)
    (text,) = reply.parts
    assert isinstance(text, Text) and text.text.startswith("I'm Grok, a helpful and maximally truthful AI")


@pytest.mark.parametrize(
    ("name", "answers"), [("openai_chat_stream", 2), ("openai_chat_whole", 1)], ids=["streamed", "whole"]
)
async def test_the_next_request_is_the_recorded_one(name: str, answers: int) -> None:
    """Our log of what was answered, with the recorded results behind each answer, is written as it was recorded."""
    recorded = Recorded(name)
    history = [entry(message) for message in recorded.request(1)["messages"] if message["role"] == "user"]
    for number in range(1, answers + 1):
        reply, _ = await replay(name, number)
        called = {part.call_id: part.name for part in reply.parts if isinstance(part, ToolCall)}
        results = [
            ToolResult(message["tool_call_id"], called[message["tool_call_id"]], message["content"])
            for message in recorded.request(number + 1)["messages"]
            if message["role"] == "tool" and message["tool_call_id"] in called
        ]
        history += [("assistant", tuple(reply.parts)), ("tool", tuple(results))]
    model_request = recorded.request(answers + 1)
    _, body = await replay(name, answers + 1, log(*history), answer=1)

    assert body["messages"] == model_request["messages"]
    assert body["tools"] == model_request["tools"]
    assert body.get("tool_choice", "auto") == model_request["tool_choice"]
    assert body.get("stream_options") == model_request.get("stream_options")


async def test_what_ollama_was_asked_after_a_call() -> None:
    """The call under its id, and its result; our log writes the messages that Ollama was recorded to take."""
    _, body = await replay("ollama_after_tools_stream")

    assert normalize_messages(body["messages"]) == normalize_messages(
        Recorded("ollama_after_tools_stream").request()["messages"]
    )


async def test_a_call_of_ollamas_goes_back_under_its_id() -> None:
    """As it came, before its result."""
    reply, _ = await replay("ollama_tools_stream")
    (call,) = reply.parts
    assert isinstance(call, ToolCall)
    history = log(
        ("user", (Text("Hi"),)), ("assistant", reply.parts), ("tool", (ToolResult(call.call_id, call.name, "done"),))
    )
    _, body = await replay("ollama_tools_stream", messages=history)

    assert body["messages"][2:] == [
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {
                    "id": "toolcall-0989d0d6-0",
                    "type": "function",
                    "function": {"name": "greet_everyone", "arguments": '{"url":"world"}'},
                }
            ],
        },
        {"role": "tool", "tool_call_id": "toolcall-0989d0d6-0", "content": "done"},
    ]
