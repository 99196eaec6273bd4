"""Late interaction: every word of the query finds its best word in a row, by the embedder's own word vectors."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence

import numpy as np

from perdure.search.ranking.pool import Column

__all__ = ["late_scores", "packed"]

ROWS_AT_ONCE = 8  # whose numbers stay in the processor's cache between being unpacked and being multiplied


def packed(words: Column) -> Column:
    """(w, d/8) bytes for a row's word vectors (w, d): the sign of each number, a bit each.

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
    """(n) one score per row; nan for rows that were not reached before the time was up, the first rows first.

    Args:
        query_words: (q, d) unit vectors, one for each word piece of the query.
        row_words: n arrays, either all (w, d) unit vectors or all (w, d/8) bytes from `packed`.
        out_of_time: asked between batches of 8 rows.

    Each query word's mean over the rows is taken off, so that words which suit every row count for little, and a
    query word weighs as much as its best match.

    Source: Khattab and Zaharia, ColBERT, SIGIR 2020, here with the vectors of a sentence model as it is.
    """
    scores = np.full(len(row_words), np.nan)
    there = [at for at, words in enumerate(row_words) if len(words)]
    if not len(query_words) or not there:
        return scores
    words = np.concatenate([row_words[at] for at in there])
    query = _columns(query_words, signs=words.dtype == np.uint8)
    ends = list(itertools.accumulate([len(row_words[at]) for at in there]))
    begins = [0, *ends[:-1]]
    products = np.empty((len(words), query.shape[1]), np.float32)
    reached = 0
    while reached < len(there) and not out_of_time():
        start, reached = reached, min(reached + ROWS_AT_ONCE, len(there))
        some = slice(begins[start], ends[reached - 1])
        np.matmul(_numbers(words[some], len(query)), query, out=products[some])
    if not reached:
        return scores
    best = np.maximum.reduceat(products[: ends[reached - 1]], begins[:reached])  # (rows, q)
    best -= np.add.reduce(best) / np.float32(reached)
    weight = np.maximum(np.maximum.reduce(best), 0.0)
    scores[there[:reached]] = best @ (weight / max(float(weight.sum()), 1e-6))
    return scores


def _columns(query_words: Column, *, signs: bool) -> Column:
    """(d, q) the query's words, scaled for rows of 0 and 1 if rows are `signs`; some columns may be 0."""
    count, size = query_words.shape
    # A product with 5 to 7 columns takes longer than one with 8. What is 0 for every row counts nothing.
    more = -count % 8
    columns = np.zeros((size, count + more if more <= 3 else count), np.float32)
    # The sum over the numbers that stand for 1 and -1 is twice that over those for 1, less what is the same for
    # every row and so is taken off with the mean.
    np.multiply(query_words.T, 2.0 / math.sqrt(size) if signs else 1.0, out=columns[:, :count], casting="same_kind")
    return columns


def _numbers(words: Column, size: int) -> Column:
    """(w, size) the words as 32-bit numbers; packed ones as 0 and 1."""
    if words.dtype == np.uint8:
        words = np.unpackbits(words, axis=1, count=size)
    return words.astype(np.float32, copy=False)
