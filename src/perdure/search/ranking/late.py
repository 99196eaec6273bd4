"""Late interaction: every word of the query finds its best word in a row, by the embedder's own word vectors."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence

import numpy as np

from perdure.search.ranking.pool import Column

ROWS_AT_ONCE = 8  # unpacked, their numbers fit into the processor's cache


def pack_signs(words: Column) -> Column:
    """Return (w, d/8) bytes for a row's word vectors (w, d): the sign of each number, a bit each.

    Enough for late interaction as long as the query's vectors stay whole: on LoCoMo it finds as much as with 32-bit
    numbers, and a row of 45 word pieces takes 2 kB instead of 69.
    """
    return np.packbits(np.asarray(words) > 0, axis=1)


def late_scores(
    query_words: Column,
    row_words: Sequence[Column],
    *,
    out_of_time: Callable[[], bool] = lambda: False,
) -> Column:
    """Return (n) one score per row; nan for the rows that the time did not suffice for, which are the last.

    Args:
        query_words: (q, d) unit vectors, one for each word piece of the query.
        row_words: n arrays, either all (w, d) unit vectors or all (w, d/8) bytes from `pack_signs`.
        out_of_time: called between batches of 8 rows.

    The mean of each query word over the rows is subtracted, so that words which suit every row count little. A query
    word weighs as much as its best match.

    Source: Khattab and Zaharia, ColBERT, SIGIR 2020, here with the vectors of a plain sentence model.
    """
    scores = np.full(len(row_words), np.nan)
    present = [at for at, words in enumerate(row_words) if len(words)]
    if not len(query_words) or not present:
        return scores
    words = np.concatenate([row_words[at] for at in present])
    query = query_words.T.astype(np.float32)  # (d, q)
    if words.dtype == np.uint8:
        # A product with 0 and 1 is half of that with -1 and 1, plus a constant that the mean takes away.
        query *= 2.0 / math.sqrt(len(query))
    ends = list(itertools.accumulate([len(row_words[at]) for at in present]))
    begins = [0, *ends[:-1]]
    products = np.empty((len(words), query.shape[1]), np.float32)
    reached = 0
    while reached < len(present) and not out_of_time():
        start, reached = reached, min(reached + ROWS_AT_ONCE, len(present))
        batch = slice(begins[start], ends[reached - 1])
        np.matmul(_unpack(words[batch], len(query)), query, out=products[batch])
    if not reached:
        return scores
    best = np.maximum.reduceat(products[: ends[reached - 1]], begins[:reached])  # (rows, q)
    best -= best.mean(axis=0)
    weight = np.maximum(best.max(axis=0), 0.0)
    scores[present[:reached]] = best @ (weight / max(float(weight.sum()), 1e-6))
    return scores


def _unpack(words: Column, size: int) -> Column:
    """Return word vectors (w, size) as 32-bit numbers; packed signs as 0 and 1."""
    if words.dtype == np.uint8:
        words = np.unpackbits(words, axis=1, count=size)
    return words.astype(np.float32, copy=False)
