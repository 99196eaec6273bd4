"""Arithmetic on vectors: their decoding, products with a query, and differing signs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float32]

PRODUCT_NUMBERS = 131_072
"""Numbers in one product. From about 460,000 on BLAS uses threads that spin while they wait: ten times the CPU."""

HALF_BITS = np.int32(-0x7000_2000)  # 0x8fff_e000
BIAS = np.float32(2.0**112)


def decode(blobs: Sequence[bytes], dimensions: int) -> npt.NDArray[np.float16]:
    """Return stored vectors, all of this length, as a matrix."""
    return np.frombuffer(b"".join(blobs), "<f2").reshape(-1, dimensions)


def scores(vectors: npt.NDArray[Any], query: FloatArray) -> FloatArray:
    """Return the product of each row with the query."""
    out = np.empty(len(vectors), np.float32)
    step = max(1, PRODUCT_NUMBERS // max(1, vectors.shape[1]))
    grown = query * BIAS
    for first in range(0, len(vectors), step):
        block = vectors[first : first + step]
        if block.dtype == np.float16:
            out[first : first + step] = _widen_halves(block) @ grown
        else:
            out[first : first + step] = block.astype(np.float32, copy=False) @ query
    return out


def _widen_halves(halves: npt.NDArray[np.float16]) -> FloatArray:
    """Convert finite 16-bit floats to 32-bit floats that are 2**112 times too small. It moves sign, exponent and
    fraction to their places, and takes a quarter of the time of numpy's conversion."""
    bits = halves.view(np.int16).astype(np.int32)
    np.left_shift(bits, 13, out=bits)
    np.bitwise_and(bits, HALF_BITS, out=bits)  # the copies of the sign that lie in the exponent
    return bits.view(np.float32)


def signs_of(vectors: npt.NDArray[Any]) -> npt.NDArray[np.uint64]:
    """Return the signs of n vectors as bits, (words, n); a bit is set where a number is not negative."""
    # Comparing halves takes as long as converting them; the sign is the first bit of each.
    above = vectors.view(np.int16) >= 0 if vectors.dtype == np.float16 else vectors >= 0
    bits = np.packbits(above, axis=1)
    padded = np.zeros((len(vectors), 8 * -(-vectors.shape[1] // 64)), np.uint8)
    padded[:, : bits.shape[1]] = bits
    return padded.view(np.uint64).T


class Buffers:
    """The intermediate arrays of `count_differing`."""

    def __init__(self, rows: int) -> None:
        self.differs = np.empty(rows, np.uint64)
        self.sum, self.bits = np.empty(rows, np.uint8), np.empty(rows, np.uint8)


def count_differing(
    words: Sequence[npt.NDArray[np.uint64]] | npt.NDArray[np.uint64],
    signs: npt.NDArray[np.uint64],
    out: npt.NDArray[np.uint16],
    buffers: Buffers,
) -> npt.NDArray[np.uint16]:
    """Count the bits that differ from `signs` in each row, into `out`. `words`: an array of signs per word."""
    size = len(out)
    differs, total, bits = buffers.differs[:size], buffers.sum[:size], buffers.bits[:size]
    out[:] = 0
    for first in range(0, len(signs), 3):  # three words' counts fit into eight bits
        for word in range(first, min(first + 3, len(signs))):
            np.bitwise_xor(words[word], signs[word], out=differs)
            if word == first:
                np.bitwise_count(differs, out=total)
            else:
                np.bitwise_count(differs, out=bits)
                np.add(total, bits, out=total)
        np.add(out, total, out=out)
    return out


def hash_numbers(seqs: IntArray) -> IntArray:
    """Hash numbers to numbers below 2**32."""
    return seqs * 2_654_435_761 & 0xFFFF_FFFF
