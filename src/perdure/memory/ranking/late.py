"""Late interaction: every word of the query finds its best word in a row, by the embedder's own word vectors."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from perdure.memory.ranking.pool import Column

__all__ = ["late_scores", "packed"]

ROWS_AT_ONCE = 16


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
        out_of_time: asked between batches of 16 rows.

    Each query word's mean over the rows is taken off, so that words which suit every row count for little, and a
    query word weighs as much as its best match.

    Source: Khattab and Zaharia, ColBERT, SIGIR 2020, here with the vectors of a sentence model as it is.
    """
    scores = np.full(len(row_words), np.nan)
    if not len(query_words):
        return scores
    query = np.asarray(query_words, np.float32)
    best_words: list[Column] = []
    reached: list[int] = []
    for start in range(0, len(row_words), ROWS_AT_ONCE):
        if out_of_time():
            break
        batch = [at for at in range(start, min(start + ROWS_AT_ONCE, len(row_words))) if len(row_words[at])]
        if batch:
            best_words.append(_best(query, [row_words[at] for at in batch]))
            reached.extend(batch)
    if not reached:
        return scores
    best = np.concatenate(best_words, axis=1)
    best = best - best.mean(1, keepdims=True)
    weight = np.maximum(best.max(1), 0.0)
    scores[reached] = weight @ best / max(float(weight.sum()), 1e-6)
    return scores


def _best(query: Column, rows: Sequence[Column]) -> Column:
    """(q, rows) how well each word of the query suits the best word of each row."""
    words = np.concatenate(rows)
    if words.dtype == np.uint8:
        # With bits for signs the product is twice the sum over the bits that are set, less the query's own sum.
        bits = np.unpackbits(words, axis=1, count=query.shape[1]).astype(np.float32)
        products = (2.0 * (query @ bits.T) - query.sum(1, keepdims=True)) / np.sqrt(query.shape[1])
    else:
        products = query @ words.astype(np.float32, copy=False).T
    begins = np.concatenate(([0], np.cumsum([len(one) for one in rows])[:-1]))
    return np.maximum.reduceat(products, begins, axis=1)
