"""The arms of a search: what words, sessions, vectors and the shape of a row say, as standard scores.

Rows stand in the order of `Neighbours`: by session and place, so that the row beside another is its neighbour or
nobody's.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from perdure.memory.ranking.pool import Column, Pool
from perdure.memory.ranking.weights import Weights

__all__ = ["Neighbours", "dense_scores", "session_scores", "shape_scores", "span_scores", "word_scores"]

NO_SPREAD = 1e-9
FARTHEST = 3  # places between a row and one that shares with it
LARGEST = 20.0  # standard deviations
TYPICAL_CHARS = 150.0
TYPICAL_SPREAD = 0.6
"""Median and standard deviation (of the logarithm) of chat messages' lengths."""

DAY_S = 86_400.0
AFTER_SPAN_S = 7 * DAY_S
"""Things are told of when they happen and in the days that follow."""


class Neighbours:
    """Which rows stand next to each other, among rows by session and place: runs of them, one place apart.

    Attributes:
        in_order: whether the rows are by session and place, and no place is taken twice; if not, the rest is wrong.
        begins: (n) whether the row is the first of its session here.
    """

    def __init__(self, session: Column, place: Column) -> None:
        self.begins = np.ones(len(session), np.bool_)
        others = np.not_equal(session[1:], session[:-1], out=self.begins[1:])
        self.in_order = bool(np.where(others, session[1:] > session[:-1], place[1:] > place[:-1]).all())
        self._ends: Column = (place[1:] - place[:-1] != 1) | others
        self._apart: Column | None = None

    def shared(self, values: Column, before: Sequence[float], after: Sequence[float]) -> Column:
        """`values` (n) or (k, n) plus shares of the rows 1, 2, ... before and after, three at most, in one run."""
        if not values.size or self._ends.all():
            return values
        if self._apart is None:
            self._apart = np.arange(len(self.begins))
            self._apart[1:] += np.add.accumulate(self._ends * FARTHEST)
        # With zeros between the runs, and behind the last, one pass over all rows of all clauses does.
        shape = (*values.shape[:-1], int(self._apart[-1]) + 1 + FARTHEST)
        spread = np.zeros(shape)
        spread[..., self._apart] = values
        shares = (*after[::-1], 1.0, *before)
        total = np.convolve(spread.ravel(), shares)[len(after) : len(after) + spread.size]
        return total.reshape(shape).take(self._apart, axis=-1)


def word_scores(pool: Pool, near: Neighbours, weights: Weights, *, alone: bool = False) -> tuple[Column, Column]:
    """(raw, standard) bm25 of each row; words of its neighbours count in part, unless it is taken `alone`.

    Raw scores are parts of the best possible one, 0 to about 1. The scope's rows that are not in the pool score 0.

    Source: Robertson and Walker, SIGIR 1994; sharing counts before saturation as in BM25F (CIKM 2004).
    """
    k1, share = weights.k1, weights.length_share
    having = pool.scope.clause_rows
    if having is None:
        having = np.add.reduce(pool.counts >= 1, axis=1)
    rarity = _rarity(having, pool.scope.rows)
    counts = pool.counts if alone else near.shared(pool.counts, weights.before, weights.after)
    length = pool.chars * (k1 * share / _mean_chars(pool))
    length += k1 * (1 - share)
    raw = _weighed(rarity, counts, np.maximum(length, k1 * 0.1, out=length), most=k1 + 1)
    return raw, raw if alone else _standard(raw, pool.scope.rows, weights.floor)


def session_scores(pool: Pool, near: Neighbours, weights: Weights) -> tuple[Column, Column, Column]:
    """(raw, standard, rows) of each session: bm25 from the rows of it that hold any clause; how many stand here."""
    (first,) = near.begins.nonzero()
    rows = np.empty(len(first), np.int64)
    np.subtract(first[1:], first[:-1], out=rows[:-1])
    rows[-1] = pool.size - first[-1]
    sessions = max(pool.scope.sessions, len(first))
    counts = np.add.reduceat(pool.counts, first, axis=1)
    rarity = _rarity(np.add.reduce(counts > 0, axis=1), sessions)
    length = np.maximum(pool.session_rows[first], 1.0)
    length *= 2.0 * 0.75 * sessions / max(pool.scope.rows, 1)
    length += 2.0 * 0.25
    raw = _weighed(rarity, counts, length, most=3.0)
    return raw, _standard(raw, sessions, weights.session_floor), rows


def dense_scores(pool: Pool, near: Neighbours, weights: Weights) -> tuple[Column, Column] | None:
    """(own, shared) standard scores of the cosines, alone and with the neighbours' share; what is not known is mean.

    None: nothing is known, or all are equal, which says nothing.
    """
    cosines, known = pool.dense, None
    low, high = float(np.minimum.reduce(cosines)), float(np.maximum.reduce(cosines))
    if not -1.0 <= low <= high <= 1.0:
        known = np.isfinite(cosines)
        there = cosines[known]
        if not len(there):
            return None
        there = np.minimum(np.maximum(there, -1.0), 1.0)
        low, high = float(there.min()), float(there.max())
        cosines = np.minimum(np.maximum(np.where(known, cosines, 0.0), -1.0), 1.0)
    if low == high:
        return None
    mean, spread = pool.scope.dense_mean, pool.scope.dense_std
    if not (0 < spread <= 2 and -1 <= mean <= 1):
        there = cosines if known is None else cosines[known]
        mean, spread = float(there.mean()), float(there.std())
    spread = max(spread, NO_SPREAD)
    own = cosines - mean
    own /= spread
    if (high - mean) > LARGEST * spread or (mean - low) > LARGEST * spread:
        own = np.minimum(np.maximum(own, -LARGEST), LARGEST)
    if known is not None:
        own = np.where(known, own, 0.0)
    return own, near.shared(own, weights.dense_before, weights.dense_after)


def shape_scores(pool: Pool) -> Column:
    """How much longer than usual a row is, in standard deviations of the logarithm, at most 3."""
    longer: Column = np.log1p(pool.chars)
    longer -= math.log(TYPICAL_CHARS)
    longer /= TYPICAL_SPREAD
    return np.minimum(np.maximum(longer, -3.0, out=longer), 3.0, out=longer)


def span_scores(occurred_at: Column, spans: Sequence[tuple[float, float]]) -> Column:
    """1 for a row from within a span, falling to 0 over the week that follows it; the best of several spans."""
    best = np.zeros(len(occurred_at))
    for start, end in spans:
        late = np.maximum(occurred_at - end, 0.0) / AFTER_SPAN_S
        best = np.maximum(best, np.where(occurred_at >= start, np.clip(1.0 - late, 0.0, 1.0), 0.0))
    return best


def _mean_chars(pool: Pool) -> float:
    mean = pool.scope.mean_chars
    return float(mean) if 1.0 <= mean < np.inf else 1.0


def _rarity(having: Column, of: int) -> list[float]:
    """How rare each clause is; a query has few, which are done sooner one by one than as a column."""
    return [math.log1p((max(float(of), rows) - rows + 0.5) / (rows + 0.5)) for rows in having.tolist()]


def _weighed(rarity: Sequence[float], counts: Column, length: Column, *, most: float) -> Column:
    """(n) the mean over the clauses, by their rarity, of `counts` (k, n), each between 0 and `most`, which a count
    comes the later to the larger `length` (n) is."""
    saturated = counts + length
    np.divide(counts, saturated, out=saturated)
    share = most / max(sum(rarity), NO_SPREAD)
    weighed: Column = np.array([share * one for one in rarity]) @ saturated
    return weighed


def _standard(values: Column, of: int, floor: float) -> Column:
    """Standard scores where the values given are all that differ from 0 among `of`."""
    total = max(of, len(values))
    mean = float(np.add.reduce(values)) / total
    spread = math.sqrt(max(float(values @ values) / total - mean * mean, 0.0))
    standard: Column = values - mean
    standard /= max(spread, floor)
    return standard
