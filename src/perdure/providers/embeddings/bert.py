"""The forward pass of a BERT encoder in numpy: word pieces to their hidden states."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float32]

# log(Φ(-x)/Φ(x)) as x·(c0 + c1·x² + ... + c4·x⁸), fitted so that x·Φ(x) is off by 3e-6 at most, for every x.
_PHI = np.array((-1.59565627, -7.29375816e-2, 2.49723048e-4, 6.11620585e-5, -2.23816709e-6), np.float32)

# What OpenBLAS calls its functions, by the way it was built; {} is `get` or `set`.
_BLAS_NAMES = ("scipy_openblas_{}_num_threads64_", "openblas_{}_num_threads64_", "scipy_openblas_{}_num_threads")

_blas_lock = threading.Lock()
_blas_users = 0
_blas_threads = 0


@dataclass(frozen=True, slots=True)
class Layer:
    """One layer's weights, each as (from, to).

    `qkv` has the three matrices of the attention side by side; those of the queries are divided by the root of
    a head's size.
    """

    qkv: Array
    qkv_bias: Array
    out: Array
    out_bias: Array
    attention_scale: Array
    attention_shift: Array
    up: Array
    up_bias: Array
    down: Array
    down_bias: Array
    output_scale: Array
    output_shift: Array


@dataclass(frozen=True, slots=True)
class Bert:
    """An encoder's weights: `words`, a row per word piece; `places`, a row per position, the only segment's added."""

    words: Array
    places: Array
    scale: Array
    shift: Array
    layers: Sequence[Layer]
    heads: int
    epsilon: float


def hidden_states(bert: Bert, texts: Sequence[Sequence[int]]) -> list[Array]:
    """The last layer's state of each piece of each text, shape (pieces, dimensions) each.

    The texts are padded to one length, so those of about equal length should be passed together.

    Args:
        texts: ids of word pieces, the special ones included.
    """
    lengths = [len(text) for text in texts]
    count, length = len(texts), max(lengths)
    pieces = np.zeros((count, length), np.intp)
    mask = np.full((count, 1, 1, length), -np.inf, np.float32)
    for row, text in enumerate(texts):
        pieces[row, : len(text)] = text
        mask[row, ..., : len(text)] = 0
    x = (bert.words[pieces] + bert.places[:length]).reshape(count * length, -1)
    # exp may overflow in the GELU: what is divided by infinity is nothing, as it should be. NaN of broken weights is
    # seen by whoever takes the result.
    with one_blas_thread(), np.errstate(all="ignore"):
        x = _normalise(x, bert.scale, bert.shift, bert.epsilon)
        for layer in bert.layers:
            attention = _attention(x @ layer.qkv + layer.qkv_bias, mask, bert.heads)
            x += attention @ layer.out + layer.out_bias
            x = _normalise(x, layer.attention_scale, layer.attention_shift, bert.epsilon)
            x += _gelu(x @ layer.up + layer.up_bias) @ layer.down + layer.down_bias
            x = _normalise(x, layer.output_scale, layer.output_shift, bert.epsilon)
    states = x.reshape(count, length, -1)
    return [states[row, :pieces_of_text] for row, pieces_of_text in enumerate(lengths)]


def _attention(qkv: Array, mask: Array, heads: int) -> Array:
    """The attention of each piece to the others of its text, shape (all pieces, dimensions). `mask`: 0 for each piece
    of each text, minus infinity for padding; shape (texts, 1, 1, pieces)."""
    count, length = len(mask), mask.shape[-1]
    parts = qkv.reshape(count, length, 3, heads, -1).transpose(2, 0, 3, 1, 4)  # each (texts, heads, pieces, features)
    query, key, value = parts
    weights = query @ key.swapaxes(2, 3) + mask
    np.exp(weights - weights.max(axis=-1, keepdims=True), out=weights)
    weights /= weights.sum(axis=-1, keepdims=True)
    mixed: Array = (weights @ value).transpose(0, 2, 1, 3).reshape(count * length, -1)
    return mixed


def _normalise(x: Array, scale: Array, shift: Array, epsilon: float) -> Array:
    """Each row with mean 0 and variance 1, then scaled and shifted."""
    x = x - x.mean(axis=1, keepdims=True)
    variance = np.square(x).mean(axis=1, keepdims=True)
    normal: Array = x / np.sqrt(variance + np.float32(epsilon)) * scale + shift
    return normal


def _gelu(x: Array) -> Array:
    """GELU(x), off by 3e-6 at most, plus the rounding of float32."""
    square = np.square(x)
    power: Array = square * _PHI[-1]
    for coefficient in _PHI[-2:0:-1]:
        power += coefficient
        power *= square
    power += _PHI[0]
    power *= x
    np.exp(power, out=power)
    power += 1
    return np.divide(x, power, out=power)


@contextlib.contextmanager
def one_blas_thread() -> Iterator[None]:
    """While a block runs, numpy's OpenBLAS computes in the calling thread alone. Another BLAS is left as it is.

    Products of few rows gain little from a second thread, and lose a hundredfold when its core is busy: the threads
    wait for each other without sleeping.
    """
    global _blas_users, _blas_threads
    if (controls := blas_controls()) is None:
        yield
        return
    get_threads, set_threads = controls
    with _blas_lock:
        if _blas_users == 0:
            _blas_threads = get_threads()
            set_threads(1)
        _blas_users += 1
    try:
        yield
    finally:
        with _blas_lock:
            _blas_users -= 1
            if _blas_users == 0:
                set_threads(_blas_threads)


@functools.cache
def blas_controls() -> tuple[Callable[[], int], Callable[[int], object]] | None:
    """The functions that get and set the number of threads of numpy's OpenBLAS; None if numpy has another BLAS."""
    package = Path(np.__file__).parent
    for folder in (package.parent / "numpy.libs", package / ".dylibs", package / ".libs"):
        for path in sorted(folder.glob("*openblas*")):
            with contextlib.suppress(OSError):
                library = ctypes.CDLL(str(path))  # it is loaded already: this is another handle of the same
                for name in _BLAS_NAMES:
                    get_threads = getattr(library, name.format("get"), None)
                    set_threads = getattr(library, name.format("set"), None)
                    if get_threads is not None and set_threads is not None:
                        set_threads.restype = None
                        return get_threads, set_threads
    return None
