"""Embedders behind real sockets: what is sent, what is taken, and a typed error for everything else."""

from __future__ import annotations

import asyncio
import json
from base64 import b64encode
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import numpy as np
import pytest

from perdure.core.errors import (
    InvalidInput,
    ModelAuthenticationFailed,
    ModelError,
    ModelOverflow,
    ModelOverloaded,
    ModelQuotaExceeded,
    ModelRateLimited,
    ModelReplyInvalid,
    ModelRequestRefused,
    ModelTimeout,
    ModelUnreachable,
)
from perdure.providers.embeddings.endpoint import (
    BATCH_CHARS,
    BATCH_TEXTS,
    TEXT_CHARS_MAX,
    EndpointEmbedder,
    OllamaEmbedder,
    OpenAIEmbedder,
)
from perdure.testing import Hanging, HttpModel, Later, RawBody, ScriptedEmbedder, Status, Unanswered
from perdure.testing.http_model import HttpLine

KEY = "sk-very-secret-0123456789"
ADAPTERS = [OpenAIEmbedder, OllamaEmbedder]


Adapter = type[OpenAIEmbedder] | type[OllamaEmbedder]


@asynccontextmanager
async def served(
    adapter: Adapter = OpenAIEmbedder,
    *,
    model: str = "test",
    scripted: ScriptedEmbedder | None = None,
    timeout_s: float = 30.0,
) -> AsyncIterator[tuple[HttpModel, EndpointEmbedder]]:
    """A server, and an embedder that asks it."""
    async with HttpModel(embedder=scripted) as server:
        embedder = adapter(model=model, base_url=server.url, api_key=KEY, timeout_s=timeout_s)
        try:
            yield server, embedder
        finally:
            await embedder.close()


def answer(*rows: Any, **more: Any) -> RawBody:
    """An answer of OpenAI's shape with these vectors."""
    data = [{"embedding": row} | more for row in rows]
    return RawBody(json.dumps({"data": data}).encode(), "application/json")


@pytest.mark.parametrize("adapter", ADAPTERS)
async def test_texts_become_rows_in_their_order(adapter: Adapter) -> None:
    """Shape, type, length 1; the dimension is known afterwards, and the connections are kept."""
    texts = [f"text number {number}" for number in range(BATCH_TEXTS + 5)]
    async with served(adapter, scripted=ScriptedEmbedder(dimensions=12)) as (server, embedder):
        assert embedder.dimensions is None
        rows = await embedder.embed(texts)

    assert rows.dtype == np.float32
    assert np.allclose(rows, await server.embedder.embed(texts), atol=1e-6)
    assert embedder.dimensions == 12
    assert not embedder.local
    assert [len(model_request["input"]) for model_request in server.embedding_requests] == [BATCH_TEXTS, 5]
    assert server.connections == 1


async def test_the_handle_names_provider_and_model() -> None:
    assert OpenAIEmbedder(model="m", base_url="localhost:1").handle == "openai/m"
    assert OllamaEmbedder(model="nomic-embed-text", base_url="localhost").handle == "ollama/nomic-embed-text"


@pytest.mark.parametrize(
    ("adapter", "base_url", "url"),
    [
        (OpenAIEmbedder, "https://api.openai.com/v1", "https://api.openai.com/v1/embeddings"),
        (OpenAIEmbedder, "http://localhost:8000/v1/embeddings", "http://localhost:8000/v1/embeddings"),
        (OpenAIEmbedder, "localhost:8000", "http://localhost:8000/v1/embeddings"),
        (OllamaEmbedder, "http://127.0.0.1:11434/v1", "http://127.0.0.1:11434/api/embed"),
        (OllamaEmbedder, "gpu:11434", "http://gpu:11434/api/embed"),
    ],
)
def test_where_it_asks(adapter: Adapter, base_url: str, url: str) -> None:
    assert adapter(model="m", base_url=base_url).url == url


def test_an_address_or_key_that_cant_be_used_is_refused_at_once() -> None:
    with pytest.raises(InvalidInput, match="is not the address"):
        OpenAIEmbedder(model="m", base_url="ftp://x")
    with pytest.raises(InvalidInput, match="the API key holds characters"):
        OpenAIEmbedder(model="m", base_url="localhost", api_key="a\nb")


async def test_long_texts_go_in_smaller_batches() -> None:
    """Cut by characters too, and none longer than the limit."""
    texts = ["x" * (BATCH_CHARS // 2)] * 3 + ["y" * (TEXT_CHARS_MAX + 9)]
    async with served() as (server, embedder):
        await embedder.embed(texts)

    assert [[len(text) for text in model_request["input"]] for model_request in server.embedding_requests] == [
        [BATCH_CHARS // 2] * 2,
        [BATCH_CHARS // 2],
        [TEXT_CHARS_MAX],
    ]


async def test_what_is_no_character_is_replaced_and_nothing_is_not_sent() -> None:
    """Halves of surrogate pairs and empty texts are refused by servers."""
    async with served() as (server, embedder):
        rows = await embedder.embed(["a\ud800b", "\ud83d\ude00", "", "\x00"])

    assert server.embedding_requests[0]["input"] == ["a�b", "😀", " ", "\x00"]
    assert rows.shape == (4, 64)


async def test_no_texts_ask_nobody() -> None:
    async with served() as (server, embedder):
        assert len(await embedder.embed([])) == 0
        assert not server.embedding_requests


async def test_a_model_that_wants_to_know_the_purpose_is_told() -> None:
    """By the words it was trained with; others get the text as it is."""
    async with served(OllamaEmbedder, model="nomic-embed-text:v1.5") as (server, embedder):
        await embedder.embed(["red"], purpose="document")
        await embedder.embed(["red"], purpose="query")
    async with served(model="text-embedding-3-small") as (other, embedder):
        await embedder.embed(["red"], purpose="query")

    assert [model_request["input"] for model_request in server.embedding_requests] == [
        ["search_document: red"],
        ["search_query: red"],
    ]
    assert other.embedding_requests[0]["input"] == ["red"]


async def test_vectors_in_base64_are_read() -> None:
    """As OpenAI's own hosts send them."""
    vector = np.array([3, 4], "<f4")
    async with served() as (server, embedder):
        server.then_embeds(answer(b64encode(vector.tobytes()).decode()))
        (row,) = await embedder.embed(["red"])

    assert row.tolist() == pytest.approx([0.6, 0.8])


def test_base64_is_asked_for_on_openais_own_hosts_only() -> None:
    """Other servers may not know the field."""
    own = OpenAIEmbedder(model="m", base_url="https://api.openai.com/v1")

    assert own.body(["red"])["encoding_format"] == "base64"
    assert "encoding_format" not in OpenAIEmbedder(model="m", base_url="localhost").body(["red"])


async def test_rows_are_put_in_the_order_of_their_numbers() -> None:
    body = {"data": [{"index": 1, "embedding": [0, 1]}, {"index": 0, "embedding": [1, 0]}]}
    async with served() as (server, embedder):
        server.then_embeds(RawBody(json.dumps(body).encode(), "application/json"))
        rows = await embedder.embed(["first", "second"])

    assert rows.tolist() == [[1, 0], [0, 1]]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (answer([1, 0]), "gave 1 vectors for 2 texts"),
        (answer([1, 0], [1, 0], [1, 0]), "gave 3 vectors for 2 texts"),
        (answer([1, 0], [0, 0]), "a vector of zeros"),
        (answer([1, 0], [1, float("nan")]), "NaN"),
        (answer([1, 0], [1, float("inf")]), "infinite"),
        (answer([1, 0], [1, 0, 0]), "vectors of 2 and of 3 numbers"),
        (answer([], []), "a vector without numbers"),
        (answer([1, 0], ["a", "b"]), "something else than numbers"),
        (answer([1, 0], [[1], [2]]), "something else than numbers"),
        (answer([1, 0], "no base64!"), "something else than vectors"),
        (answer([1, 0], None), "something else than vectors"),
        (answer([1, 0], [0, 1], index=0), "something else than vectors"),
        (answer([1, 0], [0, 1], index="x"), "something else than vectors"),
        (RawBody(b"{}", "application/json"), "something else than vectors: {}"),
        (RawBody(b"[]", "application/json"), "something else than vectors"),
        (RawBody(b"<html>", "text/html"), "answered no JSON"),
    ],
)
async def test_an_answer_that_is_none_is_a_typed_error(line: HttpLine, expected: str) -> None:
    """With what is wrong and the numbers; asking again would not help."""
    async with served() as (server, embedder):
        server.then_embeds(line)
        with pytest.raises(ModelReplyInvalid, match=expected) as caught:
            await embedder.embed(["red", "wine"])

    assert not caught.value.retryable
    assert embedder.dimensions is None


async def test_another_dimension_than_before_is_refused_with_both_numbers() -> None:
    """Somebody changed the model behind the name."""
    async with served(scripted=ScriptedEmbedder(dimensions=8)) as (server, embedder):
        await embedder.embed(["red"])
        server.embedder = ScriptedEmbedder(dimensions=6)
        with pytest.raises(ModelReplyInvalid, match="vectors of 6 numbers, and 8 before"):
            await embedder.embed(["wine"])


@pytest.mark.parametrize(
    ("line", "kind", "retryable"),
    [
        (Status(401, {"error": {"message": f"Incorrect API key provided: {KEY}"}}), ModelAuthenticationFailed, False),
        (Status(404, {"error": "model 'test' not found"}), ModelRequestRefused, False),
        (Status(422, {"detail": "no"}), ModelRequestRefused, False),
        (Status(429, {}, {"retry-after": "7"}), ModelRateLimited, True),
        (Status(429, {"error": {"code": "insufficient_quota"}}), ModelQuotaExceeded, False),
        (Status(503, "down"), ModelOverloaded, True),
        (Unanswered(), ModelUnreachable, True),
        (RawBody(b'{"error": {"message": "rate limit"}}', "application/json"), ModelRateLimited, True),
    ],
)
async def test_a_refusal_is_typed_and_shows_no_key(line: HttpLine, kind: type[ModelError], retryable: bool) -> None:
    """The caller learns whether to come back, and when; it is asked once."""
    async with served() as (server, embedder):
        server.then_embeds(line)
        with pytest.raises(kind) as caught:
            await embedder.embed(["red"])

    assert caught.value.retryable is retryable
    assert KEY not in str(caught.value)
    assert len(server.embedding_requests) == 1
    assert server.headers[0]["authorization"] == f"Bearer {KEY}"
    assert caught.value.retry_after_s == (7 if isinstance(line, Status) and line.headers else None)


async def test_a_server_that_hangs_is_waited_for_no_longer_than_allowed() -> None:
    async with served(timeout_s=0.2) as (server, embedder):
        server.then_embeds(Hanging())
        with pytest.raises(ModelTimeout, match=r"for 0\.2 s") as caught:
            await embedder.embed(["red"])

    assert caught.value.retryable


async def test_a_server_that_is_down_is_unreachable_until_it_is_back() -> None:
    """On the same address, with the same embedder."""
    async with served() as (server, embedder):
        before = await embedder.embed(["red"])
    with pytest.raises(ModelUnreachable, match="is the server running") as caught:
        await embedder.embed(["red"])
    async with HttpModel(port=int(server.url.rpartition(":")[2])):
        after = await embedder.embed(["red"])
        await embedder.close()

    assert caught.value.retryable
    assert np.array_equal(before, after)


async def test_a_batch_that_is_too_large_is_halved() -> None:
    """A server that takes one text at a time gets them one at a time, in order."""
    too_large = Status(413, {"error": "batch size 3 > maximum allowed batch size 1"})
    async with served() as (server, embedder):
        server.then_embeds(too_large)
        rows = await embedder.embed(["red", "wine", "sky"])

    assert [model_request["input"] for model_request in server.embedding_requests] == [
        ["red", "wine", "sky"],
        ["red"],
        ["wine", "sky"],
    ]
    assert np.allclose(rows, await server.embedder.embed(["red", "wine", "sky"]), atol=1e-6)


async def test_a_text_that_is_too_long_is_halved_until_it_fits() -> None:
    """Its beginning counts; a model that takes nothing at all is an error in the end."""
    overflow = Status(400, {"error": {"message": "This model's maximum context length is 8 tokens"}})
    async with served() as (server, embedder):
        server.then_embeds(overflow, overflow)
        await embedder.embed(["x" * 1_000])
        lengths = [len(model_request["input"][0]) for model_request in server.embedding_requests]
        server.then_embeds(*[overflow] * 20)
        with pytest.raises(ModelOverflow):
            await embedder.embed(["y" * 10_000])

    assert lengths == [1_000, 500, 250]
    assert len(server.embedding_requests) == 3 + 9


async def test_a_caller_who_goes_leaves_the_embedder_usable() -> None:
    async with served() as (server, embedder):
        server.then_embeds(Later(5, Status(503)))
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(embedder.embed(["red"]), 0.1)
        assert (await embedder.embed(["red"])).shape == (1, 64)
