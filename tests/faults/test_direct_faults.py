"""Whatever Anthropic or Gemini does, the run ends with a reason, the log is legal, the next message is answered."""

from __future__ import annotations

import asyncio
import json
import os
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from perdure import AsyncPerdure, RunFailed, tool
from perdure.context.sections.assemble import check_legal
from perdure.library.agent import AsyncAgent
from perdure.library.messages.reply import Reply
from perdure.providers.pydantic_ai.model import DirectModel
from perdure.providers.retrying import Retrying, RetryPolicy
from perdure.testing import InlineStore
from tests.support.http_payloads import Payload, PayloadServer

pytestmark = pytest.mark.faults

PAYLOADS = Path(__file__).parents[1] / "providers" / "payloads"
TRIES = 2
POLICY = RetryPolicy(retries=TRIES - 1, first_delay_s=0.001, max_delay_s=0.002, deadline_s=30)
ANTHROPIC, GOOGLE = "anthropic", "google"
MODELS = {ANTHROPIC: "claude-haiku-4-5", GOOGLE: "gemini-2.5-flash"}
MALFORMED = b'{"type": '

FULL = os.environ.get("PERDURE_FAULTS") == "full"
# One call before is between none and several: the long form has it too. Of tests with many cases the short form has
# only those after several.
after_calls = pytest.mark.parametrize("before", [0, 1, 3] if FULL else [0, 3])
some_after_calls = pytest.mark.parametrize("before", [0, 1, 3] if FULL else [3])
both = pytest.mark.parametrize("provider", MODELS)


def events(name: str) -> list[bytes]:
    """The events of a stored stream, each with its empty line."""
    whole = (PAYLOADS / f"{name}.sse").read_bytes().replace(b"\r\n", b"\n")
    return [event + b"\n\n" for event in whole.strip().split(b"\n\n")]


def load_payload(name: str) -> Payload:
    return Payload.sse(b"".join(events(name)))


def anthropic_events(*datas: Mapping[str, Any]) -> Payload:
    return Payload.sse(b"".join(f"event: {data['type']}\ndata: {json.dumps(data)}\n\n".encode() for data in datas))


def anthropic_answer(blocks: list[dict[str, Any]], stop_reason: str) -> Payload:
    """A stream of these whole blocks, each given with its start and its delta."""
    usage = {"input_tokens": 25, "output_tokens": 1}
    head = {"id": "msg_1", "type": "message", "role": "assistant", "model": MODELS[ANTHROPIC], "content": []}
    datas: list[dict[str, Any]] = [
        {"type": "message_start", "message": head | {"stop_reason": None, "stop_sequence": None, "usage": usage}}
    ]
    for index, block in enumerate(blocks):
        datas += [
            {"type": "content_block_start", "index": index, "content_block": block["start"]},
            {"type": "content_block_delta", "index": index, "delta": block["delta"]},
            {"type": "content_block_stop", "index": index},
        ]
    delta = {"stop_reason": stop_reason, "stop_sequence": None}
    datas += [{"type": "message_delta", "delta": delta, "usage": {"output_tokens": 15}}, {"type": "message_stop"}]
    return anthropic_events(*datas)


def gemini_answer(parts: list[dict[str, Any]], finish: str = "STOP") -> Payload:
    """A stream of one chunk."""
    candidate = {"content": {"parts": parts, "role": "model"}, "index": 0, "finishReason": finish}
    usage = {"promptTokenCount": 8, "candidatesTokenCount": 4, "totalTokenCount": 12}
    data = {"candidates": [candidate], "usageMetadata": usage, "modelVersion": MODELS[GOOGLE], "responseId": "x9"}
    return Payload.sse(f"data: {json.dumps(data)}\n\n".encode())


def calls(provider: str, count: int) -> list[Payload]:
    """An answer with this many tool calls, at once; none for none."""
    if not count:
        return []
    if provider == GOOGLE:
        return [
            gemini_answer(
                [
                    {"functionCall": {"id": f"b{number}", "name": "get_weather", "args": {"city": f"city {number}"}}}
                    for number in range(count)
                ]
            )
        ]
    blocks = [
        {
            "start": {"type": "tool_use", "id": f"toolu_{number}", "name": "get_weather", "input": {}},
            "delta": {"type": "input_json_delta", "partial_json": json.dumps({"city": f"city {number}"})},
        }
        for number in range(count)
    ]
    return [anthropic_answer(blocks, "tool_use")]


ANSWER = {ANTHROPIC: load_payload("anthropic_text"), GOOGLE: load_payload("gemini_text")}
"""Both say "Hello!"."""

RICH = {ANTHROPIC: events("anthropic_thinking_tools"), GOOGLE: events("gemini_thoughts_tools")}
"""Thoughts, then a call of `get_weather` and one of `list_cities`."""

FIRST_DELTA = {ANTHROPIC: 3, GOOGLE: 0}
"""Which event of `RICH` is the first that a reader sees something of."""

BEGUN = {ANTHROPIC: 1, GOOGLE: 0}
"""Up to which event of `RICH` nothing has been read that is part of an answer."""

END = {ANTHROPIC: 21, GOOGLE: 2}
"""Which event of `RICH` says why the answer ended."""


def of_file(name: str, error: str, status: int, **headers: str) -> Payload:
    """A stored error of a provider, with other headers if need be."""
    cases = json.loads((PAYLOADS / f"{name}_errors.json").read_text())
    case = next(case for case in cases if (case["error"], case["status"]) == (error, status))
    return Payload.json(case["body"], status=status, headers=case["headers"] | headers)


def gemini_limit(delay: str) -> Payload:
    """Gemini says in the body how long to wait."""
    retry = {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": delay}
    error = {"code": 429, "message": "You exceeded your current quota", "status": "RESOURCE_EXHAUSTED"}
    return Payload.json({"error": error | {"details": [retry]}}, status=429)


def gemini_401() -> Payload:
    message = "Request had invalid authentication credentials."
    return Payload.json({"error": {"code": 401, "message": message, "status": "UNAUTHENTICATED"}}, status=401)


@dataclass(frozen=True)
class Fault:
    """What the provider answers, and how the run then ends; `tries` are the requests made for it."""

    provider: str
    name: str
    payload: Payload
    kind: str
    stop_reason: str = "llm_api_error"
    tries: int = 1

    def __str__(self) -> str:
        return f"{self.provider} {self.name}"


LIMIT, AUTH, OVERFLOW = "llm_rate_limit", "llm_authentication", "context_window_exceeded"
FLOOR = "context_window_overflow_in_system_prompt"  # nothing was left that could leave the view
INVALID, REFUSED = "invalid_llm_response", "llm_refusal"
PASSING = (
    Fault(
        ANTHROPIC,
        "429 with Retry-After",
        of_file("anthropic", "ModelRateLimited", 429, **{"retry-after": "0.01"}),
        LIMIT,
        tries=TRIES,
    ),
    Fault(ANTHROPIC, "529", of_file("anthropic", "ModelOverloaded", 529), "llm_error", tries=TRIES),
    Fault(ANTHROPIC, "empty answer", anthropic_answer([], "end_turn"), "llm_empty_response", INVALID, tries=TRIES),
    Fault(GOOGLE, "429 with Retry-After", gemini_limit("0.01s"), LIMIT, tries=TRIES),
    Fault(GOOGLE, "503", of_file("gemini", "ModelOverloaded", 503), "llm_error", tries=TRIES),
    Fault(GOOGLE, "empty answer", gemini_answer([]), "llm_empty_response", INVALID, tries=TRIES),
)
FINAL = (
    Fault(
        ANTHROPIC,
        "429 with a long Retry-After",
        of_file("anthropic", "ModelRateLimited", 429, **{"retry-after": "3600"}),
        LIMIT,
    ),
    Fault(ANTHROPIC, "401", of_file("anthropic", "ModelAuthenticationFailed", 401), AUTH),
    Fault(ANTHROPIC, "overflow", of_file("anthropic", "ModelOverflow", 400), OVERFLOW, FLOOR),
    Fault(ANTHROPIC, "refusal", anthropic_answer([], "refusal"), REFUSED, INVALID),
    Fault(
        ANTHROPIC,
        "refusal after words",
        Payload.sse(ANSWER[ANTHROPIC].body.replace(b'"end_turn"', b'"refusal"')),
        REFUSED,
        INVALID,
    ),
    Fault(GOOGLE, "429 with a long Retry-After", gemini_limit("3600s"), LIMIT),
    Fault(GOOGLE, "401", gemini_401(), AUTH),
    Fault(GOOGLE, "400 for the key", of_file("gemini", "ModelAuthenticationFailed", 400), AUTH),
    Fault(GOOGLE, "overflow", of_file("gemini", "ModelOverflow", 400), OVERFLOW, FLOOR),
    Fault(GOOGLE, "safety", load_payload("gemini_safety"), REFUSED, INVALID),
    Fault(GOOGLE, "blocked prompt", load_payload("gemini_blocked_prompt"), REFUSED, INVALID),
)


class SamePort(PayloadServer):
    """A server that can be closed and opened again, at the same address."""

    port = 0

    async def __aenter__(self) -> PayloadServer:
        self._server = await asyncio.start_server(self._answer, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def close(self) -> None:
        await self.__aexit__(None, None, None)


@dataclass
class AgentWithProvider:
    """An agent whose model is behind a double of its provider."""

    provider: str
    agent: AsyncAgent
    server: SamePort
    ran: list[str]

    async def send(self, text: str) -> Reply | RunFailed:
        try:
            return await self.agent.send(text)
        except RunFailed as failed:
            return failed

    async def check(self, *, ran: int) -> None:
        """The log is legal, each call has one result, no call ran that was not whole, and the agent still answers."""
        messages = await self.agent.messages()
        assert messages[0].text == "go"
        check_legal(messages)
        results = Counter(result.call_id for message in messages for result in message.results)
        assert results == Counter(call.call_id for message in messages for call in message.calls)
        assert set(results.values()) <= {1}
        assert len(self.ran) == ran
        assert (await self.agent.send("again")).text == "Hello!"
        check_legal(await self.agent.messages())
        for received in self.server.received:
            LEGAL[self.provider](received.json)


def assert_legal_for_anthropic(body: Mapping[str, Any]) -> None:
    """Roles alternate, no message is empty, and the results of all calls are the first in the message after them."""
    roles = [message["role"] for message in body["messages"]]
    assert roles == ["user", "assistant"] * (len(roles) // 2) + ["user"]
    waiting: list[str] = []
    for message in body["messages"]:
        assert message["content"]
        blocks = message["content"]
        if message["role"] == "user":
            first = [block["tool_use_id"] for block in blocks[: len(waiting)]]
            assert sorted(first) == sorted(waiting)
            assert not [block for block in blocks[len(waiting) :] if block["type"] == "tool_result"]
        waiting = [block["id"] for block in blocks if block["type"] == "tool_use"]
        assert len(set(waiting)) == len(waiting)
    assert not waiting


def assert_legal_for_gemini(body: Mapping[str, Any]) -> None:
    """No content is empty, and as many results as calls stand right behind them."""
    waiting: list[str] = []
    for content in body["contents"]:
        assert content["parts"]
        results = [part["functionResponse"]["name"] for part in content["parts"] if "functionResponse" in part]
        assert results == waiting
        waiting = [part["functionCall"]["name"] for part in content["parts"] if "functionCall" in part]
    assert not waiting


LEGAL: Mapping[str, Callable[[Mapping[str, Any]], None]] = {
    ANTHROPIC: assert_legal_for_anthropic,
    GOOGLE: assert_legal_for_gemini,
}


@asynccontextmanager
async def agent_with_provider(
    provider: str, *payloads: Payload, before: int = 0, closes_after: int | None = None
) -> AsyncIterator[AgentWithProvider]:
    """A provider that answers with `before` calls, then these payloads, and from then on "Hello!".

    Args:
        closes_after: when this many calls ran, nobody listens any more.
    """
    ran: list[str] = []
    server = SamePort(*calls(provider, before), *payloads, ANSWER[provider])

    @tool
    async def get_weather(city: str) -> str:
        """Get the weather.

        Args:
            city: where.
        """
        ran.append(city)
        if len(ran) == closes_after:
            await server.close()
        return f"sunny in {city}"

    @tool
    def list_cities() -> str:
        """List the cities."""
        ran.append("all")
        return "Oslo"

    async with server:
        name = f"{provider}/test"
        direct = DirectModel(
            provider=provider, model=MODELS[provider], api_key="k-123456", base_url=server.url, timeout_s=20
        )
        model = Retrying(direct, policy=POLICY, random=lambda: 0.5)
        opened = AsyncPerdure.open(store=InlineStore(), models={name: model}, tools=[get_weather, list_cities])
        try:
            async with await opened as perdure:
                agent = await perdure.create_agent("a", model=name, tools=["get_weather", "list_cities"])
                yield AgentWithProvider(provider, agent, server, ran)
        finally:
            await direct.aclose()


def assert_failed(outcome: Reply | RunFailed, kind: str, stop_reason: str = "llm_api_error") -> None:
    assert isinstance(outcome, RunFailed)
    assert isinstance(outcome.reply, Reply)
    assert outcome.reply.failure is not None
    assert (outcome.stop_reason, outcome.reply.failure.kind) == (stop_reason, kind)
    assert "k-123456" not in str(outcome)


@pytest.mark.slow
@some_after_calls
@pytest.mark.parametrize("fault", [*PASSING, *FINAL], ids=str)
async def test_a_fault_that_lasts_ends_the_run_with_its_reason(fault: Fault, before: int) -> None:
    """After a bounded number of tries; the message is kept. An empty answer after calls that succeeded is an end."""
    if before and fault.name == "empty answer":
        pytest.skip("after calls that succeeded it ends the turn")
    async with agent_with_provider(fault.provider, *[fault.payload] * fault.tries, before=before) as it:
        assert_failed(await it.send("go"), fault.kind, fault.stop_reason)
        assert len(it.server.received) == bool(before) + fault.tries
        await it.check(ran=before)


@pytest.mark.parametrize("before", [1])
@pytest.mark.parametrize("fault", [one for one in PASSING if one.name != "empty answer"], ids=str)
async def test_a_fault_that_passes_is_not_noticed(fault: Fault, before: int) -> None:
    """The next try succeeds, and the run goes on as if nothing had been."""
    async with agent_with_provider(fault.provider, fault.payload, before=before) as it:
        reply = await it.send("go")

        assert isinstance(reply, Reply)
        assert (reply.text, reply.stop_reason) == ("Hello!", "end_turn")
        assert len(it.server.received) == bool(before) + 2
        await it.check(ran=before)


@pytest.mark.slow
@some_after_calls
@pytest.mark.parametrize(
    ("provider", "after", "breaks"),
    [
        pytest.param(
            provider, after, breaks, id=f"{provider} {after} {'connection breaks' if breaks else 'ends early'}"
        )
        for provider, places in ((ANTHROPIC, (0, 16, 22)), (GOOGLE, (0, 2, 3)))
        for after in places
        for breaks in (False, True)
    ],
)
async def test_a_stream_may_be_cut_anywhere(provider: str, after: int, breaks: bool, before: int) -> None:
    """Before the first words it is tried again; then the run fails, unless the answer had said that it was whole. The
    calls in it run only if it was whole."""
    tries = 1 if after > FIRST_DELTA[provider] else TRIES
    cut = Payload.sse(b"".join(RICH[provider][:after]), cut=breaks)
    async with agent_with_provider(provider, *[cut] * tries, before=before) as it:
        outcome = await it.send("go")

        if after > END[provider] and not breaks:
            assert outcome.stop_reason == "end_turn"
            await it.check(ran=before + 2)
        else:
            # A connection that broke before anything was read from the answer is no cut answer.
            assert_failed(outcome, "llm_error" if breaks and after <= BEGUN[provider] else "stream_incomplete")
            assert len(it.server.received) == bool(before) + tries
            await it.check(ran=before)


@some_after_calls
@pytest.mark.parametrize(
    ("provider", "at"), [(ANTHROPIC, 0), (ANTHROPIC, 3), (ANTHROPIC, 16), (GOOGLE, 0), (GOOGLE, 2)]
)
async def test_any_event_may_be_malformed(provider: str, at: int, before: int) -> None:
    """An answer with a hole is no answer; nothing of it is run. It is tried again if no words came before."""
    sent = list(RICH[provider])
    head, mark, _ = sent[at].partition(b"data: ")
    sent[at] = head + mark + MALFORMED + b"\n\n"
    tries = 1 if at > FIRST_DELTA[provider] else TRIES
    async with agent_with_provider(provider, *[Payload.sse(b"".join(sent))] * tries, before=before) as it:
        assert_failed(await it.send("go"), "llm_error" if at <= BEGUN[provider] else "stream_incomplete")
        assert len(it.server.received) == bool(before) + tries
        await it.check(ran=before)


@after_calls
@both
async def test_a_provider_that_is_not_there_fails_the_run_until_it_is_back(provider: str, before: int) -> None:
    """A refused connection, also right after calls; the server comes up again at the same address."""
    async with agent_with_provider(provider, before=before, closes_after=before) as it:
        if not before:
            await it.server.close()
        for _ in range(2):
            failed = await it.send("go")
            assert_failed(failed, "llm_error")
            assert f"tried {TRIES} times" in str(failed)
        assert len(it.server.received) == bool(before)
        async with it.server:
            await it.check(ran=before)
