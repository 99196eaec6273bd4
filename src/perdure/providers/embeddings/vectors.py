"""Check the vectors of a model and scale them to length 1."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from perdure.core.errors import ModelReplyInvalid

if TYPE_CHECKING:
    Array = npt.NDArray[np.float32]


def unit_rows(vectors: Sequence[Any] | Array, *, texts: int, dimensions: int | None, who: str) -> Array:
    """The vectors as float32 rows of length 1, shape (texts, dimensions).

    Args:
        texts: how many were sent; `dimensions`: how many numbers earlier vectors had, None if there was none.
        who: the model, for the message.
    Raises: ModelReplyInvalid: another count, another dimension, vectors of unequal length, something that is no number,
        a vector of zeros.
    """
    if len(vectors) != texts:
        raise ModelReplyInvalid(f"{who} gave {len(vectors)} vectors for {texts} texts")
    if texts == 0:
        return np.zeros((0, dimensions or 0), np.float32)
    lengths = sorted({len(vector) for vector in vectors})
    if len(lengths) > 1 or lengths[0] == 0:
        told = (
            "a vector without numbers" if lengths[0] == 0 else f"vectors of {lengths[0]} and of {lengths[-1]} numbers"
        )
        raise ModelReplyInvalid(f"{who} gave {told}")
    if dimensions is not None and lengths[0] != dimensions:
        raise ModelReplyInvalid(
            f"{who} gave vectors of {lengths[0]} numbers, and {dimensions} before: is it another model by now?"
        )
    try:
        rows = np.array(vectors, np.float64)
    except (ValueError, TypeError) as error:
        raise ModelReplyInvalid(f"{who} gave a vector that holds something else than numbers") from error
    norms = np.linalg.norm(rows, axis=1, keepdims=True)
    if not np.isfinite(norms).all():
        raise ModelReplyInvalid(f"{who} gave a vector with a number that is NaN or infinite")
    if not norms.all():
        raise ModelReplyInvalid(f"{who} gave a vector of zeros, which is near to nothing")
    unit: Array = (rows / norms).astype(np.float32)
    return unit
