"""The forward pass against the same model written down plainly in float64, from the definition."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perdure.providers.embeddings.bert import Bert, hidden_states
from perdure.providers.embeddings.weights import load, open_folder
from tests.providers.embeddings.models import HEADS, LAYERS, SIZE, WORDS, tiny_model, tiny_tensors

Array = np.ndarray[Any, Any]


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> Bert:
    return load(open_folder(tiny_model(tmp_path_factory.mktemp("tiny"))))


def plainly(ids: list[int]) -> Array:
    """The states of one text, shape (pieces, dimensions), by the definition of BERT."""
    w = {name: tensor.astype(np.float64) for name, tensor in tiny_tensors().items()}

    def linear(x: Array, name: str) -> Array:
        y: Array = x @ w[f"{name}.weight"].T + w[f"{name}.bias"]
        return y

    def norm(x: Array, name: str) -> Array:
        centred = x - x.mean(1, keepdims=True)
        y: Array = centred / np.sqrt(x.var(1, keepdims=True) + 1e-12) * w[f"{name}.weight"] + w[f"{name}.bias"]
        return y

    gelu = np.vectorize(lambda v: v * 0.5 * math.erfc(-v / math.sqrt(2)))
    x = w["embeddings.word_embeddings.weight"][ids] + w["embeddings.position_embeddings.weight"][: len(ids)]
    x = norm(x + w["embeddings.token_type_embeddings.weight"][0], "embeddings.LayerNorm")
    for number in range(LAYERS):
        at = f"encoder.layer.{number}"
        query, key, value = (linear(x, f"{at}.attention.self.{name}") for name in ("query", "key", "value"))
        heads = []
        for head in np.split(np.arange(SIZE), HEADS):
            scores = np.exp(query[:, head] @ key[:, head].T / math.sqrt(len(head)))
            heads.append(scores / scores.sum(1, keepdims=True) @ value[:, head])
        attended = linear(np.concatenate(heads, 1), f"{at}.attention.output.dense")
        x = norm(x + attended, f"{at}.attention.output.LayerNorm")
        x = norm(
            x + linear(gelu(linear(x, f"{at}.intermediate.dense")), f"{at}.output.dense"), f"{at}.output.LayerNorm"
        )
    return x


texts_of_ids = st.lists(st.lists(st.integers(0, len(WORDS) - 1), min_size=1, max_size=12), min_size=1, max_size=6)


@settings(max_examples=60)
@given(texts_of_ids)
def test_padded_texts_get_the_states_that_each_has_alone(texts: list[list[int]]) -> None:
    """Whatever stands beside a text, and in whatever order, its states are those of the definition."""
    for text, states in zip(texts, hidden_states(_BERT, texts), strict=True):
        assert np.allclose(states, plainly(text), atol=2e-5)


def test_large_values_do_not_overflow(tmp_path: Path) -> None:
    """Where exp has no room, the GELU is 0 or the value itself, and nobody is warned."""
    tensors = {name: tensor * (200 if "intermediate" in name else 1) for name, tensor in tiny_tensors().items()}
    bert = load(open_folder(tiny_model(tmp_path, tensors=tensors)))

    assert np.isfinite(hidden_states(bert, [[2, 5, 6, 3]])[0]).all()


_BERT: Bert


@pytest.fixture(scope="module", autouse=True)
def _set_bert(bert: Bert) -> None:
    global _BERT
    _BERT = bert
