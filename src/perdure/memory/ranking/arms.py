"""The arms of a search: what words, sessions, vectors and the shape of a row say, as standard scores.

Rows stand in the order of `Neighbours`: by session and place, so that the row beside another is its neighbour or
nobody's.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from perdure.memory.ranking.pool import Column, Pool
from perdure.memory.ranking.weights import Weights

__all__ = ["Neighbours", "dense_scores", "session_scores", "shape_scores", "span_scores", "word_scores"]

NO_SPREAD = 1e-9
LARGEST = 20.0  # standard deviations
TYPICAL_CHARS = 150.0
TYPICAL_SPREAD = 0.6
"""Median and standard deviation (of the logarithm) of chat messages' lengths."""

DAY_S = 86_400.0
AFTER_SPAN_S = 7 * DAY_S
"""Things are told of when they happen and in the days that follow."""


@dataclass(frozen=True, slots=True, eq=False)
class Neighbours:
    """The rows that stand next to each other, among rows sorted by session and place."""

    session: Column
    place: Column
    _known: dict[int, Column] = field(default_factory=dict)
    _nearest: list[float] = field(default_factory=list)

    def pairs(self, step: int) -> Column:
        """(n - step) whether row i + step stands `step` places after row i in one session."""
        if step not in self._known:
            self._known[step] = self._pairs(step)
        return self._known[step]

    def _pairs(self, step: int) -> Column:
        beside: Column = self.place[step:] - self.place[:-step] == step
        together: Column = self.session[step:] == self.session[:-step]
        return np.logical_and(beside, together)

    def _any(self, steps: int) -> bool:
        """Whether any two rows may stand at most so many places from each other in one session."""
        if not self._nearest:
            apart = self.place[1:] - self.place[:-1]
            together = apart[self.session[1:] == self.session[:-1]]
            self._nearest.append(float(together.min()) if len(together) else math.inf)
        return self._nearest[0] <= steps

    def shared(self, values: Column, before: Sequence[float], after: Sequence[float]) -> Column:
        """`values` (..., n) plus the given shares of the rows 1, 2, ... before and after."""
        total = values.copy()
        steps = max(len(before), len(after))
        if not self._any(steps):
            return total
        for step in range(1, steps + 1):
            if step >= values.shape[-1]:
                break
            pairs = self.pairs(step)
            if not pairs.any():
                continue
            if step <= len(before):
                total[..., step:] += before[step - 1] * values[..., :-step] * pairs
            if step <= len(after):
                total[..., :-step] += after[step - 1] * values[..., step:] * pairs
        return total


def word_scores(pool: Pool, near: Neighbours, weights: Weights, *, alone: bool = False) -> tuple[Column, Column]:
    """(raw, standard) bm25 of each row; words of its neighbours count in part, unless it is taken `alone`.

    Raw scores are parts of the best possible one, 0 to about 1. The scope's rows that are not in the pool score 0.

    Source: Robertson and Walker, SIGIR 1994; sharing counts before saturation as in BM25F (CIKM 2004).
    """
    rarity = _rarity(_rows_with(pool), pool.scope.rows)
    counts = pool.counts if alone else near.shared(pool.counts, weights.before, weights.after)
    length = 1 - weights.length_share + weights.length_share * pool.chars / _mean_chars(pool)
    raw = rarity @ (counts * (weights.k1 + 1) / (counts + weights.k1 * np.maximum(length, 0.1)))
    raw = raw / max(float(rarity.sum()), NO_SPREAD)
    return raw, raw if alone else _standard(raw, raw, pool.scope.rows, weights.floor)


def session_scores(pool: Pool, weights: Weights) -> tuple[Column, Column]:
    """(raw, standard) bm25 of the session that each row stands in, from the rows of it that hold any clause."""
    begins = np.ones(pool.size, np.bool_)
    np.not_equal(pool.session[1:], pool.session[:-1], out=begins[1:])
    (first,) = begins.nonzero()
    sizes = np.empty(len(first), np.int64)
    np.subtract(first[1:], first[:-1], out=sizes[:-1])
    sizes[-1] = pool.size - first[-1]
    sessions = max(pool.scope.sessions, len(first))
    counts = np.add.reduceat(pool.counts, first, axis=1)
    rarity = _rarity((counts > 0).sum(1), sessions)
    rows = np.maximum(pool.session_rows[first].astype(float), 1.0)
    length = 0.25 + 0.75 * rows * sessions / max(pool.scope.rows, 1)
    raw = rarity @ (counts * 3.0 / (counts + 2.0 * length)) / max(float(rarity.sum()), NO_SPREAD)
    return raw.repeat(sizes), _standard(raw, raw, sessions, weights.session_floor).repeat(sizes)


def dense_scores(pool: Pool, near: Neighbours, weights: Weights) -> tuple[Column, Column]:
    """(own, shared) standard scores of the cosines, alone and with the neighbours' share; what is not known is mean."""
    known = np.isfinite(pool.dense)
    cosines = np.minimum(np.maximum(np.where(known, pool.dense, 0.0), -1.0), 1.0)
    there = cosines[known]
    if not len(there) or there.min() == there.max():  # the same for all says nothing
        return np.zeros(pool.size), np.zeros(pool.size)
    mean, spread = pool.scope.dense_mean, pool.scope.dense_std
    if not (0 < spread <= 2 and -1 <= mean <= 1):
        mean, spread = float(there.mean()), float(there.std())
    standard = (cosines - mean) / max(spread, NO_SPREAD)
    own = np.where(known, np.minimum(np.maximum(standard, -LARGEST), LARGEST), 0.0)
    return own, near.shared(own, weights.dense_before, weights.dense_after)


def shape_scores(pool: Pool) -> Column:
    """How much longer than usual a row is, in standard deviations of the logarithm, at most 3."""
    longer: Column = (np.log1p(np.maximum(pool.chars, 0.0)) - math.log(TYPICAL_CHARS)) / TYPICAL_SPREAD
    return np.minimum(np.maximum(longer, -3.0), 3.0)


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


def _rows_with(pool: Pool) -> Column:
    given = pool.scope.clause_rows
    return (pool.counts >= 1).sum(1) if given is None else given


def _rarity(having: Column, of: int) -> Column:
    rows = np.maximum(float(of), having)
    return np.log1p((rows - having + 0.5) / (having + 0.5))


def _standard(values: Column, present: Column, of: int, floor: float) -> Column:
    """Standard scores where `present` are all that differ from 0 among `of` values."""
    total = max(of, len(present))
    mean = float(present.sum()) / total
    spread = math.sqrt(max(float(present @ present) / total - mean * mean, 0.0))
    return (values - mean) / max(spread, floor)
