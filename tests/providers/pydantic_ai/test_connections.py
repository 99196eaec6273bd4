"""Connections: made when they are needed, kept, closed."""

from __future__ import annotations

import asyncio
import json
from contextlib import aclosing
from dataclasses import replace

import httpx
import httpx2
import pytest

from perdure.core.errors import ModelError, ModelRequestRefused
from perdure.core.messages import Text
from perdure.core.models import ModelReply
from perdure.providers.discovery import endpoint_of_type
from perdure.providers.provider import PROVIDERS, ModelSource
from perdure.providers.pydantic_ai.model import DirectModel
from perdure.toolbox.builtin.provider_guard import ProviderGuard
from tests.providers.pydantic_ai.support import KEY, MODELS, asking, sse
from tests.support.http_payloads import Payload, PayloadServer
from tests.toolbox.names import Names

ANTHROPIC, GOOGLE, OPENAI = MODELS


@pytest.mark.parametrize(
    ("provider", "name"), [(ANTHROPIC, "anthropic_text"), (GOOGLE, "gemini_text"), (OPENAI, "openai_responses_text")]
)
def test_a_model_outlives_an_event_loop_and_its_own_closing(provider: str, name: str) -> None:
    direct = DirectModel(provider=provider, model=MODELS[provider], api_key=KEY, base_url="http://unset")

    async def ask() -> None:
        async with PayloadServer(sse(name)) as server:
            direct._base_url = server.url  # the double's port differs from loop to loop
            for _ in range(2):
                pieces = [piece async for piece in direct.respond(asking(provider))]
                assert isinstance(pieces[-1], ModelReply)
            await direct.aclose()
            await direct.aclose()
            pieces = [piece async for piece in direct.respond(asking(provider))]
            assert isinstance(pieces[-1], ModelReply) and len(server.received) == 3

    asyncio.run(ask())
    asyncio.run(ask())
    asyncio.run(direct.aclose())


@pytest.mark.parametrize(
    ("provider", "name"),
    [
        (ANTHROPIC, "anthropic_thinking_tools"),
        (GOOGLE, "gemini_thoughts_tools"),
        (OPENAI, "openai_responses_reasoning_tools"),
    ],
)
async def test_who_stops_listening_leaves_nothing_open(provider: str, name: str) -> None:
    async with PayloadServer(sse(name, upto=0.5, cut=True)) as server:
        direct = DirectModel(provider=provider, model=MODELS[provider], api_key=KEY, base_url=server.url)
        async with aclosing(direct.respond(asking(provider))) as pieces:  # type: ignore[type-var]
            await anext(pieces)
        await direct.aclose()


@pytest.mark.parametrize("provider", [ANTHROPIC, GOOGLE])
async def test_no_key_of_the_environment_goes_to_another_server(monkeypatch: pytest.MonkeyPatch, provider: str) -> None:
    """A client that registers a server without a key must not get the operator's."""
    for name in ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "GOOGLE_API_KEY", "GEMINI_API_KEY"):
        monkeypatch.setenv(name, KEY)
    async with PayloadServer(Payload.json({}, status=400)) as server:
        direct = DirectModel(provider=provider, model=MODELS[provider], base_url=server.url)
        with pytest.raises(ModelError):
            await anext(aiter(direct.respond(asking(provider))))
        await direct.aclose()

    assert server.received
    assert KEY not in str([one.headers for one in server.received])


class RequestRecorder:
    """In place of a guard: it keeps the address and the headers of each request, and refuses it."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    def transport(self, verify: object) -> httpx.AsyncBaseTransport:
        def record(request: httpx.Request) -> httpx.Response:
            self.seen.append(f"{request.url} {request.headers.raw}")
            return httpx.Response(400)

        return httpx.MockTransport(record)

    def transport2(self, verify: object) -> httpx2.AsyncBaseTransport:
        def record(request: httpx2.Request) -> httpx2.Response:
            self.seen.append(f"{request.url} {request.headers.raw}")
            return httpx2.Response(400)

        return httpx2.MockTransport(record)


@pytest.mark.parametrize("kind", ["anthropic", "google", "openai"])
async def test_a_registered_provider_takes_nothing_from_the_environment(
    monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """Neither the operator's key at the provider's own address, nor the operator's address for a client's key."""
    for variable in (*PROVIDERS[kind].keys, "ANTHROPIC_AUTH_TOKEN"):
        monkeypatch.setenv(variable, KEY)
    for variable in (*PROVIDERS[kind].urls, "GOOGLE_GEMINI_BASE_URL"):
        monkeypatch.setenv(variable, "http://operator.test")
    for key in ("", "client-key"):
        recorder = RequestRecorder()
        endpoint = replace(endpoint_of_type("mine", kind, base_url="", api_key=key), guard=recorder)
        model = endpoint.entry.api.build(ModelSource(endpoint=endpoint, name="some-model"))
        with pytest.raises(ModelError):
            await anext(aiter(model.respond(asking("anthropic"))))
        await model.aclose()  # type: ignore[attr-defined]

        assert recorder.seen
        assert KEY not in str(recorder.seen) and "operator.test" not in str(recorder.seen)
        assert key in str(recorder.seen)


async def test_a_key_of_the_environment_is_masked(monkeypatch: pytest.MonkeyPatch) -> None:
    """The SDK finds it by itself; the provider repeats it in an error."""
    monkeypatch.setenv("ANTHROPIC_API_KEY", "operator-key-0123456789")
    error = {"type": "error", "error": {"type": "invalid_request_error", "message": "bad: operator-key-0123456789"}}
    async with PayloadServer(Payload.json(error, status=400)) as server:
        monkeypatch.setenv("ANTHROPIC_BASE_URL", server.url)
        direct = DirectModel(provider=ANTHROPIC, model=MODELS[ANTHROPIC])
        with pytest.raises(ModelError) as raised:
            await anext(aiter(direct.respond(asking(ANTHROPIC))))
        await direct.aclose()

    assert "operator-key" in str(server.received[0].headers)
    assert "bad" in str(raised.value) and "operator-key" not in f"{raised.value} {raised.value.exchange}"


async def test_several_at_once_share_one_connection() -> None:
    async with PayloadServer(sse("anthropic_text")) as server:
        direct = DirectModel(provider=ANTHROPIC, model=MODELS[ANTHROPIC], api_key=KEY, base_url=server.url)

        async def ask() -> object:
            return [piece async for piece in direct.respond(asking(ANTHROPIC))][-1]

        replies = await asyncio.gather(*(ask() for _ in range(5)))
        assert all(isinstance(reply, ModelReply) and reply.exchange for reply in replies)
        await direct.aclose()
        assert len(server.received) == 5


async def test_any_other_provider_that_pydantic_ai_knows() -> None:
    def chunk(**choice: object) -> str:
        shape = {"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "llama"}
        return f"data: {json.dumps(shape | {'choices': [{'index': 0, 'finish_reason': None} | choice]})}\n\n"

    body = (
        chunk(delta={"role": "assistant", "content": "Hi"}) + chunk(delta={}, finish_reason="stop") + "data: [DONE]\n\n"
    )
    async with PayloadServer(Payload.sse(body.encode())) as server:
        direct = DirectModel(provider="openai-chat", model="llama", api_key=KEY, base_url=server.url)
        *_, reply = [piece async for piece in direct.respond(asking(ANTHROPIC, tool_choice=("send_message",)))]
        await direct.aclose()
    assert isinstance(reply, ModelReply) and reply.parts == (Text("Hi"),)
    (sent,) = server.received
    assert sent.path == "/chat/completions" and sent.json["messages"][-1]["role"] == "user"
    assert sent.json["tool_choice"] == {"type": "function", "function": {"name": "send_message"}}


@pytest.mark.parametrize("provider", list(MODELS))
@pytest.mark.parametrize("status", [301, 307, 308])
async def test_a_redirect_is_not_followed(provider: str, status: int) -> None:
    """The key and the conversation stay here; the error says where the answer points, without the key in it."""
    async with PayloadServer(Payload()) as elsewhere:
        target = f"{elsewhere.url}/v2?x="
        moved = Payload(status=status, headers={"location": target + KEY})
        async with PayloadServer(moved) as server:
            direct = DirectModel(provider=provider, model=MODELS[provider], api_key=KEY, base_url=server.url)
            with pytest.raises(ModelRequestRefused) as caught:
                _ = [piece async for piece in direct.respond(asking(provider))]
            await direct.aclose()

    assert (len(server.received), len(elsewhere.received)) == (1, 0)
    assert f"{target}***" in str(caught.value)
    assert caught.value.status == status
    assert KEY not in f"{caught.value} {caught.value.exchange!r}"


@pytest.mark.parametrize(
    ("provider", "name"), [(ANTHROPIC, "anthropic_text"), (GOOGLE, "gemini_text"), (OPENAI, "openai_responses_text")]
)
async def test_a_guarded_address_is_checked_for_each_request(provider: str, name: str) -> None:
    """A registered provider may be on this machine where that was allowed, and nothing is sent once it moved away."""
    names = Names(["127.0.0.1"], ["127.0.0.1", "169.254.169.254"], ["::ffff:10.0.0.1"])
    async with PayloadServer(sse(name)) as server:
        url = server.url.replace("127.0.0.1", "rebinds.example")
        guard = ProviderGuard(private=True, resolver=names)
        direct = DirectModel(provider=provider, model=MODELS[provider], api_key=KEY, base_url=url, guard=guard)
        *_, reply = [piece async for piece in direct.respond(asking(provider))]
        with pytest.raises(ModelRequestRefused, match=r"not asked: it leads to 169\.254\.169\.254"):
            _ = [piece async for piece in direct.respond(asking(provider))]
        await direct.aclose()
        outside = ProviderGuard(resolver=names)
        direct = DirectModel(provider=provider, model=MODELS[provider], api_key=KEY, base_url=url, guard=outside)
        with pytest.raises(ModelRequestRefused, match="a private network"):
            _ = [piece async for piece in direct.respond(asking(provider))]
        await direct.aclose()

    assert isinstance(reply, ModelReply) and len(server.received) == 1
    assert server.received[0].headers["host"].startswith("rebinds.example")


async def test_an_sdk_that_takes_no_client_has_no_guard() -> None:
    """It would connect anywhere, so it is not used at all."""
    guard = ProviderGuard()
    direct = DirectModel(provider="huggingface", model="m", api_key=KEY, base_url="http://[::1]:9", guard=guard)
    with pytest.raises(ModelRequestRefused, match="to any address"):
        _ = [piece async for piece in direct.respond(asking(ANTHROPIC))]
