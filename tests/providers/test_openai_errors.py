"""What goes wrong with a chat server is a typed error that says what happened, where, and what helps."""

from __future__ import annotations

import asyncio
import json
import socket
from contextlib import aclosing
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.core.errors import (
    InvalidInput,
    ModelAuthenticationFailed,
    ModelError,
    ModelLoading,
    ModelOverflow,
    ModelOverloaded,
    ModelQuotaExceeded,
    ModelRateLimited,
    ModelRefused,
    ModelReplyEmpty,
    ModelReplyInvalid,
    ModelRequestRefused,
    ModelStreamCut,
    ModelTakesNoTools,
    ModelTimeout,
    ModelUnreachable,
)
from perdure.core.ids import AgentId, MessageId
from perdure.core.messages import Message, Text, unlogged_message
from perdure.core.models import Exchange, ModelReply, ModelRequest
from perdure.core.runs import Usage
from perdure.providers.masking import mask_fields, mask_headers, mask_text
from perdure.providers.openai_chat.faults import RequestTarget, error_of_status, retry_after_s
from perdure.providers.openai_chat.model import OpenAIChat, SilenceLimits
from perdure.providers.openai_endpoint import HttpClients
from perdure.testing import ChunkList, CutOff, Hanging, HttpModel, RawBody, Status, Unanswered, calls, says, thinks
from tests.support.cases import for_each
from tests.support.openai_chats import openai_chat
from tests.support.passing_time import when_it_hangs
from tests.support.strategies import any_text, effort

KEY = "sk-canary-0123456789"
NOW = datetime(2026, 11, 20, 10, 0, tzinfo=UTC)
ASKED = RequestTarget("test", "http://localhost/v1/chat/completions", (KEY,))
REQUEST = ModelRequest(model="openai/test", system="You are.", messages=(), tail="now")


def openai(code: str | None, text: str, kind: str = "invalid_request_error") -> dict[str, Any]:
    return {"error": {"message": text, "type": kind, "param": None, "code": code}}


async def ask(model: OpenAIChat, request: ModelRequest = REQUEST) -> ModelReply:
    """The reply, the connections closed again."""
    try:
        pieces = [piece async for piece in model.respond(request)]
    finally:
        await model.aclose()
    assert isinstance(pieces[-1], ModelReply)
    return pieces[-1]


async def failure(model: OpenAIChat) -> ModelError:
    with pytest.raises(ModelError) as caught:
        await ask(model)
    return caught.value


@for_each(
    [
        (400, openai("context_length_exceeded", "This model's maximum context length is 8192 tokens."), ModelOverflow),
        (400, {"object": "error", "message": "maximum context length is 4096", "code": 400}, ModelOverflow),
        (400, {"error": {"code": 400, "type": "exceed_context_size_error", "message": "too big"}}, ModelOverflow),
        (400, {"error": "the request exceeds the available context size, try increasing it"}, ModelOverflow),
        (400, {"error": {"message": "prompt is too long: 210000 tokens > 200000 maximum"}}, ModelOverflow),
        (
            400,
            [{"error": {"message": "The input token count (9) exceeds the maximum number of tokens"}}],
            ModelOverflow,
        ),
        (500, {"error": "trying to keep the first 9 tokens when context the overflows"}, ModelOverflow),
        (413, "", ModelOverflow),
        (400, openai("content_filter", "filtered"), ModelRefused),
        (400, openai(None, "unknown parameter"), ModelRequestRefused),
        (422, {"detail": [{"loc": ["body"], "msg": "field required"}]}, ModelRequestRefused),
        (401, openai("invalid_api_key", f"Incorrect API key provided: {KEY}."), ModelAuthenticationFailed),
        (403, "", ModelAuthenticationFailed),
        (402, {"error": {"message": "This request requires more credits", "code": 402}}, ModelQuotaExceeded),
        (
            429,
            openai("insufficient_quota", "You exceeded your current quota", "insufficient_quota"),
            ModelQuotaExceeded,
        ),
        (403, {"error": {"message": "insufficient balance"}}, ModelQuotaExceeded),
        (429, openai("rate_limit_exceeded", "Rate limit reached, tokens per min"), ModelRateLimited),
        (429, {"error": {"status": "RESOURCE_EXHAUSTED", "message": "exceeded your current quota"}}, ModelRateLimited),
        (404, {"error": {"message": "model 'test' not found"}}, ModelRequestRefused),
        (404, "<html><title>Not Found</title></html>", ModelRequestRefused),
        (405, "", ModelRequestRefused),
        (307, "", ModelRequestRefused),
        (408, "", ModelTimeout),
        (504, "upstream timed out", ModelTimeout),
        (500, {"error": {"message": "boom"}}, ModelOverloaded),
        (502, "<html><style>x</style><h1>Bad Gateway</h1></html>", ModelOverloaded),
        (503, {"error": "loading model"}, ModelLoading),
        (529, "", ModelOverloaded),
        (400, "null", ModelRequestRefused),
        (400, "{", ModelRequestRefused),
        (400, {"error": {"message": {"deep": [1]}}}, ModelRequestRefused),
    ]
)
def test_a_status_and_its_body_are_a_typed_error(status: int, body: Any, expected: type[ModelError]) -> None:
    """The bodies are those of OpenAI, Azure, Ollama, vLLM, llama.cpp, OpenRouter, Gemini and of proxies."""
    text = body if isinstance(body, str) else json.dumps(body)

    error = error_of_status(status, {}, text, ASKED, now=NOW)

    assert type(error) is expected
    assert error.status == status
    assert f"model 'test' at http://localhost/v1/chat/completions answered {status}" in str(error)
    assert KEY not in str(error)
    assert "<" not in str(error)


def test_what_openrouter_hides_is_shown() -> None:
    """What the provider behind it said is in the metadata."""
    body = {"error": {"message": "Provider returned error", "code": 400, "metadata": {"raw": "prompt is too long"}}}

    error = error_of_status(400, {}, json.dumps(body), ASKED, now=NOW)

    assert isinstance(error, ModelOverflow)
    assert "prompt is too long" in str(error)


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({}, None),
        ({"retry-after": "7"}, 7.0),
        ({"retry-after": "0.5"}, 0.5),
        ({"retry-after": "-3"}, 0.0),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "inf"}, None),
        ({"retry-after-ms": "250", "retry-after": "9"}, 0.25),
        ({"retry-after": "Fri, 20 Nov 2026 10:00:30 GMT"}, 30.0),
        ({"retry-after": "Fri, 20 Nov 2026 09:00:00 GMT"}, 0.0),
        ({"retry-after": "Fri, 20 Nov 2026 10:00:30 -0000"}, 30.0),
        ({"retry-after": "Fri, 99 Nov 2026 10:00:30 GMT"}, None),
    ],
)
def test_how_long_to_wait_is_read_in_every_form(headers: dict[str, str], expected: float | None) -> None:
    """Seconds, milliseconds, a date."""
    assert retry_after_s(headers, now=NOW) == expected


async def test_the_wait_that_a_server_asks_for_is_in_the_error() -> None:
    """Also when it is overloaded."""
    async with HttpModel(
        Status(429, headers={"Retry-After": "7"}), Status(503, headers={"Retry-After": "2"})
    ) as server:
        model = openai_chat(model="test", base_url=server.url)
        assert (await failure(model)).retry_after_s == 7
        assert (await failure(model)).retry_after_s == 2


def closed_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port: int = one.getsockname()[1]
        return port


async def test_a_server_that_is_not_there_is_unreachable() -> None:
    """The message has the address."""
    url = f"http://127.0.0.1:{closed_port()}"

    error = await failure(openai_chat(model="test", base_url=url))

    assert isinstance(error, ModelUnreachable)
    assert url in str(error)


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (Unanswered(), ModelUnreachable),
        (Hanging(), ModelTimeout),
        (Hanging(says("one two"), after=2), ModelTimeout),
        (CutOff(says("one two"), after=2), ModelStreamCut),
        (CutOff(says("one two"), after=0), ModelStreamCut),
        (RawBody(b"<html>Log in</html>", "text/html"), ModelReplyInvalid),
        (Status(302, headers={"Location": "http://elsewhere/"}), ModelRequestRefused),
    ],
)
async def test_a_connection_that_fails_is_a_typed_error(line: Any, expected: type[ModelError], stream: bool) -> None:
    """Before the answer, in it, or when it is something else."""
    async with HttpModel(line) as server, when_it_hangs(server, seconds=20):
        error = await failure(
            openai_chat(model="test", base_url=server.url, stream=stream, silence=SilenceLimits(first_s=20, next_s=20))
        )

    assert type(error) is expected
    assert server.url in str(error)
    assert isinstance(error.exchange, Exchange)


async def test_an_answer_that_is_whole_counts_though_the_connection_breaks() -> None:
    """Only its token counts are lost."""
    async with HttpModel(CutOff(says("hi"), after=3)) as server:
        reply = await ask(openai_chat(model="test", base_url=server.url))

    assert [part.text for part in reply.parts if hasattr(part, "text")] == ["hi"]
    assert reply.usage == Usage()


async def test_comments_are_no_answer() -> None:
    """A server that keeps the connection alive with comments, for ever, does not hold a run."""

    async def drip(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n")
            while True:
                writer.write(b": still here\n\n")
                await writer.drain()
                await asyncio.sleep(0.01)
        except (ConnectionError, asyncio.IncompleteReadError):  # a slow machine times out before it has sent a word
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(drip, "127.0.0.1", 0)
    async with server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        error = await failure(openai_chat(model="test", base_url=url, silence=SilenceLimits(first_s=0.1, next_s=0.1)))
        await asyncio.sleep(0.05)  # for `drip` to see that nobody reads any more

    assert isinstance(error, ModelTimeout)


async def test_replies_and_errors_tell_what_went_over_the_wire() -> None:
    """Address, options, counts and sizes, the answer put together; never the messages, never the key."""
    usage = Usage(input_tokens=3, output_tokens=2)
    echo = Status(401, openai("invalid_api_key", f"wrong key {KEY}"))
    async with HttpModel(thinks("hm", says("hello you", usage=usage)), echo) as server:
        model = openai_chat(model="test", base_url=server.url, api_key=f" {KEY}\n")
        reply = await ask(model)
        error = await failure(model)

    assert server.headers[0]["authorization"] == f"Bearer {KEY}"
    assert reply.exchange is not None
    shown = reply.exchange.request
    assert shown["headers"]["authorization"] == "Bearer ***"
    assert shown["body"] == {
        "model": "test",
        "stream": True,
        "stream_options": {"include_usage": True},
        "messages": 2,
        "tools": 0,
    }
    assert shown["size_bytes"] > 0
    got = reply.exchange.response
    assert (got["status"], got["finish_reason"]) == (200, "stop")
    assert got["message"] == {"content": "hello you", "reasoning": "hm"}
    assert isinstance(error.exchange, Exchange)
    assert error.exchange.response["status"] == 401
    assert KEY not in json.dumps([shown, got, error.exchange.request, error.exchange.response, str(error)])


@pytest.mark.parametrize("secret", ["sk-\u00e9", "a\nb"])
def test_a_key_that_can_not_be_sent_is_refused_without_showing_it(secret: str) -> None:
    """At once: the error of the HTTP library would show it."""
    with pytest.raises(InvalidInput) as caught:
        openai_chat(model="test", base_url="http://localhost", api_key=secret)

    assert secret not in str(caught.value)


async def test_an_answer_that_is_no_use_has_the_tokens_that_it_took() -> None:
    """The server bills them all the same."""
    usage = Usage(input_tokens=30, output_tokens=2)
    async with HttpModel(says("", usage=usage)) as server:
        error = await failure(openai_chat(model="test", base_url=server.url))

    assert type(error) is ModelReplyEmpty
    assert error.usage == usage


async def test_models_of_one_endpoint_share_their_connections() -> None:
    """One connection serves one request after the other; who shares it closes it."""
    async with HttpModel() as server, aclosing(HttpClients()) as connections:
        for name in ("one", "two"):
            model = openai_chat(model=name, base_url=server.url, connections=connections)
            for _ in range(2):
                await ask(model)

    assert server.connections == 1
    assert [model_request["model"] for model_request in server.requests] == ["one", "one", "two", "two"]


async def test_proxies_of_the_environment_are_used_but_not_for_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server on this machine is reached though a proxy is set and nobody thought of NO_PROXY."""
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.delenv("no_proxy", raising=False)
    async with HttpModel() as server:
        monkeypatch.setenv("HTTP_PROXY", f"http://127.0.0.1:{closed_port()}")
        monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{closed_port()}")
        await ask(openai_chat(model="here", base_url=server.url))
        monkeypatch.setenv("HTTP_PROXY", server.url)
        monkeypatch.setenv("http_proxy", server.url)
        await ask(openai_chat(model="far", base_url="http://model.invalid"))
        monkeypatch.setenv("NO_PROXY", "model.invalid")
        assert isinstance(await failure(openai_chat(model="far", base_url="http://model.invalid")), ModelUnreachable)

    assert [model_request["model"] for model_request in server.requests] == ["here", "far"]
    assert server.headers[1]["host"] == "model.invalid"


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | any_text(10),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["error", "message", "code", "type", "detail", "msg", "status", "metadata", "raw"]), inner
        )
    ),
    max_leaves=8,
)


@given(status=st.integers(300, 999), body=JSON_VALUES)
@effort(12, 3000)
def test_any_error_body_is_a_typed_error(status: int, body: Any) -> None:
    """Whatever a server thinks up."""
    error = error_of_status(status, {}, json.dumps(body), ASKED, now=NOW)

    assert isinstance(error, ModelError)
    assert str(error).startswith(ASKED.who)


async def test_a_client_that_was_given_stays_open() -> None:
    """It is its maker's."""
    async with HttpModel() as server, httpx.AsyncClient() as client:
        await ask(openai_chat(model="test", base_url=server.url, connections=HttpClients(client)))

        assert not client.is_closed


def test_a_model_outlives_an_event_loop() -> None:
    """The client belongs to the loop in which it is used."""

    async def once() -> None:
        async with HttpModel() as server:
            model.url = f"{server.url}/v1/chat/completions"
            await ask(model)

    model = openai_chat(model="test", base_url="http://127.0.0.1:1")
    asyncio.run(once())
    asyncio.run(once())


async def test_a_reader_that_goes_away_closes_the_connection() -> None:
    """Nothing is left open."""
    async with HttpModel(Hanging(says("one two three"), after=3), calls("look")) as server:
        model = openai_chat(model="test", base_url=server.url)
        pieces = model.respond(REQUEST)
        async for _ in pieces:
            break
        await pieces.aclose()  # type: ignore[attr-defined]
        await ask(model)

    assert server.connections == 2


async def test_an_error_after_some_text_is_still_typed() -> None:
    """The reader has the text; the run gets the reason."""
    text = {"choices": [{"index": 0, "delta": {"content": "one"}}]}
    async with HttpModel(ChunkList([text, {"error": {"message": "Overloaded", "type": "overloaded_error"}}])) as server:
        error = await failure(openai_chat(model="test", base_url=server.url))

    assert isinstance(error, ModelOverloaded)
    assert isinstance(error.exchange, Exchange)
    assert error.exchange.response["message"] == {"content": "one"}


def test_secrets_are_masked_wherever_they_stand() -> None:
    """By name in headers and fields, by shape in texts, and those that are known anywhere."""
    assert mask_headers({"Authorization": "Basic abc", "API-Key": "x", "Accept": "json"}) == {
        "authorization": "Basic ***",
        "api-key": "***",
        "accept": "json",
    }
    assert mask_fields({"max_tokens": 5, "prompt_cache_key": "x", "user": {"api_key": "abc", "name": "Ada"}}) == {
        "max_tokens": 5,
        "prompt_cache_key": "x",
        "user": {"api_key": "***", "name": "Ada"},
    }
    shown = mask_text("GET https://me:pw@host/v1?api-key=abc&x=1 Bearer abcdefgh12 sk-abcdefgh mine", ["mine"])
    assert shown == "GET https://***@host/v1?api-key=***&x=1 Bearer *** *** ***"
    assert mask_text("a b", ["", "a"]) == "a b"


def test_a_date_in_the_past_is_no_wait() -> None:
    """Clocks differ."""
    assert retry_after_s({"retry-after": "Fri, 20 Nov 2026 09:59:59 GMT"}, now=NOW + timedelta(days=1)) == 0.0


@pytest.mark.parametrize(
    "line",
    [
        RawBody(f'{{"ok": "{KEY}"}}'.encode(), "application/json"),
        RawBody(f'{{"ok": {KEY}}}'.encode(), "application/json"),
        RawBody(f'["{KEY}"]'.encode(), "application/json"),
        RawBody(f'{{"{"x" * 185}": "{KEY}"}}'.encode(), "application/json"),
        ChunkList([{"choices": [{"delta": {"refusal": f"not with {KEY}"}, "finish_reason": "stop"}]}]),
        ChunkList([{"choices": [{"delta": {"content": "hi"}, "finish_reason": f"abort {KEY}"}]}]),
        ChunkList(
            [{"choices": [{"delta": {}, "finish_reason": "abort"}], "id": KEY, "model": KEY, "usage": {"x": KEY}}]
        ),
        ChunkList([{"error": {"message": f"not with {KEY}"}}]),
        Status(500, f"{'x' * 490} {KEY}"),
        Status(302, headers={"Location": f"http://elsewhere/?x={KEY}"}),
    ],
)
async def test_a_key_that_the_answer_repeats_is_not_told(line: Any) -> None:
    """Neither in the message nor in the exchange; not half of it either, where a long body is cut."""
    async with HttpModel(line) as server:
        model = openai_chat(model="test", base_url=server.url, api_key=KEY)
        try:
            expected_text = (await ask(model)).exchange
        except ModelError as error:
            expected_text = f"{error} {error.exchange!r}"  # type: ignore[assignment]

    assert server.headers[0]["authorization"] == f"Bearer {KEY}"
    assert KEY[:8] not in repr(expected_text)


async def test_other_secrets_of_a_request_are_not_told_either() -> None:
    """A key in the address, a password."""
    secrets = ("query-secret", "pass-word")
    async with HttpModel(Status(400, {"error": {"message": " ".join(secrets)}})) as server:
        url = f"{server.url.replace('://', '://me:pass-word@')}/v1?api-key=query-secret"
        error = await failure(openai_chat(model="test", base_url=url))

    expected_text = f"{error} {error.exchange!r}"
    assert not [secret for secret in secrets if secret in expected_text]


def test_a_secret_is_masked_as_python_writes_it() -> None:
    """The errors of HTTP libraries quote a header that can't be sent."""
    assert mask_text(f"Illegal header value {b'Bearer ab' + bytes([10]) + b'cdef'!r}", ["ab\ncdef"]).count("cdef") == 0


SAID = Message(
    id=MessageId("message-1"),
    agent_id=AgentId("agent-1"),
    seq=0,
    conversation_seq=0,
    role="user",
    parts=(Text("hi"),),
    created_at=NOW,
    occurred_at=NOW,
)
NO_SYSTEM = Status(
    400, {"error": {"message": "Error rendering the template: System message must be at the beginning."}}
)


async def test_the_tail_stands_beside_what_the_user_wrote() -> None:
    """At any address that is named `openai`: the last message of a user holds the user's words only."""
    async with HttpModel(says("one")) as server:
        await ask(openai_chat(model="test", base_url=server.url), replace(REQUEST, messages=(SAID,)))

        assert [(one["role"], one["content"]) for one in server.requests[0]["messages"]] == [
            *(("system", "You are."), ("user", "hi"), ("system", "now"))
        ]


NO_PARTS = Status(422, {"error": {"message": "messages.1.content: Input should be a valid string"}})


async def test_a_server_that_refuses_parts_is_sent_one_text() -> None:
    """It is asked again at once, and from then on as it likes it; a refusal that nothing mends is not tried again."""
    async with HttpModel(NO_SYSTEM, NO_PARTS, says("one"), says("two"), NO_PARTS) as server:
        model, request = openai_chat(model="test", base_url=server.url), replace(REQUEST, messages=(SAID,))
        replies = [await ask(model, request), await ask(model, request)]
        error = await failure(model)
        contents = [body["messages"][-1]["content"] for body in server.requests]

        assert [reply.parts[0] for reply in replies] == [Text("one"), Text("two")]
        assert contents[0] == "now" and isinstance(contents[1], list)
        assert contents[2] == contents[3] == "hi\n\nnow" and len(contents) == 5
        assert isinstance(error, ModelRequestRefused)


@pytest.mark.parametrize(
    "words",
    [
        "This response_format type is unavailable now",
        "This model does not support response format `json_schema`",
        "structured outputs are not supported by this model",
        "guided decoding is not compiled in",
    ],
)
async def test_a_server_that_takes_no_schema_gets_it_in_the_prompt(words: str) -> None:
    """First with any JSON object asked for, and without even that if it refuses this too; from then on so."""
    shape = {"type": "json_schema", "json_schema": {"name": "n", "schema": {"type": "object", "title": "Facts"}}}
    asked = replace(REQUEST, options=replace(REQUEST.options, response_format=shape))
    refusal = Status(400, {"error": {"message": words}})
    async with HttpModel(refusal, refusal, says("{}"), says("{}"), says("hi")) as server:
        model = openai_chat(model="test", base_url=server.url)
        for request in (asked, asked, REQUEST):
            await ask(model, request)

    forms = [body.get("response_format", {}).get("type") for body in server.requests]
    prompts = ["Facts" in str(body["messages"][0]["content"]) for body in server.requests]
    assert forms == ["json_schema", "json_object", None, None, None]
    assert prompts == [False, True, True, True, False]


async def test_a_server_that_refuses_a_later_system_message_is_sent_none() -> None:
    """It is asked again at once, and from then on as it likes it; another refusal is not tried again."""
    async with HttpModel(NO_SYSTEM, says("one"), says("two"), NO_SYSTEM) as server:
        model, request = openai_chat(model="test", base_url=server.url), replace(REQUEST, messages=(SAID,))
        first, second = await ask(model, request), await ask(model, request)
        error = await failure(model)

        assert [first.parts[0], second.parts[0]] == [Text("one"), Text("two")]
        assert [len(body["messages"]) for body in server.requests] == [3, 2, 2, 2]
        assert server.requests[2]["messages"][-1] == {
            "role": "user",
            "content": [{"type": "text", "text": "hi"}, {"type": "text", "text": "\n\nnow"}],
        }
        assert isinstance(error, ModelRequestRefused)


@pytest.mark.parametrize(
    ("status", "error", "window_tokens", "prompt_tokens"),
    [
        (
            400,
            {"type": "exceed_context_size_error", "message": "too long", "n_ctx": 4_096, "n_prompt_tokens": 6_033},
            4_096,
            6_033,
        ),
        (
            400,
            "request (6033 tokens) exceeds the available context size (4096 tokens), try increasing it",
            4_096,
            6_033,
        ),
        (
            400,
            "This model's maximum context length is 2048 tokens. However, you requested 2300 tokens (1800 in the"
            " messages, 500 in the completion). Please reduce the length of the messages or completion.",
            2_048,
            1_800,
        ),
        (
            400,
            "This model's maximum context length is 128000 tokens. However, your messages resulted in 130,500 tokens.",
            128_000,
            130_500,
        ),
        (400, "prompt is too long: 208310 tokens > 200000 maximum", 200_000, 208_310),
        (400, "Prompt contains 40000 tokens, too large for model with 32768 maximum context length", 32_768, 40_000),
        (400, "The number of tokens to keep is greater than the context length", None, None),
        (400, "maximum context length is 99999999999999999999 tokens", None, None),
        (400, "Prompt is too long.", None, None),
        (400, "The prompt exceeds the context window", None, None),
        (400, "the request exceeds the available context size. try increasing the context size", None, None),
        (400, "Prompt length 2300 is greater than max_seq_len 2048", 2_048, 2_300),
        (400, "Requested tokens (2300) exceed context window of 2048", 2_048, 2_300),
        (400, "The input (2300 tokens) is longer than the model's context length (2048 tokens).", 2_048, 2_300),
        (
            422,
            "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 2048. Given: 2300 `inputs` tokens"
            " and 512 `max_new_tokens`",
            2_048,
            2_300,
        ),
    ],
)
def test_the_window_and_the_size_are_read_from_a_refusal(
    status: int, error: Any, window_tokens: int | None, prompt_tokens: int | None
) -> None:
    """From its fields, or from the words of those who have none."""
    target = RequestTarget("test", "http://localhost/v1/chat/completions")
    fault = error_of_status(status, {}, json.dumps({"error": error}), target, now=datetime.now(UTC))

    assert isinstance(fault, ModelOverflow)
    assert (fault.window_tokens, fault.prompt_tokens) == (window_tokens, prompt_tokens)


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (500, "tools param requires --jinja flag"),
        (400, "registry.example/library/gemma3:270m does not support tools"),
        (400, '"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set'),
        (404, "No endpoints found that support tool use."),
    ],
)
def test_a_server_that_takes_no_tools_is_told_apart(status: int, words: str) -> None:
    """By the words of each kind."""
    target = RequestTarget("test", "http://localhost/v1/chat/completions")
    fault = error_of_status(status, {}, json.dumps({"error": {"message": words}}), target, now=datetime.now(UTC))

    assert isinstance(fault, ModelTakesNoTools)
    assert not fault.retryable


@pytest.mark.parametrize(
    ("status", "text", "changes"),
    [
        (500, "The system is temporarily overloaded, try again later", False),
        (500, "internal system error in role of scheduler", False),
        (503, "the template engine restarts", False),
        (500, "System role not supported", True),
        (500, "Conversation roles must alternate user/assistant/user/assistant/...", True),
        (500, "System message must be at the beginning.", True),
        (400, "messages[2].role: only user and assistant are supported", True),
    ],
)
async def test_only_a_refusal_of_roles_changes_the_roles_for_good(status: int, text: str, changes: bool) -> None:
    """What passes says nothing of the request, whatever its words."""
    request = replace(REQUEST, messages=(unlogged_message("user", "hello"),))
    async with HttpModel(Status(status, {"error": {"message": text}}), otherwise=says("hi")) as server:
        connections = HttpClients()
        chat = openai_chat(model="gpt-4o", base_url=server.url, connections=connections)
        for _ in range(3):
            try:
                [piece async for piece in chat.respond(request)]
            except ModelOverloaded:
                assert not changes
        await connections.aclose()
        roles = [[message["role"] for message in asked["messages"]] for asked in server.requests]

    assert roles[0] == ["system", "user", "system"]
    assert roles[-1] == (["system", "user"] if changes else roles[0])
