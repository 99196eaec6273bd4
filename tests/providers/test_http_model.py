"""The scripted server itself: what a client of any kind gets from it."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import httpx
import pytest

from perdure.core.messages import ToolCall
from perdure.core.models import ModelReply
from perdure.core.runs import Usage
from perdure.testing import (
    ChunkList,
    CutOff,
    Hanging,
    HttpModel,
    Later,
    Malformed,
    RawBody,
    Refusal,
    Status,
    Unanswered,
    calls,
    says,
    thinks,
)

CHAT = "/v1/chat/completions"


def events(text: str) -> list[Any]:
    data = [line.removeprefix("data: ") for line in text.split("\n\n") if line]
    return [line if line == "[DONE]" else json.loads(line) for line in data]


async def test_it_lists_its_models_without_using_its_script() -> None:
    """As every server of this API."""
    async with HttpModel(says("one"), models=["a", "b"]) as server, httpx.AsyncClient(base_url=server.url) as client:
        listed = (await client.get("/v1/models")).json()
        log_message = (await client.post(CHAT, json={})).json()

    assert [model["id"] for model in listed["data"]] == ["a", "b"]
    assert log_message["choices"][0]["message"]["content"] == "one"


async def test_a_script_is_said_line_by_line() -> None:
    """Then the same line again and again; every request is kept."""
    async with (
        HttpModel(says("one"), lambda model_request: says(model_request["model"]), otherwise=says("more")) as server,
        httpx.AsyncClient(base_url=server.url) as client,
    ):
        server.then(says("three"))
        answers = [(await client.post(CHAT, json={"model": f"m{number}"})).json() for number in range(5)]

    log_message = [answer["choices"][0]["message"]["content"] for answer in answers]
    assert log_message == ["one", "m1", "three", "more", "more"]
    assert [model_request["model"] for model_request in server.requests] == ["m0", "m1", "m2", "m3", "m4"]
    assert server.connections == 1


async def test_reasoning_text_and_parallel_calls_are_streamed() -> None:
    """In the shapes of the API, with the usage last if it is asked for."""
    answer = thinks("hm", calls("look", ToolCall("mine", "see", "{}"), at=1))
    body = {"stream": True, "stream_options": {"include_usage": True}}
    async with HttpModel(answer) as server, httpx.AsyncClient(base_url=server.url) as client:
        *chunks, usage, done = events((await client.post(CHAT, json=body)).text)

    deltas = [chunk["choices"][0]["delta"] for chunk in chunks]
    assert deltas[1] == {"reasoning_content": "hm"}
    named = [delta["tool_calls"][0] for delta in deltas if "tool_calls" in delta and "id" in delta["tool_calls"][0]]
    assert [(call["index"], call["id"], call["function"]["name"]) for call in named] == [
        (0, "call_1_0", "look"),
        (1, "mine", "see"),
    ]
    assert chunks[-1]["choices"][0]["finish_reason"] == "tool_calls"
    assert usage["usage"]["prompt_tokens"] == 10
    assert done == "[DONE]"


async def test_an_answer_that_is_not_streamed_has_all_of_it() -> None:
    """Usage with its details, and why it ended."""
    usage = Usage(input_tokens=9, output_tokens=1, cached_input_tokens=4, reasoning_tokens=2)
    long = ModelReply(parts=says("long").parts, stop_reason="max_tokens_exceeded")
    async with (
        HttpModel(thinks("hm", calls("look", at=1)), says("hi", usage=usage), long, Refusal("no")) as server,
        httpx.AsyncClient(base_url=server.url) as client,
    ):
        called, log_message, cut, refused = [(await client.post(CHAT, json={})).json() for _ in range(4)]

    message = called["choices"][0]["message"]
    assert message["tool_calls"][0]["function"] == {"name": "look", "arguments": '{"at": 1}'}
    assert message["reasoning_content"] == "hm"
    assert log_message["usage"]["prompt_tokens_details"]["cached_tokens"] == 4
    assert cut["choices"][0]["finish_reason"] == "length"
    assert refused["choices"][0]["message"]["refusal"] == "no"


async def test_it_fails_as_it_is_told() -> None:
    """Status, raw bytes, odd chunks."""
    async with (
        HttpModel(
            Status(429, {"error": "slow down"}, {"Retry-After": "1"}),
            RawBody(b"\x00raw", "text/plain"),
            ChunkList(["not json", {"a": 1}]),
            Malformed(says("one two"), at=1),
            Malformed(says("one"), text="{"),
        ) as server,
        httpx.AsyncClient(base_url=server.url) as client,
    ):
        limited, raw, odd, malformed, broken = [
            await client.post(CHAT, json={"stream": number == 3}) for number in range(5)
        ]

    assert (limited.status_code, limited.headers["retry-after"], limited.json()) == (429, "1", {"error": "slow down"})
    assert raw.content == b"\x00raw"
    assert odd.text == 'data: not json\n\ndata: {"a":1}\n\n'
    assert malformed.text.split("\n\n")[1] == f"data: {Malformed(says('')).text}"
    assert broken.text == "{"


@pytest.mark.parametrize("stream", [True, False])
async def test_it_closes_and_it_hangs(stream: bool) -> None:
    """Without an answer, in the middle of one, and for good; closing the server ends what hangs."""
    body = {"stream": stream}
    async with (
        HttpModel(Unanswered(), CutOff(says("one two"), after=2), Hanging(), Hanging(says("one"), after=1)) as server,
        httpx.AsyncClient(base_url=server.url) as client,
    ):
        for expected in (httpx.RemoteProtocolError, httpx.RemoteProtocolError, httpx.ReadTimeout, httpx.ReadTimeout):
            with pytest.raises(expected):
                await client.post(
                    CHAT, json=body, timeout=httpx.Timeout(20, read=0.05 if expected is httpx.ReadTimeout else 20)
                )


async def test_a_clean_cut_is_in_order_for_http() -> None:
    """The stream merely stops."""
    async with HttpModel(CutOff(says("one two"), 2, clean=True)) as server, httpx.AsyncClient() as client:
        text = (await client.post(server.url + CHAT, json={"stream": True})).text

    assert [chunk["choices"][0]["delta"] for chunk in events(text)][1:] == [{"content": "one "}]


async def test_an_answer_may_come_later() -> None:
    """After its delay, not before."""
    loop = asyncio.get_running_loop()
    async with HttpModel(Later(0.05, says("late"))) as server, httpx.AsyncClient() as client:
        started = loop.time()
        answer = await client.post(server.url + CHAT, json={})

    assert loop.time() - started >= 0.05
    assert answer.json()["choices"][0]["message"]["content"] == "late"


async def test_what_it_does_not_know_is_not_found() -> None:
    """With the method and the path."""
    async with HttpModel() as server, httpx.AsyncClient() as client:
        answer = await client.post(server.url + "/v1/images", json={})

    assert answer.status_code == 404
    assert "/v1/images" in answer.text
    assert not server.requests


async def test_texts_are_embedded_by_both_apis() -> None:
    """OpenAI's and Ollama's, by the scripted embedder; a line that was put in comes first."""
    async with HttpModel() as server, httpx.AsyncClient() as client:
        server.then_embeds(Status(503, "later"))
        later = await client.post(server.url + "/v1/embeddings", json={"model": "e", "input": ["red"]})
        first = await client.post(server.url + "/v1/embeddings", json={"model": "e", "input": ["red", "wine"]})
        second = await client.post(server.url + "/api/embed", json={"model": "e", "input": ["red", "wine"]})

    (row, _) = await server.embedder.embed(["red", "wine"])
    assert later.status_code == 503
    assert first.json()["data"][0] == {"object": "embedding", "index": 0, "embedding": row.tolist()}
    assert second.json()["embeddings"] == [item["embedding"] for item in first.json()["data"]]
    assert [model_request["input"] for model_request in server.embedding_requests] == [
        ["red"],
        ["red", "wine"],
        ["red", "wine"],
    ]
    assert not server.requests
