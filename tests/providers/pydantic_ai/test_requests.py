"""What reaches the wire: our log in each provider's own shape."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest

from perdure.core.errors import ModelRequestRefused
from perdure.core.messages import Image, Part, Reasoning, Text, ToolCall, ToolResult
from perdure.core.models import ModelRequest
from perdure.features.facts.extraction.model_extractor import answer_schema
from perdure.features.facts.values.extraction import ReadBatch
from perdure.providers.pydantic_ai.model import DirectModel
from perdure.providers.pydantic_ai.options import dialect_of
from perdure.providers.pydantic_ai.to_provider import to_messages
from tests.providers.pydantic_ai.support import ENGINE, MODELS, TAIL, answer, asking, log, sse, two_turns
from tests.support.http_payloads import PayloadServer

ANSWERS = {
    "anthropic": sse("anthropic_text"),
    "google": sse("gemini_text"),
    "openai-responses": sse("openai_responses_text"),
}
ANTHROPIC, GOOGLE, OPENAI = MODELS
KEY_HEADERS = {ANTHROPIC: "authorization", GOOGLE: "x-goog-api-key", OPENAI: "authorization"}


async def wire(provider: str, request: ModelRequest | None = None, *, model: str = "") -> Any:
    """The body of the HTTP request."""
    _, _, body = await answer(provider, ANSWERS[provider], request or asking(provider), model=model)
    return body


def marks(body: Any) -> list[str]:
    """Where an Anthropic request says that it is to be cached up to here."""
    found = [f"tool {tool['name']}" for tool in body["tools"] if "cache_control" in tool]
    found += [f"system {block['text']}" for block in body["system"] if "cache_control" in block]
    for place, message in enumerate(body["messages"]):
        found += [f"{place} {block['type']}" for block in message["content"] if "cache_control" in block]
    return found


async def test_anthropic_messages_and_cache_marks() -> None:
    body = await wire(ANTHROPIC)
    assert marks(body) == ["tool send_message", "system You remember.", "3 text", "6 tool_result"]
    assert [message["role"] for message in body["messages"]] == ["user", "assistant"] * 3 + ["user"]
    calls, results = body["messages"][1]["content"], body["messages"][2]["content"]
    assert [call["input"] for call in calls] == [{"city": "Oslo"}, {}]
    assert [(result["tool_use_id"], result["is_error"]) for result in results] == [("call_a", False), ("call_b", True)]
    assert [block["text"] for block in body["messages"][4]["content"]] == [ENGINE, "And now?"]
    # An id that a later run has used again, and arguments that are no JSON.
    again, answered = body["messages"][5]["content"][0], body["messages"][6]["content"]
    assert again["id"] == answered[0]["tool_use_id"] == "call_a-2"
    assert again["input"] == {"INVALID_JSON": '{"city": Os'}
    assert answered[-1] == {"type": "text", "text": TAIL}


async def test_anthropic_reads_from_the_cache_what_the_last_request_wrote() -> None:
    """The bytes up to a request's last mark stand at the same place in the next one."""
    whole = two_turns()
    bodies = [await wire(ANTHROPIC, asking(ANTHROPIC, whole[:count])) for count in (1, 4, 5, 7, 9)]
    for early, late in itertools.pairwise(bodies):
        assert blocks(early, upto_mark=True) == blocks(late)[: len(blocks(early, upto_mark=True))]


def blocks(body: Any, *, upto_mark: bool = False) -> list[str]:
    every = [(message["role"], block) for message in body["messages"] for block in message["content"]]
    if upto_mark:
        every = every[: max(place for place, (_, block) in enumerate(every) if "cache_control" in block) + 1]
    return [
        json.dumps([role, {name: value for name, value in block.items() if name != "cache_control"}])
        for role, block in every
    ]


PICTURE = Image("image/png", "iVBORw0KGgo=")


async def test_pictures_reach_the_providers() -> None:
    """In messages, and in results of tools."""
    entries = log(
        ("user", (Text("Look:"), PICTURE)),
        ("assistant", (ToolCall("call_a", "get_weather", '{"city":"Oslo"}'),)),
        ("tool", (ToolResult("call_a", "get_weather", "sunny", images=(PICTURE,)),)),
    )
    anthropic = await wire(ANTHROPIC, asking(ANTHROPIC, entries))
    google = await wire(GOOGLE, asking(GOOGLE, entries))

    shown = {"type": "image", "source": {"data": PICTURE.data, "media_type": "image/png", "type": "base64"}}
    assert anthropic["messages"][0]["content"][1] == shown
    result = anthropic["messages"][2]["content"][0]
    assert result["type"] == "tool_result" and shown in result["content"]
    assert google["contents"][0]["parts"][1]["inlineData"]["data"] == PICTURE.data
    assert PICTURE.data in json.dumps(google["contents"][2:])


async def test_a_provider_of_unknown_eyes_gets_a_line() -> None:
    """In place of the picture."""
    request = asking(ANTHROPIC, log(("user", (Text("Look:"), PICTURE))))
    messages = to_messages(request, dialect_of("cohere"), system="cohere")

    assert "you can't be shown it" in str(messages) and PICTURE.data not in str(messages)


async def test_gemini_messages() -> None:
    body = await wire(GOOGLE)
    assert body["systemInstruction"]["parts"] == [{"text": "You remember."}]
    contents = body["contents"]
    assert [part["functionCall"]["name"] for part in contents[1]["parts"]] == ["get_weather", "list_cities"]
    responses = [part["functionResponse"] for part in contents[2]["parts"]]
    assert [response["response"] for response in responses] == [{"return_value": "sunny"}, {"error": "(no output)"}]
    assert contents[4] == {"role": "user", "parts": [{"text": ENGINE}, {"text": "And now?"}]}
    assert contents[-1] == {"role": "user", "parts": [{"text": TAIL}]}


async def test_openai_messages() -> None:
    body = await wire(OPENAI)
    assert body["instructions"] == "You remember." and body["store"] is False
    assert body["include"] == ["reasoning.encrypted_content"]
    kinds = [item.get("role") or item["type"] for item in body["input"]]
    assert kinds == [
        *("user", "function_call", "function_call", "function_call_output", "function_call_output", "assistant"),
        *("system", "user", "function_call", "function_call_output", "system"),
    ]
    assert body["input"][6]["content"] == ENGINE and body["input"][-1]["content"] == TAIL
    assert json.loads(body["input"][8]["arguments"]) == {"INVALID_JSON": '{"city": Os'}
    assert body["input"][9]["output"] == "arguments were not usable"
    assert all(tool["strict"] is False for tool in body["tools"])


async def test_anthropic_reasoning_goes_back_unchanged() -> None:
    _, reply, _ = await answer(ANTHROPIC, sse("anthropic_thinking_tools"))
    body = await wire(ANTHROPIC, asking(ANTHROPIC, turn_of(reply.parts)))
    assert body["messages"][1]["content"][:3] == [
        {
            "type": "thinking",
            "thinking": "Two cities are asked for. I call the tool twice.",
            "signature": "EqQBCgIYAhIM1gbcDa9GJwZA2b3hGgxBdjrkzLoky3dl1pk=",
        },
        {"type": "redacted_thinking", "data": "EmwKAhgBEgy3va3pzix/LafPsn4aDFIT2Xlxh0L5L8rLVyIw"},
        {"type": "text", "text": "I look both up."},
    ]


async def test_gemini_signatures_go_back_on_the_pieces_they_came_with() -> None:
    _, reply, _ = await answer(GOOGLE, sse("gemini_thoughts_tools"))
    body = await wire(GOOGLE, asking(GOOGLE, turn_of(reply.parts)))
    thought, first, second = body["contents"][1]["parts"]
    assert thought["thought"] is True and "thoughtSignature" not in thought
    assert first["thoughtSignature"] == "CpcBAdHtim9Q7sWjZ2VtaW5pLXNpZ25hdHVyZQ=="
    assert "thoughtSignature" not in second

    _, reply, _ = await answer(GOOGLE, sse("gemini_text"))
    body = await wire(GOOGLE, asking(GOOGLE, log(("user", (Text("Hi"),)), ("assistant", reply.parts))))
    assert body["contents"][1]["parts"] == [{"text": "Hello!", "thoughtSignature": "CiQB0e2Kb3NpZ25lZA=="}]


async def test_openai_reasoning_goes_back_encrypted() -> None:
    _, reply, _ = await answer(OPENAI, sse("openai_responses_reasoning_tools"))
    body = await wire(OPENAI, asking(OPENAI, turn_of(reply.parts)))
    assert body["input"][1] == {
        "id": "rs_67ca",
        "type": "reasoning",
        "summary": [{"type": "summary_text", "text": "**Looking up two cities**"}],
        "encrypted_content": "gAAAAABotdR8mZb7UFn3q1",
    }


def turn_of(parts: tuple[Part, ...]) -> Any:
    """A turn with this answer, its calls answered."""
    results = tuple(ToolResult(part.call_id, part.name, "done") for part in parts if isinstance(part, ToolCall))
    return log(("user", (Text("Weather?"),)), ("assistant", parts), ("tool", results))


@pytest.mark.parametrize("provider", MODELS)
async def test_reasoning_that_another_provider_signed_stays_behind(provider: str) -> None:
    foreign = (
        Reasoning("a secret thought", '{"provider":"elsewhere","signature":"c2ln"}'),
        Reasoning("a secret thought", "a-bare-signature"),
        Reasoning("a secret thought"),
    )
    body = json.dumps(await wire(provider, asking(provider, two_turns(foreign))))
    assert "secret thought" not in body and "bare-signature" not in body


@pytest.mark.parametrize(
    ("choice", "anthropic", "google", "openai"),
    [
        ("required", {"type": "any"}, {"mode": "ANY"}, "required"),
        ("none", {"type": "none"}, {"mode": "NONE"}, "none"),
        (
            ("send_message",),
            {"type": "tool", "name": "send_message"},
            {"mode": "ANY", "allowedFunctionNames": ["send_message"]},
            {"type": "function", "name": "send_message"},
        ),
        (
            ("get_weather", "send_message", "not_there"),
            {"type": "any"},
            {"mode": "ANY", "allowedFunctionNames": ["get_weather", "send_message"]},
            {
                "type": "allowed_tools",
                "mode": "required",
                "tools": [{"type": "function", "name": "get_weather"}, {"type": "function", "name": "send_message"}],
            },
        ),
    ],
)
async def test_tools_are_forced_natively_and_none_leaves_the_request(
    choice: Any, anthropic: Any, google: Any, openai: Any
) -> None:
    body = await wire(ANTHROPIC, asking(ANTHROPIC, tool_choice=choice))
    assert body["tool_choice"] == anthropic and len(body["tools"]) == 3
    body = await wire(GOOGLE, asking(GOOGLE, tool_choice=choice))
    config = body["toolConfig"]["functionCallingConfig"]
    assert (
        config | {"allowedFunctionNames": sorted(config.get("allowedFunctionNames", []))}
        == {"allowedFunctionNames": []} | google
    )
    assert sum(len(tool["functionDeclarations"]) for tool in body["tools"]) == 3
    body = await wire(OPENAI, asking(OPENAI, tool_choice=choice))
    sent = body["tool_choice"]
    if isinstance(sent, dict) and "tools" in sent:
        sent["tools"].sort(key=lambda tool: tool["name"])
    assert sent == openai and len(body["tools"]) == 3


async def test_anthropic_can_not_be_forced_while_it_thinks_so_it_is_asked() -> None:
    body = await wire(ANTHROPIC, asking(ANTHROPIC, tool_choice=("send_message",), max_reasoning_tokens=2048))
    assert body["tool_choice"] == {"type": "auto"} and len(body["tools"]) == 3
    assert body["thinking"] == {"type": "enabled", "budget_tokens": 2048}


async def test_a_choice_of_tools_that_are_not_there_is_refused() -> None:
    with pytest.raises(ModelRequestRefused, match="not_there"):
        await wire(ANTHROPIC, asking(ANTHROPIC, tool_choice=("not_there",)))


async def test_anthropic_options() -> None:
    options: dict[str, Any] = {"temperature": 0.3, "top_p": 0.9, "max_output_tokens": 500, "parallel_tool_calls": False}
    body = await wire(ANTHROPIC, asking(ANTHROPIC, **options, extra={"metadata": {"user_id": "u-1"}}))
    assert (body["temperature"], body["top_p"], body["max_tokens"]) == (0.3, 0.9, 500)
    assert body["tool_choice"] == {"type": "auto", "disable_parallel_tool_use": True}
    assert body["metadata"] == {"user_id": "u-1"}
    body = await wire(ANTHROPIC, asking(ANTHROPIC, temperature=0.3, reasoning_effort="low"))
    assert body["thinking"]["type"] == "enabled" and "temperature" not in body
    body = await wire(ANTHROPIC, asking(ANTHROPIC, reasoning_effort="high"), model="claude-opus-4-6")
    assert body["thinking"] == {"type": "adaptive"} and body["output_config"] == {"effort": "high"}


async def test_gemini_options() -> None:
    body = await wire(
        GOOGLE, asking(GOOGLE, temperature=0.3, top_p=0.9, max_output_tokens=500, parallel_tool_calls=False)
    )
    config = body["generationConfig"]
    assert (config["temperature"], config["topP"], config["maxOutputTokens"]) == (0.3, 0.9, 500)
    body = await wire(GOOGLE, asking(GOOGLE, max_reasoning_tokens=1000))
    assert body["generationConfig"]["thinkingConfig"] == {"includeThoughts": True, "thinkingBudget": 1000} or body[
        "generationConfig"
    ]["thinkingConfig"] == {"include_thoughts": True, "thinking_budget": 1000}
    body = await wire(GOOGLE, asking(GOOGLE, reasoning_effort="none"))
    assert 0 in body["generationConfig"]["thinkingConfig"].values()
    with pytest.raises(ModelRequestRefused, match="google_"):
        await wire(GOOGLE, asking(GOOGLE, extra={"cachedContent": "x"}))


async def test_openai_options() -> None:
    body = await wire(
        OPENAI,
        asking(OPENAI, max_output_tokens=500, parallel_tool_calls=False, reasoning_effort="low", extra={"user": "u-1"}),
    )
    assert (body["max_output_tokens"], body["parallel_tool_calls"]) == (500, False)
    assert body["reasoning"] == {"effort": "low"} and body["user"] == "u-1"
    body = await wire(OPENAI, asking(OPENAI, response_format={"type": "json_object"}))
    assert body["text"]["format"] == {"type": "json_object"}


SCHEMA = {
    "type": "object",
    "properties": {"city": {"type": "string"}},
    "required": ["city"],
    "additionalProperties": False,
}


async def test_a_list_of_types_in_the_shape_of_the_answer_is_several_shapes() -> None:
    """Anthropic's client refuses such a list, and facts are asked for with one."""
    optional = {"type": ["string", "null"], "maxLength": 9, "description": "when"}
    wanted = {
        "type": "object",
        "properties": {"at": optional, "all": {"type": "array", "items": {"type": ["integer"]}}},
    }
    shape = {"type": "json_schema", "json_schema": {"name": "n", "schema": wanted}}
    text = json.dumps(await wire(ANTHROPIC, asking(ANTHROPIC, response_format=shape)))
    assert '"anyOf"' in text and '"when"' in text and '["string", "null"]' not in text
    facts = answer_schema(ReadBatch(turns=()))
    shape = {"type": "json_schema", "json_schema": {"name": "facts", "schema": facts}}
    assert "valid_at" in json.dumps(await wire(ANTHROPIC, asking(ANTHROPIC, response_format=shape)))


async def test_the_shape_of_the_answer() -> None:
    wanted = {"type": "json_schema", "json_schema": {"name": "place", "schema": SCHEMA, "strict": True}}
    body = await wire(OPENAI, asking(OPENAI, response_format=wanted))
    assert body["text"]["format"] == {"type": "json_schema", "name": "place", "schema": SCHEMA, "strict": True}
    body = await wire(GOOGLE, asking(GOOGLE, response_format=wanted), model="gemini-3-pro-preview")
    assert body["generationConfig"]["responseMimeType"] == "application/json"
    body = await wire(ANTHROPIC, asking(ANTHROPIC, response_format=wanted))
    assert body["output_config"]["format"] == {"type": "json_schema", "schema": SCHEMA}
    with pytest.raises(ModelRequestRefused, match="json_schema"):
        await wire(ANTHROPIC, asking(ANTHROPIC, response_format={"type": "json_object"}))


@pytest.mark.parametrize("provider", MODELS)
async def test_a_log_that_no_provider_likes_is_still_a_legal_request(provider: str) -> None:
    odd = "functions.get_weather:0/" + "x" * 80
    body = await wire(
        provider,
        asking(
            provider,
            log(
                ("assistant", (Text("I speak first."), Text(" \n"))),
                ("user", (Text("half a pair: \ud83d"),)),
                (
                    "assistant",
                    (ToolCall(odd, "get_weather", '{"a": NaN}'), ToolCall("b", "list_cities", '{"\\ud83d": 1}')),
                ),
                ("tool", (ToolResult(odd, "get_weather", "ok"), ToolResult("b", "list_cities", "ok"))),
            ),
        ),
    )
    assert odd not in json.dumps(body)
    if provider == ANTHROPIC:
        assert [message["role"] for message in body["messages"]][:3] == ["user", "assistant", "user"]
        calls, results = body["messages"][3]["content"], body["messages"][4]["content"]
        assert [call["id"] for call in calls] == [result["tool_use_id"] for result in results[:2]]
        assert all(len(call["id"]) <= 64 for call in calls)


async def test_without_tools_and_tail() -> None:
    for provider in MODELS:
        request = ModelRequest(model="m", system="", messages=log(("user", (Text("Hi"),))))
        body = await wire(provider, request)
        assert "tools" not in body and "tool_choice" not in body and "system" not in body


@pytest.mark.parametrize("provider", MODELS)
async def test_the_key_is_in_a_header_and_nowhere_else(provider: str) -> None:
    async with PayloadServer(ANSWERS[provider]) as server:
        direct = DirectModel(provider=provider, model=MODELS[provider], api_key="k-123456", base_url=server.url)
        async for _ in direct.respond(asking(provider)):
            pass
        await direct.aclose()
    sent = server.received[0]
    assert [name for name, value in sent.headers.items() if "k-123456" in value] == [KEY_HEADERS[provider]]
    assert "k-123456" not in repr(direct) + sent.path and b"k-123456" not in sent.body
