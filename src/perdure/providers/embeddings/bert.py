"""The forward pass of a BERT encoder in numpy: word pieces to their hidden states.

Texts are packed one behind the other, without padding, so a text's result does not depend on its neighbours. Everything
is kept feature by feature, shape (features, pieces): BLAS multiplies weights with few pieces a third faster that way,
and a query is few pieces.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float32]

GELU_BLOCK = 16_384
"""Numbers that are worked on at a time: they stay in a core's own cache from the first step of the GELU to its last."""

SMALL = 1_000_000
"""Multiplications up to which OpenBLAS takes matrices as small."""

_SLICES = (384, 192, 128, 96, 64, 32)

SCORES_MAX = 262_144
"""Attention weights that are held at a time."""

# log(Φ(-x)/Φ(x)) as x·(c0 + c1·x² + ... + c4·x⁸), fitted so that x·Φ(x) is off by 3e-6 at most, for every x.
_PHI = tuple(map(np.float32, (-1.59565627, -7.29375816e-2, 2.49723048e-4, 6.11620585e-5, -2.23816709e-6)))


@dataclass(frozen=True, slots=True)
class Layer:
    """One layer's weights, each as (to, from); `qkv` has the three of the attention one above the other, queries
    divided by the root of a head's size."""

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
    """An encoder's weights. Biases, scales and shifts are columns.

    Args:
        words: a row for each word piece; `places`: one for each place, with that of the one segment added.
    """

    words: Array
    places: Array
    scale: Array
    shift: Array
    layers: Sequence[Layer]
    heads: int
    epsilon: float

    @property
    def dimensions(self) -> int:
        return int(self.words.shape[1])


class Workspace:
    """Memory for passes of up to `pieces` pieces, used again and again by one thread at a time."""

    def __init__(self, bert: Bert, pieces: int) -> None:
        wide, size = bert.layers[0].up.shape
        self._buffers = {
            "x": np.empty(size * pieces, np.float32),
            "y": np.empty(size * pieces, np.float32),
            "square": np.empty(size * pieces, np.float32),
            "qkv": np.empty(3 * size * pieces, np.float32),
            "wide": np.empty(wide * pieces, np.float32),
        }
        block = max(GELU_BLOCK, pieces)
        self.blocks = np.empty(block, np.float32), np.empty(block, np.float32)
        self.pieces = pieces

    def matrix(self, name: str, rows: int, columns: int) -> Array:
        return self._buffers[name][: rows * columns].reshape(rows, columns)


def hidden_states(bert: Bert, texts: Sequence[Sequence[int]], space: Workspace) -> Array:
    """The last layer's state of each piece of each text, shape (dimensions, all pieces), one text behind the other.

    It stands in the workspace: the next pass overwrites it.

    Args:
        texts: ids of word pieces, the special ones included; together at most `space.pieces`. Those of equal length
            should stand together: they are attended to in one go.
    """
    lengths = [len(text) for text in texts]
    count, size = sum(lengths), bert.dimensions
    x, y = space.matrix("x", size, count), space.matrix("y", size, count)
    square = space.matrix("square", size, count)
    qkv, wide = space.matrix("qkv", 3 * size, count), space.matrix("wide", len(bert.layers[0].up), count)
    pieces = np.fromiter((piece for text in texts for piece in text), np.intp, count)
    places = np.concatenate([np.arange(length) for length in lengths])
    x[...] = (bert.words[pieces] + bert.places[places]).T
    groups = list(_groups(lengths, bert.heads))
    # exp may overflow in the GELU: what is divided by infinity is nothing, as it should be. NaN of broken weights is
    # seen by whoever takes the result.
    with np.errstate(all="ignore"):
        _normalise(x, bert.scale, bert.shift, bert.epsilon, square)
        for layer in bert.layers:
            _multiply(layer.qkv, x, qkv)
            qkv += layer.qkv_bias
            for start, texts_in, length in groups:
                _attend(qkv, y, start, texts_in, length, bert.heads)
            _add_product(layer.out, y, layer.out_bias, x, square)
            _normalise(x, layer.attention_scale, layer.attention_shift, bert.epsilon, square)
            _multiply(layer.up, x, wide)
            _gelu(wide, layer.up_bias, space.blocks)
            _add_product(layer.down, wide, layer.down_bias, x, square)
            _normalise(x, layer.output_scale, layer.output_shift, bert.epsilon, square)
    return x


def _groups(lengths: Sequence[int], heads: int) -> Iterator[tuple[int, int, int]]:
    """(first piece, texts, pieces of each) for each run of texts of equal length, cut where the weights get many."""
    start = 0
    for length, run in groupby(lengths):
        left = sum(1 for _ in run)
        most = max(1, SCORES_MAX // (heads * length * length))
        while left:
            texts = min(left, most)
            yield start, texts, length
            start, left = start + texts * length, left - texts


def _attend(qkv: Array, into: Array, start: int, texts: int, length: int, heads: int) -> None:
    """What each piece takes from the others of its text, written into its columns."""
    stop, size = start + texts * length, len(into)
    # (3, heads, features of a head, texts, pieces), as (texts, heads, features, pieces) each; nothing is copied.
    parts = qkv[:, start:stop].reshape(3, heads, size // heads, texts, length).transpose(0, 3, 1, 2, 4)
    query, key, value = parts
    weights = np.matmul(query.swapaxes(2, 3), key)
    weights -= weights.max(axis=-1, keepdims=True)
    np.exp(weights, out=weights)
    weights /= np.matmul(weights, np.ones((length, 1), np.float32))
    out = into[:, start:stop].reshape(heads, size // heads, texts, length).transpose(2, 0, 1, 3)
    np.matmul(value, weights.swapaxes(2, 3), out=out)


def _add_product(weights: Array, of: Array, bias: Array, to: Array, spare: Array) -> None:
    _multiply(weights, of, spare)
    to += spare
    to += bias


def _multiply(weights: Array, x: Array, into: Array) -> None:
    """The product, of few pieces in slices: OpenBLAS multiplies small matrices as they stand, and copies larger ones
    first, which for a query takes as long as the multiplication."""
    rows, size = weights.shape
    step = next((step for step in _SLICES if rows % step == 0 and step * weights.shape[1] * x.shape[1] <= SMALL), rows)
    np.matmul(weights.reshape(-1, step, size), x, out=into.reshape(rows // step, step, -1))


def _normalise(x: Array, scale: Array, shift: Array, epsilon: float, spare: Array) -> None:
    """Each column to mean 0 and variance 1, then scaled and shifted, in place."""
    average = np.full(len(x), 1 / len(x), np.float32)  # a product with it is ten times as fast as `mean`
    x -= average @ x
    np.multiply(x, x, out=spare)
    x /= np.sqrt(average @ spare + np.float32(epsilon))
    x *= scale
    x += shift


def _gelu(x: Array, bias: Array, spare: tuple[Array, Array]) -> None:
    """x + bias to GELU(x + bias), in place; off by 3e-6 at most, plus the rounding of float32."""
    rows, columns = x.shape
    step = max(1, GELU_BLOCK // columns)
    for start in range(0, rows, step):
        block = x[start : start + step]
        block += bias[start : start + step]
        power, square = (one[: block.size].reshape(block.shape) for one in spare)
        np.multiply(block, block, out=square)
        np.multiply(square, _PHI[4], out=power)
        for coefficient in (_PHI[3], _PHI[2], _PHI[1]):
            power += coefficient
            power *= square
        power += _PHI[0]
        power *= block
        np.exp(power, out=power)
        power += np.float32(1)
        block /= power
