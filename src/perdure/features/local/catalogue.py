"""What is known of a model that is here or can be fetched: by the head of its GGUF file, which says its parameters, its
window and what its memory of a prompt takes; and by the catalogue of those that can be fetched."""

from __future__ import annotations

import functools
import math
import mmap
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from perdure.core.errors import InvalidInput, NotFound
from perdure.core.text.tables import read_table

CODES = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
"""Type of a value in a GGUF file -> its code in `struct`."""
STRING, ARRAY = 8, 9
TEXT_BYTES_MAX, DIMENSIONS_MAX = 1 << 24, 8
CACHE_BYTES = 2
"""The bytes of one number in the cache of a prompt, which llama.cpp keeps as 16-bit floats."""


@dataclass(frozen=True, slots=True)
class ModelHead:
    """What a model file says of itself.

    Args:
        window_tokens: the context window that it was trained with; None: it does not say.
        cache_bytes: the memory for each token of a prompt; 0: it does not say.
    """

    parameters: int
    window_tokens: int | None
    cache_bytes: int
    size_bytes: int


def read_head(path: Path) -> ModelHead:
    """Return the head of a model file. Raises: InvalidInput: it can't be read, or is no model file."""
    try:
        found = path.stat()
        return _read(path, found.st_size, found.st_mtime_ns)
    except OSError as error:
        raise InvalidInput(f"{path} is not a model that llama.cpp reads: {error.strerror or error}") from error
    except (struct.error, ValueError, KeyError, TypeError, OverflowError) as error:
        size = f"{found.st_size:,} bytes"
        why = f"it is not a whole GGUF file ({size})"
        raise InvalidInput(f"{path} is not a model that llama.cpp reads: {why}") from error


@functools.lru_cache(maxsize=64)
def _read(path: Path, size: int, _mtime_ns: int) -> ModelHead:
    """Return the head of a file. Size and time are those of the file, so that the cache knows a changed one. Raises:
    what reading a damaged file raises, see `read_head`."""
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        form, version, tensors, pairs = _numbers(data, "4sIQQ")
        if form != b"GGUF" or version not in (2, 3):
            raise ValueError(form)
        facts = {_text(data): _value(data) for _pair in range(pairs)}
        parameters = sum(_tensor(data) for _tensor_number in range(tensors))
    prefix = f"{facts.get('general.architecture')}."
    own = {name.removeprefix(prefix): value for name, value in facts.items()}
    counts = {name: value for name, value in own.items() if isinstance(value, int)}
    return ModelHead(parameters, counts.get("context_length"), _cache_bytes(counts), size)


def _cache_bytes(counts: dict[str, int]) -> int:
    """Return the bytes of the keys and values of one token, at most; `counts` are whole numbers of the head by name."""
    heads = counts.get("attention.head_count", 0)
    width = counts.get("embedding_length", 0) // (heads or 1)
    numbers = counts.get("attention.key_length", width) + counts.get("attention.value_length", width)
    return counts.get("block_count", 0) * counts.get("attention.head_count_kv", heads) * numbers * CACHE_BYTES


def _numbers(data: mmap.mmap, codes: str) -> tuple[Any, ...]:
    """Read the next values, of these codes of `struct`. Raises: struct.error."""
    return struct.unpack(f"<{codes}", data.read(struct.calcsize(f"<{codes}")))


def _text(data: mmap.mmap) -> str:
    """Read a string: its size, then its bytes. Raises: struct.error, ValueError."""
    (size,) = _numbers(data, "Q")
    if size > TEXT_BYTES_MAX:
        raise ValueError(size)
    return data.read(size).decode("utf-8")


def _value(data: mmap.mmap) -> Any:
    """Read a typed value; skip an array, such as the tokenizer's words, and return None."""
    (kind,) = _numbers(data, "I")
    if kind == STRING:
        return _text(data)
    if kind != ARRAY:
        return _numbers(data, CODES[kind])[0]
    inner, count = _numbers(data, "IQ")
    for _word in range(count if inner == STRING else 0):  # there are 150,000: no `struct` here
        data.seek(int.from_bytes(data.read(8), "little"), 1)
    data.seek(0 if inner == STRING else count * struct.calcsize(CODES[inner]), 1)
    return None


def _tensor(data: mmap.mmap) -> int:
    """Read the entry of a tensor; return how many numbers it has."""
    _text(data)
    (count,) = _numbers(data, "I")
    if count > DIMENSIONS_MAX:
        raise ValueError(count)
    *sizes, _type, _place = _numbers(data, f"{count}QIQ")
    return math.prod(sizes)


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalModel:
    """A model that is here, or can be fetched.

    Args:
        about: a description of a few words.
        address: the URL of its file.
        size_bytes, sha256: those of the whole file.
        is_default: whether agents without a model of their own answer with it.
        fetched_bytes: how much of the file has come, if it is not complete.
    """

    name: str
    about: str = ""
    licence: str = ""
    address: str = ""
    size_bytes: int = 0
    sha256: str = ""
    is_here: bool = False
    is_default: bool = False
    fetched_bytes: int = 0


@functools.cache
def catalogue() -> Mapping[str, LocalModel]:
    """Return name -> model, of the models that can be fetched."""
    return {name: LocalModel(name=name, **entry) for name, entry in read_table(__file__, "catalogue.toml").items()}


def known_model(name: str) -> LocalModel:
    """Return a model of the catalogue. Raises: NotFound."""
    if (model := catalogue().get(name)) is None:
        raise NotFound("model", name, hint=f"{', '.join(catalogue())} can be fetched")
    return model
