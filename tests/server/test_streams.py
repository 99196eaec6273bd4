"""Streams: what is sent, in which order, with which numbers; and that a run does not depend on who looks on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import httpx
import pytest
from letta_client import APIStatusError
from letta_client.types.agents import LettaStreamingResponse
from pydantic import TypeAdapter

from perdure import InvalidInput, tool
from perdure.core.events import DeltaStreamed, RunEnded, StoredEvent
from perdure.core.messages import Reasoning, Text, ToolCall
from perdure.core.models import ModelDelta, ModelPiece, ModelProgress, ModelReply, ModelRequest
from perdure.server.config import ServerConfig
from perdure.server.serving.serve import serve
from perdure.server.wire import sse
from perdure.testing import ScriptedModel, calls, fails, says, thinks
from tests.support.library import SlowSpeaker
from tests.support.servers import chunks_of, in_process, letta, served
from tests.support.two_apps import Gate

STREAMED: TypeAdapter[Any] = TypeAdapter(LettaStreamingResponse)
TOKENS = {"input": "hi", "streaming": True, "stream_tokens": True}


async def streamed(client: httpx.AsyncClient, agent_id: str, **body: Any) -> list[tuple[str | None, Any]]:
    answered = await client.post(f"/v1/agents/{agent_id}/messages", json={"input": "hi", "streaming": True} | body)
    assert answered.status_code == 200, answered.text
    assert answered.headers["content-type"].startswith("text/event-stream")
    chunks = chunks_of(answered.text)
    assert chunks[-1] == (None, "[DONE]")
    for _, chunk in chunks[:-1]:
        STREAMED.validate_python(chunk)
    return chunks[:-1]


def types_of(chunks: list[tuple[str | None, Any]]) -> list[str]:
    return [chunk["message_type"] for _, chunk in chunks]


async def test_step_by_step(tmp_path: Path) -> None:
    """A ping, whole messages, stop reason, usage, the end."""
    script = thinks("well", calls("memory_insert", label="human", new_string="Ada")), says("Noted it.")
    async with in_process(tmp_path, *script) as (client, perdure):
        agent = await perdure.create_agent()
        chunks = await streamed(client, agent.id)

        assert types_of(chunks) == [
            *("ping", "reasoning_message", "tool_call_message", "tool_return_message", "assistant_message"),
            *("stop_reason", "usage_statistics"),
        ]
        assert isinstance(chunks[2][1]["tool_calls"], list)
        assert chunks[4][1]["content"] == "Noted it."
        assert {chunk.get("seq_id") for _, chunk in chunks} == {None}
        assert chunks[0][1]["run_id"] == chunks[4][1]["run_id"]
        without = await streamed(client, agent.id, include_pings=False)
        assert types_of(without) == ["assistant_message", "stop_reason", "usage_statistics"]


class Reading:
    """Says what it reads before it answers."""

    def __init__(self) -> None:
        self.model = ScriptedModel(otherwise=says("Noted."))

    async def respond(self, request: ModelRequest) -> AsyncIterator[ModelPiece]:
        yield ModelProgress(stage="reading", waited_s=1, read_tokens=1_024, total_tokens=2_273, left_s=90)
        async for piece in self.model.respond(request):
            yield piece


@pytest.mark.parametrize("tokens", [False, True])
async def test_what_a_slow_model_does_is_a_comment(tmp_path: Path, tokens: bool) -> None:
    """Clients leave it out: the chunks are those of a quick one."""
    body = {"input": "hi", "streaming": True, "stream_tokens": tokens}
    async with in_process(tmp_path, model=Reading()) as (client, perdure):
        agent = await perdure.create_agent()
        answered = await client.post(f"/v1/agents/{agent.id}/messages", json=body)
    async with served(tmp_path / "other", model=Reading()) as (address, perdure):
        agent = await perdure.create_agent()
        async with letta(address) as sdk:
            stream = await sdk.agents.messages.create(agent.id, input="hi", streaming=True, stream_tokens=tokens)
            kinds = [chunk.message_type async for chunk in stream]

    comment = ": reading 1,024 of 2,273 tokens, about 90 s\n\n"
    assert answered.text.count(comment) == 1
    chunks = chunks_of(answered.text.replace(comment, ""))[:-1]
    assert types_of(chunks) == kinds == ["ping", "assistant_message", "stop_reason", "usage_statistics"]


async def test_token_by_token(tmp_path: Path) -> None:
    """Pieces with one id and one otid, which are those of the stored message; calls by name, then arguments."""
    script = thinks("well", calls("memory_insert", label="human", new_string="Ada")), says("Noted it now.")
    async with in_process(tmp_path, *script) as (client, perdure):
        agent = await perdure.create_agent()
        chunks = [chunk for _, chunk in await streamed(client, agent.id, stream_tokens=True)]

        name, arguments = (chunk for chunk in chunks if chunk["message_type"] == "tool_call_message")
        assert name["tool_call"] == name["tool_calls"] == {"name": "memory_insert", "tool_call_id": "call_1_1"}
        assert arguments["tool_call"] == {
            "arguments": '{"label": "human", "new_string": "Ada"}',
            "tool_call_id": "call_1_1",
        }
        said = [chunk for chunk in chunks if chunk["message_type"] == "assistant_message"]
        assert [chunk["content"] for chunk in said] == ["Noted ", "it ", "now."]
        kept = (await client.get(f"/v1/agents/{agent.id}/messages", params={"order": "asc"})).json()
        for kind in ("reasoning_message", "tool_call_message", "assistant_message"):
            sent = {(chunk["id"], chunk["otid"]) for chunk in chunks if chunk["message_type"] == kind}
            assert sent == {(message["id"], message["otid"]) for message in kept if message["message_type"] == kind}


async def test_what_no_delta_brought_comes_in_the_end(tmp_path: Path) -> None:
    """A model that does not stream is still heard in token mode, whole."""

    class Silent(ScriptedModel):
        async def respond(self, request: Any) -> Any:
            parts = (Reasoning("hm"), Text("One."), ToolCall("c", "memory_insert", '{"label": "human"}'))
            yield ModelReply(parts=parts) if not self.requests else says("Two.")
            self.requests.append(request)

    async with in_process(tmp_path, model=Silent()) as (client, perdure):
        agent = await perdure.create_agent()
        chunks = [chunk for _, chunk in await streamed(client, agent.id, stream_tokens=True, background=True)]
        assert [chunk.get("reasoning") for chunk in chunks if "reasoning" in chunk] == ["hm"]
        assert [chunk["content"] for chunk in chunks if "content" in chunk] == ["One.", "Two."]
        assert [chunk["tool_calls"] for chunk in chunks if "tool_calls" in chunk] == [
            {"name": "memory_insert", "tool_call_id": "c"},
            {"arguments": '{"label": "human"}', "tool_call_id": "c"},
        ]
        numbers = [chunk["seq_id"] for chunk in chunks if chunk.get("seq_id")]
        assert numbers == sorted(set(numbers))


async def test_failures_stand_in_the_stream(tmp_path: Path) -> None:
    """A stop reason, then an event named `error`, then the end; the official client raises."""
    script = [fails("too many", kind="llm_rate_limit")] * 2
    async with served(tmp_path, *script) as (address, perdure):
        agent = await perdure.create_agent()
        async with httpx.AsyncClient(base_url=address) as client:
            chunks = await streamed(client, agent.id)
            assert [name for name, _ in chunks] == [None, None, "error"]
            assert chunks[1][1] == {"message_type": "stop_reason", "stop_reason": "llm_api_error"}
            error = chunks[2][1]
            assert (error["error_type"], error["message"]) == ("llm_rate_limit", "too many")
        async with letta(address) as official:
            with pytest.raises(APIStatusError, match="llm_rate_limit"):
                async for _ in await official.agents.messages.create(agent.id, input="hi", streaming=True):
                    pass


async def test_the_official_client_streams(tmp_path: Path) -> None:
    """Both routes, in pieces, as it parses them."""
    async with served(tmp_path, says("a b c"), says("d e")) as (address, perdure), letta(address) as client:
        agent = await perdure.create_agent()
        text = ""
        stream = await client.agents.messages.create(agent.id, input="hi", streaming=True, stream_tokens=True)
        async for chunk in stream:
            if chunk.message_type == "assistant_message":
                assert isinstance(chunk.content, str)
                text += chunk.content
        assert text == "a b c"
        with pytest.deprecated_call():
            old = await client.agents.messages.stream(agent.id, input="hi")
        assert [chunk.message_type async for chunk in old][-3:] == [
            *("assistant_message", "stop_reason", "usage_statistics")
        ]


@pytest.mark.parametrize("tokens", [True, False])
async def test_a_background_run_is_resumed_without_gap_or_repeat(tmp_path: Path, tokens: bool) -> None:
    """From any number on the rest comes, exactly; from 0 everything, and it is what was streamed first."""
    script = thinks("well", calls("memory_insert", label="human", new_string="Ada")), thinks("so", says("Noted it."))
    async with in_process(tmp_path, *script) as (client, perdure):
        agent = await perdure.create_agent()
        first = [chunk for _, chunk in await streamed(client, agent.id, background=True, stream_tokens=tokens)]
        numbers = [chunk["seq_id"] for chunk in first if "seq_id" in chunk]
        assert numbers == sorted(set(numbers))
        assert (numbers[0], first[0]["message_type"]) == (1, "ping")
        path = f"/v1/runs/{first[0]['run_id']}/stream"
        for after in (0, *numbers):
            again = chunks_of((await client.post(path, json={"starting_after": after})).text)
            sent = [chunk for _, chunk in again if isinstance(chunk, Mapping)]
            expected = [chunk for chunk in first if chunk.get("seq_id", after + 1) > after]
            assert [_same(chunk) for chunk in sent] == [_same(chunk) for chunk in expected]
        assert (await client.post(path)).status_code == 200
        assert (await client.post(path, json={"starting_after": "x"})).status_code == 422


def _same(chunk: Mapping[str, Any]) -> dict[str, Any]:
    """The chunk without what a ping makes anew."""
    return {name: value for name, value in chunk.items() if chunk["message_type"] != "ping" or name != "id"}


async def test_what_a_dead_process_had_streamed_of_an_answer_is_not_streamed_again(tmp_path: Path) -> None:
    """It is no message: the model was asked once more."""
    pieces = tuple(ModelDelta("text", text) for text in ("lost ", "words ", "here"))
    async with in_process(tmp_path, model=Gate(says("lost words here"), deltas=pieces)) as (client, perdure):
        agent = await perdure.create_agent()
        path, sent_once = f"/v1/agents/{agent.id}/messages", {"headers": {"idempotency-key": "k"}}
        run = (await client.post(f"{path}/async", json={"input": "hi"}, **sent_once)).json()  # type: ignore[arg-type]
        async for sent in agent.follow(run["id"]):
            if isinstance(sent, StoredEvent) and isinstance(sent.event, DeltaStreamed):
                break
    async with in_process(tmp_path, says("Other words.")) as (client, perdure):
        async for _ in perdure.agent_of(agent.id).follow(run["id"]):
            pass
        resumed = await client.post(f"/v1/runs/{run['id']}/stream", json={"starting_after": 0})
        repeated = await client.post(path, json=TOKENS | {"background": True}, **sent_once)  # type: ignore[arg-type]
        for again in (resumed, repeated):
            said = [chunk["content"] for _, chunk in chunks_of(again.text) if "content" in chunk]  # type: ignore[index]
            assert "".join(said) == "Other words."


async def test_who_leaves_does_not_stop_the_run(tmp_path: Path) -> None:
    """A stream is broken off; the run ends, and is followed again where it was left."""
    model = SlowSpeaker("slow ", "reply")
    async with served(tmp_path, model=model) as (address, perdure), httpx.AsyncClient(base_url=address) as client:
        agent = await perdure.create_agent()
        path = f"/v1/agents/{agent.id}/messages"
        body = TOKENS | {"background": True}
        async with client.stream("POST", path, json=body) as answered:
            first = await anext(answered.aiter_lines())
        [(_, ping)] = chunks_of(first)
        assert isinstance(ping, Mapping)
        with pytest.raises(httpx.ReadTimeout):  # nor does one that waits for the whole reply
            await client.post(path, json={"input": "next", "if_busy": "wait"}, timeout=httpx.Timeout(60, read=0.2))
        model.go.set()
        rest = await client.post(f"/v1/runs/{ping['run_id']}/stream", json={"starting_after": ping["seq_id"]})

        said = [chunk["content"] for _, chunk in chunks_of(rest.text) if "content" in chunk]  # type: ignore[index]
        assert "".join(said) == "slow reply"
        [second] = [run.id for run in await perdure.app.store.read(lambda tx: tx.runs.list(agent.id, limit=1))]
        async with asyncio.timeout(50):
            assert isinstance([told async for told in agent.follow(second)][-1].event, RunEnded)  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        (*("PATCH", "/v1/agents/{agent}/messages/{message}"), {"content": "It is gone."}, 200),
        ("POST", "/v1/agents/{agent}/forget", {"text": "walrus"}, 200),
        ("DELETE", "/v1/conversations/{line}", None, 404),
    ],
    ids=["changed", "forgotten", "deleted"],
)
async def test_what_was_taken_back_is_streamed_no_more(
    tmp_path: Path, method: str, path: str, body: Any, status: int
) -> None:
    """Also not in the pieces in which a model said it."""
    async with in_process(tmp_path, says("I saw a walrus.")) as (client, perdure):
        agent = await perdure.create_agent()
        line = (await agent.new_conversation()).id
        said = await client.post(f"/v1/conversations/{line}/messages", json=TOKENS | {"background": True})
        last = next(chunk for _, chunk in chunks_of(said.text)[::-1] if "run_id" in chunk and "id" in chunk)
        assert isinstance(last, Mapping) and "walrus" in said.text
        where = path.format(agent=agent.id, message=last["id"], line=line)
        assert (await client.request(method, where, json=body)).status_code == 200
        again = await client.post(f"/v1/runs/{last['run_id']}/stream", json={"starting_after": 0})

        assert again.status_code == status
        assert "walrus" not in again.text


async def test_who_waits_for_a_deleted_agent_hears_of_it(tmp_path: Path) -> None:
    """By its id, as whoever asks for it later does."""
    model = SlowSpeaker("slow ", "reply")
    async with served(tmp_path, model=model) as (address, perdure), httpx.AsyncClient(base_url=address) as client:
        agent = await perdure.create_agent()
        path = f"/v1/agents/{agent.id}"
        waiting = asyncio.create_task(client.post(f"{path}/messages", json={"input": "hi"}))
        await model.speaking.wait()
        await client.delete(path)

        assert (await waiting).json() == (await client.get(path)).json()


async def test_a_cancelled_stream_says_so(tmp_path: Path) -> None:
    """The stop reason, then what the run has used so far."""
    model = SlowSpeaker("never ", "said")
    async with in_process(tmp_path, model=model) as (client, perdure):
        agent = await perdure.create_agent()
        streaming = asyncio.create_task(streamed(client, agent.id))
        await model.speaking.wait()
        await client.post(f"/v1/agents/{agent.id}/messages/cancel")
        chunks = await streaming
        assert chunks[-2][1] == {"message_type": "stop_reason", "stop_reason": "cancelled"}
        assert (chunks[-1][1]["message_type"], chunks[-1][1]["step_count"]) == ("usage_statistics", 1)


async def test_silence_is_filled_with_pings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """So that no proxy takes the connection for dead."""
    monkeypatch.setattr(sse, "PING_S", 0.02)
    model = SlowSpeaker("slow ", "reply")
    async with served(tmp_path, model=model) as (address, perdure), httpx.AsyncClient(base_url=address) as client:
        agent = await perdure.create_agent()
        body, pings = TOKENS | {"include_pings": True}, 0
        async with client.stream("POST", f"/v1/agents/{agent.id}/messages", json=body, timeout=60) as answered:
            async for line in answered.aiter_lines():
                pings += '"ping"' in line
                if pings == 4:  # the first is sent before anything else
                    model.go.set()

    assert pings >= 4


async def test_no_pings_are_sent_to_who_wants_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor one at the start."""
    monkeypatch.setattr(sse, "PING_S", 0.02)
    model = SlowSpeaker("slow ", "reply")
    async with in_process(tmp_path, model=model) as (client, perdure):
        agent = await perdure.create_agent()
        streaming = asyncio.create_task(streamed(client, agent.id, include_pings=False))
        await model.speaking.wait()
        await asyncio.sleep(0.15)
        model.go.set()

        assert "ping" not in types_of(await streaming)


async def test_who_joins_late_gets_the_message_whole(tmp_path: Path) -> None:
    """A retry while the run is under way has missed the beginning: it is not sent the end as if it were all."""
    model = SlowSpeaker("slow ", "reply")
    async with in_process(tmp_path, model=model) as (client, perdure):
        agent = await perdure.create_agent()
        path, headers = f"/v1/agents/{agent.id}/messages", {"idempotency-key": "k"}
        first = asyncio.create_task(client.post(path, json=TOKENS, headers=headers))
        await model.speaking.wait()
        second = asyncio.create_task(client.post(path, json=TOKENS, headers=headers))
        await asyncio.sleep(0.05)
        model.go.set()
        for answered, pieces in ((await first, ["slow ", "reply"]), (await second, ["slow reply"])):
            said = [chunk["content"] for _, chunk in chunks_of(answered.text) if "content" in chunk]  # type: ignore[index]
            assert said == pieces


async def test_a_server_that_stops_ends_its_streams(tmp_path: Path) -> None:
    """Open streams and waiting requests are told that the run goes on; stopping does not wait for them."""
    model = SlowSpeaker("slow ", "reply")
    async with in_process(tmp_path, model=model) as (client, perdure):
        agent = await perdure.create_agent()
        path = f"/v1/agents/{agent.id}/messages"
        streaming = asyncio.create_task(client.post(path, json={"input": "hi", "streaming": True}))
        await model.speaking.wait()
        waiting = asyncio.create_task(client.post(path, json={"input": "ho", "if_busy": "wait"}))
        await asyncio.sleep(0.05)
        client._transport.app.state.streams.stop()  # type: ignore[attr-defined]

        async with asyncio.timeout(50):
            chunks, kept = chunks_of((await streaming).text), await waiting
        assert chunks[-2][0] == "error"
        assert chunks[-2][1]["error_type"] == "stream_incomplete"  # type: ignore[index]
        assert (kept.status_code, kept.headers["x-should-retry"]) == (503, "false")
        assert kept.json()["run_id"].startswith("run-")


@pytest.mark.parametrize("streaming", [True, False])
async def test_a_server_that_is_stopping_waits_for_no_new_run(tmp_path: Path, streaming: bool) -> None:
    """A request that was still read when the stop began is told that its run goes on."""
    async with in_process(tmp_path, model=SlowSpeaker("slow ", "reply")) as (client, perdure):
        agent = await perdure.create_agent()
        client._transport.app.state.streams.stop()  # type: ignore[attr-defined]
        async with asyncio.timeout(50):
            answered = await client.post(
                f"/v1/agents/{agent.id}/messages", json={"input": "hi", "streaming": streaming}
            )

        if streaming:
            chunks = chunks_of(answered.text)
            assert chunks[-2][1]["error_type"] == "stream_incomplete"  # type: ignore[index]
        else:
            assert answered.status_code == 503 and answered.json()["run_id"].startswith("run-")


async def test_a_port_in_use_is_named(tmp_path: Path) -> None:
    """With what helps; so is an address that is not of this machine."""
    async with served(tmp_path) as (address, perdure):
        port = int(address.rpartition(":")[2])
        with pytest.raises(InvalidInput, match=f"port {port} .* in use .* PERDURE_PORT"):
            await serve(perdure, ServerConfig(port=port))
        with pytest.raises(InvalidInput, match="not an address of this machine"):
            await serve(perdure, ServerConfig(host="nowhere.invalid", api_key="a long random text"))


@pytest.mark.parametrize("mode", [{}, {"background": True}, {"stream_tokens": True}])
async def test_a_question_is_streamed_as_what_the_agent_says(tmp_path: Path, mode: dict[str, bool]) -> None:
    """After the call and its result, as any client shows what was said, and once."""
    script = calls("ask_user", question="Which colour?", options=["red", "blue"])
    async with in_process(tmp_path, script) as (client, perdure):
        agent = await perdure.create_agent()
        await agent.tools.attach("ask_user")
        chunks = [chunk for _, chunk in await streamed(client, agent.id, **mode)]

    kinds = [chunk["message_type"] for chunk in chunks]
    assert list(dict.fromkeys(kinds)) == [
        *("ping", "tool_call_message", "tool_return_message", "assistant_message"),
        *("stop_reason", "usage_statistics"),
    ]
    assert [chunk["content"] for chunk in chunks if chunk["message_type"] == "assistant_message"] == [
        "Which colour?\n\n1. red\n2. blue"
    ]
    assert chunks[-2]["stop_reason"] == "end_turn"


@tool
def pay(n: int = 0) -> str:
    """Pay."""
    return f"paid {n}"


@tool
def look(n: int = 0) -> str:
    """Look."""
    return "seen"


def merge_pieces(messages: list[Any]) -> dict[tuple[str, str], list[str]]:
    """What is shown, in order: (message type, otid) -> ids of its calls; pieces of one message joined."""
    found: dict[tuple[str, str], list[str]] = {}
    for message in messages:
        if message.get("otid") is None or message["message_type"] == "user_message":
            continue
        ids = found.setdefault((message["message_type"], message["otid"]), [])
        calls = message.get("tool_calls", [])
        for call in calls if isinstance(calls, list) else [calls]:
            if call["tool_call_id"] not in ids:
                ids.append(call["tool_call_id"])
    return found


BATCHES: dict[str, tuple[list[Any], list[str]]] = {
    "renamed": (
        [calls("look", call_id="call_0"), calls("look", ToolCall("call_0", "look", "{}"), call_id="call_0")],
        ["tool_call_message", "tool_return_message"] * 2 + ["assistant_message"],
    ),
    "renamed and waiting": (
        [calls("pay", call_id="call_0", n="x"), calls("pay", call_id="call_0")],
        ["tool_call_message", "tool_return_message", "approval_request_message"],
    ),
    "refused": (
        [calls("pay", ToolCall("b", "look", "{}"), n="many")],
        ["tool_call_message", "tool_return_message", "assistant_message"],
    ),
    "mixed": (
        [calls("pay", ToolCall("b", "look", "{}"), ToolCall("c", "send_message", '{"message": "hi"}'))],
        [*("tool_call_message", "assistant_message", "approval_request_message")],
    ),
}


@pytest.mark.parametrize("background", [False, True])
@pytest.mark.parametrize("batch", BATCHES)
async def test_calls_are_streamed_as_they_are_kept(tmp_path: Path, batch: str, background: bool) -> None:
    """Under the same ids, of the same types, in the same order: of one answer, what waits for somebody comes last."""
    script, types = BATCHES[batch]
    async with in_process(tmp_path, *script, says("ok"), tools=[pay, look]) as (client, perdure):
        agent = await perdure.create_agent(tools=("pay", "look", "send_message"))
        await agent.require_approval("pay")
        chunks = [chunk for _, chunk in await streamed(client, agent.id, stream_tokens=True, background=background)]
        kept = (await client.get(f"/v1/agents/{agent.id}/messages", params={"order": "asc"})).json()

        assert list(merge_pieces(chunks).items()) == list(merge_pieces(kept[1:]).items())
        assert [message_type for message_type, _ in merge_pieces(chunks)] == types
        numbers = [chunk["seq_id"] for chunk in chunks if chunk.get("seq_id")]
        assert numbers == sorted(set(numbers))
        assert background == bool(numbers)
