"""Shared by all embedders: the prefixes that some models need, and the check of vectors."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from perdure.core.errors import ModelReplyInvalid
from perdure.core.ports import EmbedPurpose

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

# Models that were trained with other beginnings for what is searched than for what is searched with. Servers don't add
# them. (name, before a document, before a query)
_PREFIXES: Sequence[tuple[re.Pattern[str], str, str]] = (
    (re.compile(r"nomic-embed-text"), "search_document: ", "search_query: "),
    (re.compile(r"(?:^|[/_-])e5-(?:small|base|large)(?!-instruct)"), "passage: ", "query: "),
    (
        re.compile(r"mxbai-embed|snowflake-arctic-embed|bge-(?:small|base|large)-en"),
        "",
        "Represent this sentence for searching relevant passages: ",
    ),
    (re.compile(r"embeddinggemma|embedding-gemma"), "title: none | text: ", "task: search result | query: "),
)


def prefix_of(model: str, purpose: EmbedPurpose) -> str:
    """The prefix of a text for this model; empty for most.

    >>> prefix_of("nomic-embed-text:v1.5", "query")
    'search_query: '
    """
    for pattern, document, query in _PREFIXES:
        if pattern.search(model.lower()):
            return query if purpose == "query" else document
    return ""


def unit_rows(
    vectors: Sequence[Any] | npt.NDArray[np.float32], *, texts: int, dimensions: int | None, who: str
) -> npt.NDArray[np.float32]:
    """The vectors as float32 rows of length 1, shape (texts, dimensions).

    Args:
        texts: how many were sent; `dimensions`: how many numbers earlier vectors had, None if there was none.
        who: the model, for the message.
    Raises: ModelReplyInvalid: another count, another dimension, vectors of unequal length, something that is no number,
        a vector of zeros.
    """
    import numpy as np

    if len(vectors) != texts:
        raise ModelReplyInvalid(f"{who} gave {len(vectors)} vectors for {texts} texts")
    if texts == 0:
        return np.zeros((0, dimensions or 0), np.float32)
    lengths = {len(vector) for vector in vectors}
    shortest, longest = min(lengths), max(lengths)
    if shortest == 0:
        raise ModelReplyInvalid(f"{who} gave a vector without numbers")
    if shortest != longest:
        raise ModelReplyInvalid(f"{who} gave vectors of {shortest} and of {longest} numbers")
    if dimensions not in (None, longest):
        raise ModelReplyInvalid(
            f"{who} gave vectors of {longest} numbers, and {dimensions} before: is it another model by now?"
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
    unit: npt.NDArray[np.float32] = (rows / norms).astype(np.float32)
    return unit
