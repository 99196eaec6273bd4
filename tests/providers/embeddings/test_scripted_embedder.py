"""The scripted embedder: near is near, the same everywhere, and it fails, hangs and recovers when told."""

from __future__ import annotations

import asyncio
from pathlib import Path

import numpy as np
import pytest

from perdure import AsyncPerdure, InvalidInput, Perdure
from perdure.core.errors import ModelOverloaded, ModelUnreachable
from perdure.core.ports import WordEmbedder
from perdure.settings import Settings
from perdure.testing import InlineStore, ScriptedEmbedder


async def test_texts_that_share_words_are_near() -> None:
    """Cosines follow the words in common; each row has length 1."""
    embedder = ScriptedEmbedder(dimensions=256)
    cat, cats, car = await embedder.embed(["the black cat sleeps", "black cats sleep", "rent a car in Rome"])

    assert cat @ cats > 0.7 > 0.4 > abs(cat @ car)
    assert np.allclose([cat @ cat, cats @ cats, car @ car], 1)


async def test_a_vector_is_the_same_on_every_machine() -> None:
    """The numbers are hashed, not drawn."""
    (row,) = await ScriptedEmbedder(dimensions=4).embed(["hello"])

    assert row.dtype == np.float32
    assert row.tolist() == pytest.approx([-0.82346, -0.41181, 0.36758, -0.13118], abs=1e-4)


@pytest.mark.parametrize("text", ["", "\x00", "\ud800", "😀", "-", "x" * 1_000_000])
async def test_any_text_has_a_vector(text: str) -> None:
    """No text is refused, not even one without a word."""
    embedder = ScriptedEmbedder()
    rows, (words,) = await embedder.embed_with_words([text])

    assert rows.shape == (1, 64)
    assert np.allclose(np.linalg.norm(words, axis=1), 1)


async def test_no_texts_are_no_rows() -> None:
    assert (await ScriptedEmbedder(dimensions=8).embed([])).shape == (0, 8)


async def test_words_have_rows_of_their_own() -> None:
    """One for each word, and a text is their sum."""
    embedder = ScriptedEmbedder()
    (text,), (words,) = await embedder.embed_with_words(["red wine"])
    total = words.sum(axis=0)

    assert isinstance(embedder, WordEmbedder)
    assert words.shape == (2, 64)
    assert np.allclose(text, total / np.linalg.norm(total), atol=1e-6)


async def test_it_fails_hangs_and_recovers_when_told() -> None:
    """The errors of the script first, then whatever it was told to do; every call is written down."""
    embedder = ScriptedEmbedder(ModelOverloaded("busy"))
    with pytest.raises(ModelOverloaded):
        await embedder.embed(["a"])
    assert (await embedder.embed(["b"])).shape == (1, 64)
    embedder.fail()
    with pytest.raises(ModelUnreachable):
        await embedder.embed(["c"])
    embedder.recover()
    embedder.hang()
    waiting = asyncio.create_task(embedder.embed(["d", "e"]))
    await asyncio.sleep(0.03)

    assert not waiting.done()
    embedder.recover()
    assert (await waiting).shape == (2, 64)
    assert embedder.requests == [("a",), ("b",), ("c",), ("d", "e")]


async def test_a_given_embedder_is_used_and_closed_with_the_store() -> None:
    """In place of what the settings choose."""
    embedder = ScriptedEmbedder()
    async with await AsyncPerdure.open(store=InlineStore(), embedder=embedder) as perdure:
        assert perdure.app.embedder is embedder
        assert perdure.app.embedding_reason == "given"
        assert not embedder.closed

    assert embedder.closed


def test_the_plain_library_takes_one_too(tmp_path: Path) -> None:
    embedder = ScriptedEmbedder()
    with Perdure(tmp_path / "agents.db", embedder=embedder):
        pass

    assert embedder.closed


async def test_without_one_the_store_is_lexical_only_and_says_why() -> None:
    async with await AsyncPerdure.open(store=InlineStore(), settings=Settings(embedding="none")) as perdure:
        assert perdure.app.embedder is None
        assert perdure.app.embedding_reason == "PERDURE_EMBEDDING is `none`"


async def test_an_embedder_that_is_not_there_is_refused_before_the_store_opens(tmp_path: Path) -> None:
    """One that was asked for is never silently replaced by none."""
    with pytest.raises(InvalidInput, match="PERDURE_EMBEDDING is 'nobody/x'"):
        await AsyncPerdure.open(tmp_path / "agents.db", settings=Settings(embedding="nobody/x"))

    assert not (tmp_path / "agents.db").exists()
