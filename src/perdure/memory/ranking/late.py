"""Late interaction: every word of the query finds its best word in a row, by the embedder's own word vectors."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from perdure.memory.ranking.pool import Column

__all__ = ["late_scores"]

ROWS_AT_ONCE = 16


def late_scores(
    query_words: Column,
    row_words: Sequence[Column],
    *,
    out_of_time: Callable[[], bool] = lambda: False,
) -> Column:
    """(n) one score per row; nan for rows that were not reached before the time was up, the first rows first.

    Args:
        query_words: (q, d) unit vectors, one for each word piece of the query.
        row_words: n arrays (w, d) of unit vectors; float32 is fastest.
        out_of_time: asked between batches of 16 rows.

    Each query word's mean over the rows is taken off, so that words which suit every row count for little, and a
    query word weighs as much as its best match.

    Source: Khattab and Zaharia, ColBERT, SIGIR 2020, here with the vectors of a sentence model as it is.
    """
    scores = np.full(len(row_words), np.nan)
    if not len(query_words):
        return scores
    query = np.asarray(query_words, np.float32)
    done: list[Column] = []
    reached: list[int] = []
    for start in range(0, len(row_words), ROWS_AT_ONCE):
        if out_of_time():
            break
        some = [at for at in range(start, min(start + ROWS_AT_ONCE, len(row_words))) if len(row_words[at])]
        if not some:
            continue
        words = np.concatenate([row_words[at] for at in some]).astype(np.float32, copy=False)
        begins = np.concatenate(([0], np.cumsum([len(row_words[at]) for at in some])[:-1]))
        done.append(np.maximum.reduceat(query @ words.T, begins, axis=1))
        reached.extend(some)
    if not reached:
        return scores
    best = np.concatenate(done, axis=1)
    best = best - best.mean(1, keepdims=True)
    weight = np.maximum(best.max(1), 0.0)
    scores[reached] = weight @ best / max(float(weight.sum()), 1e-6)
    return scores
