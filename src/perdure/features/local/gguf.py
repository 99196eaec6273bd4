"""What the head of a GGUF file says of its model: parameters, window, and what its memory of a prompt takes."""

from __future__ import annotations

import functools
import math
import mmap
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from perdure.core.errors import InvalidInput

MAGIC = b"GGUF"
SIZES = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
"""Type of a value -> its code in `struct`."""
STRING, ARRAY = 8, 9
TENSORS_MAX, DIMENSIONS_MAX = 100_000, 8
CACHE_BYTES = 2
"""Of one number in the memory of a prompt, which llama.cpp keeps as 16-bit floats."""


@dataclass(frozen=True, slots=True)
class ModelHead:
    """What a model file says of itself.

    Args:
        parameters: how many it has.
        window_tokens: what it was trained with; None: it does not say.
        cache_bytes: what it keeps in memory of each token of a prompt; 0: it does not say.
        size_bytes: of the file.
    """

    parameters: int
    window_tokens: int | None
    cache_bytes: int
    size_bytes: int


def read_head(path: Path) -> ModelHead:
    """The head of a model file. Raises: InvalidInput: it can't be read, or is none."""
    try:
        found = path.stat()
        return _read(path, found.st_size, found.st_mtime_ns)
    except (OSError, struct.error, ValueError, KeyError, TypeError, OverflowError) as error:
        raise InvalidInput(f"{path} is no model that llama.cpp reads: {_why(path, error)}") from error


def _why(path: Path, error: Exception) -> str:
    if isinstance(error, OSError):
        return error.strerror or str(error)
    return f"it is no whole GGUF file ({path.stat().st_size:,} bytes)"


@functools.lru_cache(maxsize=64)
def _read(path: Path, size: int, _: int) -> ModelHead:
    """The head of a file of this size and time. Raises: what damage makes of it, see `read_head`."""
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        if data[:4] != MAGIC:
            raise ValueError("no GGUF")
        reader = _Reader(data, 4)
        version, tensors, pairs = reader.number("I"), reader.number("Q"), reader.number("Q")
        if version not in (2, 3) or tensors > TENSORS_MAX:
            raise ValueError("unknown form")
        facts: dict[str, Any] = {}
        for _pair in range(pairs):
            name = reader.text()
            facts[name] = reader.value(reader.number("I"))
        parameters = sum(reader.tensor() for _tensor in range(tensors))
    prefix = facts.get("general.architecture", "")
    window = facts.get(f"{prefix}.context_length")
    return ModelHead(
        parameters,
        window if isinstance(window, int) else None,
        _cache_bytes({name.removeprefix(f"{prefix}."): value for name, value in facts.items()}),
        size,
    )


def _cache_bytes(facts: dict[str, Any]) -> int:
    """The bytes that the keys and values of one token take, at most: some models keep fewer in some layers."""
    heads, layers = facts.get("attention.head_count"), facts.get("block_count")
    if not isinstance(heads, int) or not isinstance(layers, int) or not heads:
        return 0
    shared = facts.get("attention.head_count_kv")
    width = facts.get("embedding_length", 0) // heads
    keys = facts.get("attention.key_length", width) + facts.get("attention.value_length", width)
    return int(layers * (shared if isinstance(shared, int) else heads) * keys * CACHE_BYTES)


class _Reader:
    """Reads the values of a head, one behind the other."""

    def __init__(self, data: mmap.mmap, at: int) -> None:
        self._data, self._at = data, at

    def number(self, code: str) -> Any:
        value = struct.unpack_from(f"<{code}", self._data, self._at)[0]
        self._at += struct.calcsize(f"<{code}")
        return value

    def text(self) -> str:
        size = self.number("Q")
        if size > len(self._data) - self._at:
            raise ValueError("cut off")
        self._at += size
        return self._data[self._at - size : self._at].decode("utf-8")

    def value(self, kind: int) -> Any:
        """A value; None for an array, which is passed over: they are the words of the tokenizer."""
        if kind == STRING:
            return self.text()
        if kind != ARRAY:
            return self.number(SIZES[kind])
        inner, count = self.number("I"), self.number("Q")
        if inner == STRING:
            data, at, unpack = self._data, self._at, struct.Struct("<Q").unpack_from
            for _text in range(count):
                at += 8 + unpack(data, at)[0]
            self._at = at
        else:
            self._at += count * struct.calcsize(SIZES[inner])
        return None

    def tensor(self) -> int:
        """How many numbers a tensor has."""
        self.text()
        count = self.number("I")
        if count > DIMENSIONS_MAX:
            raise ValueError("unknown form")
        size: int = math.prod(self.number("Q") for _dimension in range(count))
        self._at += 4 + 8  # its type and place
        return size
