"""The cache before an embedder: nothing twice, nothing mixed up."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.core.errors import ModelUnreachable
from perdure.core.ports import WordEmbedder
from perdure.providers.embeddings.vectors import with_cache
from perdure.testing import HttpModel, ScriptedEmbedder


async def test_a_text_is_embedded_once() -> None:
    """Also when it stands twice in a call."""
    inner = ScriptedEmbedder()
    embedder = with_cache(inner)
    first = await embedder.embed(["red", "wine", "red"])
    again = await embedder.embed(["wine", "sky", "red"])

    assert inner.requests == [("red", "wine"), ("sky",)]
    assert np.array_equal(again, await inner.embed(["wine", "sky", "red"]))
    assert np.array_equal(first[0], first[2])


@given(st.lists(st.lists(st.sampled_from(["red", "wine", "sky", "", "\ud800", "a b"]), max_size=5), max_size=8))
async def test_with_a_cache_the_vectors_are_those_without(calls: list[list[str]]) -> None:
    """Whatever was asked before, and however small the cache is."""
    inner = ScriptedEmbedder(dimensions=4)
    embedder = with_cache(inner, entries=2)

    for texts in calls:
        assert np.array_equal(await embedder.embed(texts), await inner.embed(texts))


async def test_the_vectors_used_last_are_kept() -> None:
    inner = ScriptedEmbedder()
    embedder = with_cache(inner, entries=2)
    for text in ("red", "wine", "red", "sky", "red", "wine"):
        await embedder.embed([text])

    assert inner.requests == [("red",), ("wine",), ("sky",), ("wine",)]


async def test_what_a_caller_does_to_its_rows_stays_with_him() -> None:
    embedder = with_cache(ScriptedEmbedder())
    (await embedder.embed(["red"]))[:] = 0

    assert np.linalg.norm(await embedder.embed(["red"])) == pytest.approx(1)


async def test_a_failure_is_not_kept() -> None:
    inner = ScriptedEmbedder(ModelUnreachable("down"))
    embedder = with_cache(inner)
    with pytest.raises(ModelUnreachable):
        await embedder.embed(["red"])

    assert (await embedder.embed(["red"])).shape == (1, 64)


@pytest.mark.parametrize(("handle", "calls"), [("ollama/nomic-embed-text", 2), ("test/words", 1)])
async def test_purposes_are_apart_where_the_model_tells_them_apart(handle: str, calls: int) -> None:
    inner = ScriptedEmbedder(handle=handle)
    embedder = with_cache(inner)
    await embedder.embed(["red"], purpose="document")
    await embedder.embed(["red"], purpose="query")

    assert len(inner.requests) == calls


async def test_calls_to_an_endpoint_do_not_wait_for_each_other() -> None:
    """One that hangs must not hold up the others."""
    inner = ScriptedEmbedder(local=False)
    embedder = with_cache(inner)
    inner.hang()
    calls = [asyncio.create_task(embedder.embed([text])) for text in ("red", "wine")]
    await asyncio.sleep(0.02)

    assert inner.requests == [("red",), ("wine",)]
    inner.recover()
    await asyncio.gather(*calls)


async def test_it_is_what_it_stands_before() -> None:
    """Handle, dimensions, local; words only where there are words; closing closes."""
    inner = ScriptedEmbedder(dimensions=8)
    embedder = with_cache(inner)
    assert isinstance(embedder, WordEmbedder)
    _, words = await embedder.embed_with_words(["red wine"])
    await embedder.close()

    assert (embedder.handle, embedder.dimensions, embedder.local) == ("test/words", 8, True)
    assert words[0].shape == (2, 8)
    assert inner.closed


async def test_a_query_is_embedded_once_with_its_words() -> None:
    """Also when others came between; documents are embedded each time, and what a caller changes stays with him."""
    inner = ScriptedEmbedder()
    embedder = with_cache(inner)
    assert isinstance(embedder, WordEmbedder)
    for text in ("red wine", "sky", "red wine"):
        rows, words = await embedder.embed_with_words([text], purpose="query")
        rows[:], words[0][:] = 0, 0
    rows, words = await embedder.embed_with_words(["red wine"], purpose="query")
    for _ in range(2):
        await embedder.embed_with_words(["a document"])

    assert inner.requests == [("red wine",), ("sky",), ("a document",), ("a document",)]
    expected_rows, expected_words = await inner.embed_with_words(["red wine"])
    assert np.array_equal(rows, expected_rows) and np.array_equal(words[0], expected_words[0])


async def test_an_endpoint_has_no_words() -> None:
    from perdure.providers.embeddings.endpoint import OpenAIEmbedder

    async with HttpModel() as server:
        assert not isinstance(with_cache(OpenAIEmbedder(model="m", base_url=server.url)), WordEmbedder)
