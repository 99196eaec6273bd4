"""However much a provider answers, no more than a limit of it is read, and nothing is parsed that would not fit."""

from __future__ import annotations

import gzip
import json
import time
import tracemalloc
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager

import httpx
import pytest

from perdure.core.errors import ModelReplyInvalid
from perdure.core.messages import ToolCall
from perdure.core.models import ModelReply, ModelRequest
from perdure.providers.discovery import list_models
from perdure.providers.embeddings.endpoint import OpenAIEmbedder
from perdure.providers.masking import ANSWER_BYTES
from perdure.providers.openai_chat.stream import AnswerReader, SseDecoder
from perdure.providers.openai_chat.tool_calls import ToolCalls
from perdure.providers.openai_endpoint import HttpClients
from perdure.providers.provider import Endpoint
from tests.providers.fake_provider import fake_provider
from tests.support.openai_chats import openai_chat

FULL = b'{"choices":[' + b'{"":[]},' * 1_100_000 + b"0]}"


@contextmanager
def costs_at_most(bytes_max: int) -> Iterator[None]:
    """The block's peak of memory, above what was there."""
    tracemalloc.start()
    try:
        yield
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < bytes_max


def reader() -> AnswerReader:
    return AnswerReader("test", lambda error: ModelReplyInvalid(str(error)))


def event(delta: object) -> bytes:
    return b"data: " + json.dumps({"choices": [{"index": 0, "delta": delta}]}).encode() + b"\n\n"


class Sent:
    """A model's server in this process, which sends pieces for as long as they are taken."""

    def __init__(self, *pieces: bytes, times: int = 1, encoding: str = "") -> None:
        self.pieces, self.times, self.encoding = pieces, times, encoding
        self.bytes = 0

    async def ask(self) -> ModelReply:
        """Raises: ModelError."""
        async with httpx.AsyncClient(transport=httpx.MockTransport(self._answer)) as client:
            model = openai_chat(model="m", base_url="http://localhost:1/v1", connections=HttpClients(client))
            request = ModelRequest(model="m", system="", messages=())
            return [last async for last in model.respond(request)][-1]  # type: ignore[return-value]

    def _answer(self, request: httpx.Request) -> httpx.Response:
        headers = {"content-type": "text/event-stream"} | ({"content-encoding": self.encoding} if self.encoding else {})
        return httpx.Response(200, headers=headers, content=self._body())

    async def _body(self) -> AsyncIterator[bytes]:
        for _ in range(self.times):
            for piece in self.pieces:
                self.bytes += len(piece)
                yield piece


async def test_an_answer_of_containers_is_not_parsed() -> None:
    """Whole, or as one event of a stream: 9 MB would become 2.4 GB."""
    for body in (FULL, b"data: " + FULL[: 5 << 20] + b"\n\n"):
        with costs_at_most(8 * len(body)), pytest.raises(ModelReplyInvalid, match="arrays and objects"):
            await Sent(body).ask()


async def test_an_answer_without_end_is_left() -> None:
    """Of comments, of one line that never ends, of white space; of events before that."""
    for piece in (b": alive" + b"." * 1_000_000 + b"\n", b"x" * 1_000_000, b" " * 1_000_000):
        sent = Sent(piece, times=1_000)
        with pytest.raises(ModelReplyInvalid, match=f"larger than {ANSWER_BYTES:,} bytes"):
            await sent.ask()
        assert sent.bytes < ANSWER_BYTES + 2_000_000
    call = {"tool_calls": [{"index": 0, "function": {"name": "f", "arguments": "a" * 100_000}}]}
    for delta in ({"content": "a" * 100_000}, {"reasoning": "a" * 100_000}, {"refusal": "a" * 100_000}, call):
        sent = Sent(event(delta), times=1_000)
        with pytest.raises(ModelReplyInvalid, match="more than 2,000,000 characters"):
            await sent.ask()
        assert sent.bytes < 3_000_000


async def test_a_packed_answer_is_unpacked_no_further() -> None:
    """A bomb costs what an answer may; an answer packed twice, or with an encoding not requested, is refused."""
    bomb = gzip.compress(bytes(ANSWER_BYTES + 1).replace(b"\0", b" "), 1)
    with pytest.raises(ModelReplyInvalid, match="larger than"):
        await Sent(bomb, encoding="gzip").ask()
    for encoding in ("gzip, gzip", "br"):
        with pytest.raises(ModelReplyInvalid, match="can be read"):
            await Sent(b"x", encoding=encoding).ask()
    packed = gzip.compress(event({"content": "hi"}) + b'data: {"choices":[{"finish_reason":"stop"}]}\n\n')
    assert (await Sent(packed, encoding="gzip").ask()).parts


def test_a_line_in_many_pieces_is_put_together_once() -> None:
    """Sixteen times as many pieces cost about as many times the time, not 256 times."""

    def seconds(pieces: int) -> float:
        """The least of three: memory may have to be made free first."""
        took = []
        for _ in range(3):
            decoder = SseDecoder()
            began = time.thread_time()
            for _ in range(pieces):
                decoder.feed(b"x" * 1_000)
            assert decoder.feed(b"\n\n") == []
            took.append(time.thread_time() - began)
        return min(took)

    assert seconds(16_000) < 100 * max(seconds(1_000), 0.001)


def test_tool_calls_that_are_none_are_refused() -> None:
    """More of them, or a longer name, than anything means."""
    many = [event({"tool_calls": [{"index": at, "id": f"c{at}", "function": {"name": "f"}}]}) for at in range(1_001)]
    long = [event({"tool_calls": [{"index": 0, "function": {"name": f"{at:010}"}}]}) for at in range(101)]
    for events, why in ((many, "1,000 tool calls"), (long, "1,000 characters")):
        answer = reader()
        with pytest.raises(ModelReplyInvalid, match=why):
            for one in events:
                answer.feed(one)


def test_where_a_call_ends_is_not_looked_for_without_end() -> None:
    """Arguments that are no object yet, under a name that comes again with each fragment: linear in their length."""
    calls = ToolCalls()
    fragment = {"index": 0, "function": {"name": "look", "arguments": '{"a": "' + "x" * 990 + '"}'}}
    first = {"index": 0, "function": {"name": "look", "arguments": "["}}
    began = time.thread_time()
    for one in (first, *[fragment] * 5_000):
        calls.add(one)

    assert time.thread_time() - began < 3, "0.1 s is usual; joining all of it each time takes some seconds"
    assert [type(call) for call in calls.calls] == [ToolCall]


async def test_vectors_and_listings_are_read_within_limits() -> None:
    """Too long, too full, too deep: told as what it is."""
    long = b'{"data": [' + b" " * (17 << 20) + b"]}"
    deep = b'{"data": ' + b"[" * 300 + b"]" * 300 + b"}"
    for body, why in ((long, "larger than 16,777,216 bytes"), (FULL, "200,000 arrays"), (deep, "100 levels")):
        async with fake_provider({"/v1/embeddings": body, "/v1/models": body}) as provider:
            embedder = OpenAIEmbedder(model="m", base_url=f"{provider.url}/v1")
            with costs_at_most(10 * len(FULL)), pytest.raises(ModelReplyInvalid, match=why):
                await embedder.embed(["text"])
            await embedder.close()
            listing = await list_models(Endpoint(provider="openai", base_url=f"{provider.url}/v1", source="test"))
            assert "not a list of models" in listing.problem
