"""Local models for tests: a tiny random one made on the spot, and the real MiniLM where it is installed."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from perdure.providers.embeddings.weights import PACKAGE, find_installed

SIZE, WIDE, LAYERS, HEADS, PLACES = 16, 32, 2, 4, 12
WORDS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "red", "wine", "blue", "sky", "##s", "a", "b", "c", ".")


def tiny_tensors(*, seed: int = 1) -> dict[str, np.ndarray[Any, Any]]:
    """Random weights of a BERT, named and shaped as transformers saves them."""
    random = np.random.default_rng(seed)

    def tensor(*shape: int, around: float = 0.0) -> np.ndarray[Any, Any]:
        return (random.standard_normal(shape) * 0.4 + around).astype(np.float32)

    tensors = {
        "embeddings.word_embeddings.weight": tensor(len(WORDS), SIZE),
        "embeddings.position_embeddings.weight": tensor(PLACES, SIZE),
        "embeddings.token_type_embeddings.weight": tensor(2, SIZE),
        "embeddings.LayerNorm.weight": tensor(SIZE, around=1.0),
        "embeddings.LayerNorm.bias": tensor(SIZE),
    }
    for number in range(LAYERS):
        at = f"encoder.layer.{number}"
        for name, to, of in (
            ("attention.self.query", SIZE, SIZE),
            ("attention.self.key", SIZE, SIZE),
            ("attention.self.value", SIZE, SIZE),
            ("attention.output.dense", SIZE, SIZE),
            ("intermediate.dense", WIDE, SIZE),
            ("output.dense", SIZE, WIDE),
        ):
            tensors[f"{at}.{name}.weight"], tensors[f"{at}.{name}.bias"] = tensor(to, of), tensor(to)
        for name in ("attention.output.LayerNorm", "output.LayerNorm"):
            tensors[f"{at}.{name}.weight"], tensors[f"{at}.{name}.bias"] = tensor(SIZE, around=1.0), tensor(SIZE)
    return tensors


def tiny_model(
    folder: Path, *, seed: int = 1, tensors: Mapping[str, np.ndarray[Any, Any]] | None = None, **config: Any
) -> Path:
    """A folder with a tiny model in it; `config` changes its config.json."""
    from safetensors.numpy import save_file
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers

    folder.mkdir(parents=True, exist_ok=True)
    save_file(dict(tensors or tiny_tensors(seed=seed)), folder / "model.safetensors")
    vocabulary = {word: number for number, word in enumerate(WORDS)}
    tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.save(str(folder / "tokenizer.json"))
    values = {
        "model_type": "bert",
        "hidden_act": "gelu",
        "hidden_size": SIZE,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS,
        "max_position_embeddings": PLACES,
        "layer_norm_eps": 1e-12,
    }
    (folder / "config.json").write_text(json.dumps(values | config), encoding="utf-8")
    return folder


def minilm_folder() -> Path | None:
    """Where the real weights are: installed, or where `make setup` puts them."""
    place = Path(sys.prefix, "weights", PACKAGE, "model")
    return find_installed() or (place if place.is_dir() else None)


needs_minilm = pytest.mark.skipif(
    minilm_folder() is None, reason="the weights of MiniLM are not here: `make setup` gets them"
)
