"""The arms of a search: the score of each row by words, sessions, vectors, lengths and times.

Rows are sorted by session and place, so that neighbours stand side by side.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence

import numpy as np

from perdure.search.ranking.pool import SESSION_SPAN, Column, Pool
from perdure.search.ranking.weights import Weights

NO_SPREAD = 1e-9
FARTHEST = 3  # the distance up to which rows share, in places
LARGEST = 20.0  # the largest standard score

LENGTH_MAX = 3.0
TYPICAL_CHARS = 150.0
TYPICAL_SPREAD = 0.6
"""Median and standard deviation (of the logarithm) of chat messages' lengths."""

DAY_S = 86_400.0
AFTER_SPAN_S = 7 * DAY_S
"""People speak of an event on its day and in the days after it."""


class Neighbours:
    """Finds which rows are neighbours: next to each other in the same session. A run is a chain of neighbours.

    Args:
        spot: (n) session and place of each row, see `Pool.spot`.
    Attributes:
        in_order: whether the rows are sorted by session and place, without duplicates. If False, use nothing else.
    """

    def __init__(self, spot: Column) -> None:
        self._steps: Column = spot[1:] - spot[:-1]
        self.in_order = not len(self._steps) or int(np.minimum.reduce(self._steps)) > 0
        self._apart: Column | None = None

    def firsts(self) -> tuple[Column, Column]:
        """Return (the first row of each session, the number of its rows in the pool)."""
        size = len(self._steps) + 1
        (last,) = (self._steps >= SESSION_SPAN // 2).nonzero()
        first, pool_sizes = np.zeros(len(last) + 1, np.int64), np.empty(len(last) + 1, np.int64)
        np.add(last, 1, out=first[1:])
        np.subtract(first[1:], first[:-1], out=pool_sizes[:-1])
        pool_sizes[-1] = size - first[-1]
        return first, pool_sizes

    def share(self, values: Column, before: Sequence[float], after: Sequence[float]) -> Column:
        """Add to `values`, (n) or (k, n), a share of the values 1, 2 or 3 rows before and after, within one run."""
        if not values.size:
            return values
        if self._apart is None:
            self._apart = np.zeros(len(self._steps) + 1, np.int64)
            np.add.accumulate(np.where(self._steps == 1, 1, FARTHEST + 1), out=self._apart[1:])
        apart = self._apart
        # Zeros between runs and between clauses let one correlation do for all.
        spread = np.zeros((*values.shape[:-1], int(apart[-1]) + 2 * FARTHEST + 1))
        spread[..., apart] = values
        total = np.correlate(spread.ravel(), _shares(tuple(before), tuple(after)), "same")
        return total.reshape(spread.shape).take(apart, axis=-1)


@functools.lru_cache(maxsize=64)
def _shares(before: tuple[float, ...], after: tuple[float, ...]) -> Column:
    """Return (7) the shares of the rows from three before to three after."""
    none = (0.0,) * FARTHEST
    return np.array([*(*before, *none)[:FARTHEST][::-1], 1.0, *(*after, *none)[:FARTHEST]])


def word_scores(pool: Pool, near: Neighbours, weights: Weights, *, alone: bool = False) -> Column:
    """Return (n) the bm25 of each row as a share of the best possible score, 0 to about 1.

    Words of its neighbours count in part, and related words, unless `alone`.

    Source: Robertson and Walker, SIGIR 1994; sharing counts before saturation as in BM25F (CIKM 2004).
    """
    k1, share = weights.k1, weights.length_share
    clause_rows = pool.scope.clause_rows
    if clause_rows is None:
        clause_rows = np.add.reduce(pool.counts >= 1, axis=1).tolist()
    rarity = _rarity(clause_rows, pool.scope.rows)
    counts = pool.counts if alone else near.share(pool.counts, weights.before, weights.after)
    if pool.related is not None and not alone:
        counts = np.maximum(counts, weights.related * pool.related)
    mean = pool.scope.mean_chars
    length = pool.chars * (k1 * share / (float(mean) if 1.0 <= mean < np.inf else 1.0))  # 1: it is unknown
    length += max(k1 * (1 - share), NO_SPREAD)
    return _weighted_mean(rarity, counts, length, most=k1 + 1)


def session_scores(pool: Pool, near: Neighbours, weights: Weights) -> tuple[Column, Column, int]:
    """Return (bm25 of each session by its rows with any clause, its rows in the pool, the number of sessions)."""
    first, pool_sizes = near.firsts()
    session_count = max(pool.scope.sessions, len(first))
    counts = pool.counts if pool.related is None else np.maximum(pool.counts, weights.related * pool.related)
    counts = np.add.reduceat(counts, first, axis=1)
    rarity = _rarity(np.add.reduce(counts > 0, axis=1).tolist(), session_count)
    length = _session_rows(pool, first) * (2.0 * 0.75 * session_count / max(pool.scope.rows, 1))
    length += 2.0 * 0.25
    return _weighted_mean(rarity, counts, length, most=3.0), pool_sizes, session_count


def dense_scores(pool: Pool, near: Neighbours, weights: Weights) -> tuple[Column, Column] | None:
    """Return (own, shared) standard scores of the cosines: alone, and with the neighbours' share. A row without a
    cosine has the mean. None if no cosine is known, or all are equal."""
    cosines, known = pool.dense, None
    low, high = float(np.minimum.reduce(cosines)), float(np.maximum.reduce(cosines))
    if not -1.0 <= low <= high <= 1.0:
        known = np.isfinite(cosines)
        present = cosines[known]
        if not len(present):
            return None
        present = np.minimum(np.maximum(present, -1.0), 1.0)
        low, high = float(present.min()), float(present.max())
        cosines = np.minimum(np.maximum(np.where(known, cosines, 0.0), -1.0), 1.0)
    if low == high:
        return None
    mean, spread = pool.scope.dense_mean, pool.scope.dense_std
    if not (0 < spread <= 2 and -1 <= mean <= 1):
        present = cosines if known is None else cosines[known]
        mean, spread = float(present.mean()), float(present.std())
    spread = max(spread, NO_SPREAD)
    own = cosines - mean
    own /= spread
    if (high - mean) > LARGEST * spread or (mean - low) > LARGEST * spread:
        own = np.minimum(np.maximum(own, -LARGEST), LARGEST)
    if known is not None:
        own = np.where(known, own, 0.0)
    return own, near.share(own, weights.dense_before, weights.dense_after)


def length_scores(chars: Column) -> Column:
    """Return how much longer than usual each row is, in standard deviations of the logarithm, at most 3."""
    longer: Column = np.log1p(chars)
    longer -= math.log(TYPICAL_CHARS)
    longer /= TYPICAL_SPREAD
    return np.minimum(np.maximum(longer, -LENGTH_MAX, out=longer), LENGTH_MAX, out=longer)


def span_scores(occurred_at: Column, spans: Sequence[tuple[float, float]]) -> Column:
    """Return 1 for a row from within a span, falling to 0 over the week after it; the best of several spans."""
    best = np.zeros(len(occurred_at))
    for start, end in spans:
        late = np.maximum(occurred_at - end, 0.0) / AFTER_SPAN_S
        best = np.maximum(best, np.where(occurred_at >= start, np.clip(1.0 - late, 0.0, 1.0), 0.0))
    return best


def standard_scores(values: Column, *, of: int, floor: float, weight: float) -> Column:
    """Return `weight` times the standard scores of `values`.

    Args:
        of: how many scores there are; those that are not in `values` are 0.
        floor: the least standard deviation to divide by.
    """
    total = max(of, len(values))
    mean = float(np.add.reduce(values)) / total
    spread = math.sqrt(max(float(values @ values) / total - mean * mean, 0.0))
    scores: Column = values - mean
    scores *= weight / max(spread, floor)
    return scores


def _session_rows(pool: Pool, first: Column) -> Column:
    """Return how many rows of the whole scope the sessions have that begin at these rows."""
    sizes = pool.scope.session_rows
    if sizes is None or not len(sizes):
        return np.ones(len(first))
    sessions = pool.spot[first] // SESSION_SPAN
    if sessions[0] >= 0:  # sessions ascend
        return sizes.take(sessions)
    return np.where(sessions < 0, 1, sizes[np.maximum(sessions, 0)])


def _rarity(clause_rows: Sequence[float], row_count: int) -> list[float]:
    """Return the inverse document frequency of each clause, by in how many of all rows it stands."""
    return [math.log1p((max(float(row_count), rows) - rows + 0.5) / (rows + 0.5)) for rows in clause_rows]


def _weighted_mean(rarity: Sequence[float], counts: Column, length: Column, *, most: float) -> Column:
    """Return (n) the mean of the saturated `counts` (k, n) over the clauses, weighted by their rarity. A count
    saturates between 0 and `most`, more slowly for a larger `length` (n)."""
    saturated = counts + length
    np.divide(counts, saturated, out=saturated)
    share = most / max(sum(rarity), NO_SPREAD)
    mean_counts: Column = np.array([share * one for one in rarity]) @ saturated
    return mean_counts
