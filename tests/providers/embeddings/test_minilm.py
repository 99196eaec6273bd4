"""The local embedder: equal to sentence-transformers where that is published, and indifferent to what stands around a
text."""

from __future__ import annotations

import asyncio
import json
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from perdure.core.errors import InvalidInput, ModelReplyInvalid, ModelRequestRefused
from perdure.core.ports import WordEmbedder
from perdure.providers.embeddings.bert import blas_controls, one_blas_thread
from perdure.providers.embeddings.minilm import MiniLM
from perdure.providers.embeddings.weights import open_folder
from tests.providers.embeddings.models import SIZE, minilm_folder, needs_minilm, tiny_model, tiny_tensors

ODD = [
    "",
    "\x00",
    "\ud800",
    "a\ud83d\ude00b",
    "😀",
    "x" * 1_000_000,
    "word " * 200_000,
    "没有空格" * 50_000,
    " " * 9_999,
]


@pytest.fixture
def tiny(tmp_path: Path) -> MiniLM:
    return MiniLM(open_folder(tiny_model(tmp_path / "tiny")))


@pytest.fixture(scope="module")
def minilm() -> MiniLM:
    folder = minilm_folder()
    assert folder is not None
    return MiniLM(open_folder(folder))


@needs_minilm
async def test_vectors_are_those_of_sentence_transformers(minilm: MiniLM) -> None:
    """The example of its documentation: three sentences and their cosines, to the four places given there."""
    sentences = ["The weather is lovely today.", "It's so sunny outside!", "He drove to the stadium."]
    rows = await minilm.embed(sentences)

    assert minilm.handle == "local/all-MiniLM-L6-v2"
    assert minilm.local
    assert rows.shape == (3, minilm.dimensions) == (3, 384)
    assert np.allclose(rows @ rows.T, [[1, 0.6660, 0.1046], [0.6660, 1, 0.1411], [0.1046, 0.1411, 1]], atol=6e-5)


@pytest.mark.slow
@needs_minilm
async def test_a_vector_does_not_depend_on_its_batch(minilm: MiniLM) -> None:
    """Alone, among others, in another order: the same to 1e-5."""
    texts = [" ".join(["the cat sat on the mat near a river"] * (1 + number % 9))[number:] for number in range(14)]
    together, backwards = await minilm.embed(texts), await minilm.embed(texts[::-1])
    alone = np.concatenate([await minilm.embed([text]) for text in texts])

    assert np.abs(together - alone).max() < 1e-5
    assert np.abs(together - backwards[::-1]).max() < 1e-5


@needs_minilm
async def test_paraphrases_are_nearest(minilm: MiniLM) -> None:
    """Each question finds its answer among the others'."""
    questions = ["Where does Ada work?", "Which pet does he have?", "When is the meeting?", "What did they eat?"]
    answers = ["Ada has a job at the harbour.", "He keeps a small dog.", "We meet on Tuesday at nine.", "It was pasta."]
    near = await minilm.embed(questions, purpose="query") @ (await minilm.embed(answers)).T

    assert near.argmax(axis=1).tolist() == [0, 1, 2, 3]


@needs_minilm
async def test_words_have_vectors_of_their_own(minilm: MiniLM) -> None:
    """One for each word piece in the words' place; the special pieces are left out."""
    _, (bank, river, nothing) = await minilm.embed_with_words(["bank", "river", ""], purpose="query")
    _, (sentence,) = await minilm.embed_with_words(["the unbelievable river bank"], purpose="query")

    assert bank.shape == river.shape == (1, 384)
    assert sentence.shape == (4, 384)
    assert nothing.shape == (0, 384)
    assert np.allclose(np.linalg.norm(sentence, axis=1), 1, atol=1e-5)
    assert sentence[2] @ river[0] > sentence[2] @ bank[0]


async def test_a_document_has_its_vector_and_the_words_that_say_something(tiny: MiniLM) -> None:
    """Both of one pass, as of a query; without function words and punctuation, unless there is nothing else."""
    texts = ["the red wine .", "a . the", "."]
    rows, words = await tiny.embed_with_words(texts)
    query_rows, whole = await tiny.embed_with_words(texts, purpose="query")

    assert np.array_equal(rows, query_rows) and np.array_equal(rows, await tiny.embed(texts))
    assert [len(one) for one in words] == [2, 3, 1]
    assert [len(one) for one in whole] == [4, 3, 1]
    assert np.array_equal(words[0], whole[0][[1, 2]])


async def test_the_words_of_a_long_text_are_those_of_its_first_window(tiny: MiniLM) -> None:
    first, second = "red wine blue sky red wine red", "sky sky sky sky sky sky sky"
    _, (words, alone) = await tiny.embed_with_words([f"{first} {second}", first])

    assert np.allclose(words, alone, atol=1e-5)


@pytest.mark.slow
@needs_minilm
@pytest.mark.parametrize("text", ODD, ids=lambda text: ascii(text[:6]))
async def test_no_text_is_refused_by_the_real_one(minilm: MiniLM, text: str) -> None:
    """Empty, NUL, half a pair, a megabyte: a row of length 1."""
    (row,) = await minilm.embed([text])

    assert np.linalg.norm(row) == pytest.approx(1, abs=1e-5)


@pytest.mark.parametrize("text", ODD, ids=lambda text: ascii(text[:6]))
async def test_no_text_is_refused(tiny: MiniLM, text: str) -> None:
    rows, (words, _) = await tiny.embed_with_words([text, "red"])

    assert np.allclose(np.linalg.norm(rows, axis=1), 1, atol=1e-5)
    assert words.shape[1] == SIZE


async def test_no_texts_are_no_rows(tiny: MiniLM) -> None:
    assert (await tiny.embed([])).shape == (0, SIZE)
    assert (await tiny.embed_with_words([]))[1] == []


async def test_a_long_text_is_the_mean_of_its_windows(tiny: MiniLM) -> None:
    """Two equal windows where the model takes ten pieces, by length."""
    halves = "the red wine the red wine the", "blue sky a b c the blue"
    whole, one, other = await tiny.embed([" ".join(halves), *halves])
    mean = one + other

    assert np.allclose(whole, mean / np.linalg.norm(mean), atol=1e-5)


async def test_what_is_beyond_the_last_window_does_not_count(tiny: MiniLM) -> None:
    """Eight windows of ten pieces."""
    first = "red " * 80
    same, other = await tiny.embed([first, first + "blue sky " * 50])

    assert np.allclose(same, other, atol=1e-6)


async def test_another_caller_has_its_turn_between_two_passes(tiny: MiniLM) -> None:
    """A query that comes while thousands of documents are embedded is not answered last."""
    done: list[str] = []

    async def embed(name: str, texts: list[str]) -> None:
        await tiny.embed(texts)
        done.append(name)

    documents = asyncio.create_task(embed("documents", ["the red wine and the blue sky"] * 3_000))
    await asyncio.sleep(0.02)
    await embed("query", ["red"])
    await documents

    assert done == ["query", "documents"]


async def test_it_can_be_used_after_it_was_closed(tiny: MiniLM) -> None:
    """Closing ends its thread and lets the weights go; the next call loads them anew."""
    threads = set(threading.enumerate())
    before = await tiny.embed(["red"])
    await tiny.close()

    assert not [new for new in set(threading.enumerate()) - threads if new.name.startswith("perdure-embed")]
    assert np.allclose(before, await tiny.embed(["red"]))
    await tiny.close()


async def test_equal_weights_have_one_name_and_others_another(tmp_path: Path) -> None:
    """A handle names the vector space, wherever the files are."""
    here, copy = (MiniLM(open_folder(tiny_model(tmp_path / place / "mine"))) for place in ("a", "b"))
    other = MiniLM(open_folder(tiny_model(tmp_path / "c" / "mine", seed=2)))

    assert here.handle == copy.handle != other.handle
    assert here.handle.startswith("local/mine-")
    assert isinstance(here, WordEmbedder)


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({"model_type": "roberta"}, "its model_type is 'roberta'"),
        ({"hidden_act": "relu"}, "another kind of BERT"),
        ({"position_embedding_type": "relative_key"}, "another kind of BERT"),
        ({"hidden_size": "many"}, "can't be read"),
    ],
)
def test_a_model_of_another_kind_is_refused(tmp_path: Path, config: dict[str, Any], expected: str) -> None:
    """It would give wrong vectors, not none."""
    with pytest.raises(InvalidInput, match=expected):
        open_folder(tiny_model(tmp_path, **config))


def test_a_model_that_pools_in_another_way_is_refused(tmp_path: Path) -> None:
    pooling = tiny_model(tmp_path) / "1_Pooling" / "config.json"
    pooling.parent.mkdir()
    pooling.write_text(json.dumps({"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False}))

    with pytest.raises(InvalidInput, match="does not take the mean"):
        open_folder(tmp_path)


def test_a_folder_without_weights_is_refused(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")

    with pytest.raises(InvalidInput, match=r"it has no model\.safetensors and no tokenizer\.json"):
        open_folder(tmp_path)


@pytest.mark.parametrize("broken", ["model.safetensors", "tokenizer.json"])
async def test_files_that_cant_be_read_are_told_at_the_first_text(tmp_path: Path, broken: str) -> None:
    """A typed error with the file's name; nothing would help but installing anew."""
    folder = open_folder(tiny_model(tmp_path))
    (tmp_path / broken).write_bytes(b"{}")

    with pytest.raises(ModelRequestRefused, match=broken) as caught:
        await MiniLM(folder).embed(["red"])
    assert not caught.value.retryable


async def test_weights_of_another_shape_are_told(tmp_path: Path) -> None:
    tensors = tiny_tensors() | {"encoder.layer.1.output.dense.weight": np.zeros((3, 4), np.float32)}

    with pytest.raises(ModelRequestRefused, match=r"layer\.1\.output\.dense\.weight has the shape \(3, 4\)"):
        await MiniLM(open_folder(tiny_model(tmp_path, tensors=tensors))).embed(["red"])


async def test_weights_that_are_no_numbers_are_told(tmp_path: Path) -> None:
    """Never a vector of NaN."""
    tensors = tiny_tensors()
    tensors["encoder.layer.0.output.dense.bias"][3] = np.nan

    with pytest.raises(ModelReplyInvalid, match="NaN"):
        await MiniLM(open_folder(tiny_model(tmp_path, tensors=tensors))).embed(["red"])


def test_blas_has_its_threads_back_afterwards() -> None:
    """Also when it is limited by several at once."""
    if (controls := blas_controls()) is None:
        pytest.skip("numpy has no OpenBLAS here")
    read, write = controls
    before = read()
    write(2)
    try:
        with one_blas_thread():
            with one_blas_thread():
                assert read() == 1
            assert read() == 1
        assert read() == 2
    finally:
        write(before)
