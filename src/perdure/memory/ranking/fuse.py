"""One order from all arms: a weighted sum of standard scores, then small boosts for what is new and what was used."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace

import numpy as np

from perdure.core.quick import changed
from perdure.memory.ranking.arms import (
    DAY_S,
    Neighbours,
    dense_scores,
    session_scores,
    shape_scores,
    span_scores,
    word_scores,
)
from perdure.memory.ranking.pool import NO_ROLE, Column, Pool, QueryHints
from perdure.memory.ranking.weights import Weights

__all__ = ["Explanation", "Ranked", "rank", "with_late"]

USES_COUNTED = 8.0  # more uses than this add little
PLAIN_COSINE = 8.0
"""So many standard deviations above its scope's mean, a cosine speaks for a row as plainly as all the query's words.

With 60 LoCoMo questions and 60 about another dialogue, told apart by `evidence` of the best five hits (area under the
curve): words alone 0.93, cosines alone 0.80, the larger of both 0.90, their mean 0.935; against small talk 0.83, 0.88,
0.81 and 0.90."""
BOUND = 1e6


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """Why a row stands where it stands.

    Attributes:
        score: the sum of `parts`.
        parts: name of a signal -> what it added: words, neighbour_words, session, dense, neighbour_dense, late,
            speaker, role, length, asks, answers, when, span, recency, use. Those that added nothing are left out.
        words: how much of the query's words the row itself holds, as a part of the best possible bm25; 0 to about 1.
        session_words: the same of its session.
        cosine: to the query; None: not known.
        cosine_z: in standard deviations above the scope's mean.
    """

    score: float
    parts: Mapping[str, float]
    words: float
    session_words: float
    cosine: float | None
    cosine_z: float


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Ranked:
    """The pool in order.

    Attributes:
        order: (n) rows of the pool, best first; equal scores: the newer one first.
        scores: (n) their scores, in the same order; finite, comparable within one search only.
        relevant: (n) in the same order, whether a word of the query or a cosine speaks for the row: without it the
            row is there as somebody's neighbour only.
    """

    order: Column
    scores: Column
    relevant: Column
    pool: Pool
    hints: QueryHints
    weights: Weights
    _parts: Mapping[str, Column]  # by row of the pool

    def evidence(self) -> Column:
        """(n) in the order of `order`: how plainly a row answers by itself, from 0 to 1: the share of the query's words
        (by their rarity) that it holds, and the mean of that and how far its cosine stands out, where it has one.
        Unlike scores it compares between searches.
        """
        if not self.pool.size:
            return np.zeros(0)
        rows, back = _sorted(self.pool)
        near = Neighbours(rows.session, rows.place)
        words = np.zeros(self.pool.size)
        if len(rows.counts) and rows.counts.any():
            words = np.clip(word_scores(rows, near, self.weights, alone=True)[0], 0.0, 1.0)
        outstanding = np.clip(dense_scores(rows, near, self.weights)[0] / PLAIN_COSINE, 0.0, 1.0)
        plain = np.where(np.isfinite(rows.dense), (words + outstanding) / 2, words)
        return plain[back][self.order]

    def explain(self, row: int) -> Explanation:
        """Why row number `row` of the pool got its score."""
        pool, weights = self.pool, self.weights
        parts = {name: float(values[row]) for name, values in self._parts.items()}
        sorted_rows, back = _sorted(pool)
        near = Neighbours(sorted_rows.session, sorted_rows.place)
        at = int(back[row])
        shared, alone = (word_scores(sorted_rows, near, weights, alone=only)[0] for only in (False, True))
        own = parts.get("words", 0.0) * (float(alone[at] / shared[at]) if shared[at] > 0 else 1.0)
        parts = {"words": own, "neighbour_words": parts.get("words", 0.0) - own, **_without(parts, "words")}
        own_cosine = float(dense_scores(sorted_rows, near, weights)[0][at])
        if "dense" in parts:
            own = weights.dense * own_cosine
            parts = {**parts, "dense": own, "neighbour_dense": parts["dense"] - own}
        cosine = float(pool.dense[row])
        return Explanation(
            score=sum(parts.values()),
            parts={name: value for name, value in parts.items() if value},
            words=float(alone[at]),
            session_words=float(session_scores(sorted_rows, weights)[0][at]),
            cosine=cosine if np.isfinite(cosine) else None,
            cosine_z=own_cosine,
        )


def rank(pool: Pool, hints: QueryHints, weights: Weights) -> Ranked:
    """The rows of the pool, best first. The order of rows and of clauses given does not matter.

    An arm that says the same of every row changes nothing, and one that is missing (no clauses; cosines all nan) is
    left out. Scores are finite for any input.

    Source: sum of normalised scores after Fox and Shaw, TREC-2, 1994.
    """
    if not pool.size:
        none = np.zeros(0, np.int64)
        return Ranked(
            order=none, scores=np.zeros(0), relevant=none > 0, pool=pool, hints=hints, weights=weights, _parts={}
        )
    rows, back = _sorted(pool)
    near = Neighbours(rows.session, rows.place)
    parts: dict[str, Column] = {}
    if len(rows.counts) and rows.counts.any():
        parts["words"] = weights.lexical * word_scores(rows, near, weights)[1]
        parts["session"] = weights.session * session_scores(rows, weights)[1]
    own, shared = dense_scores(rows, near, weights)
    parts["dense"] = weights.dense * shared
    if hints.speakers:
        parts["speaker"] = weights.speaker * functools.reduce(
            np.logical_or, (rows.speaker == n for n in hints.speakers)
        )
    if hints.role != NO_ROLE:
        parts["role"] = weights.role * (rows.role == hints.role)
    if weights.length:
        parts["length"] = weights.length * shape_scores(rows)
    if weights.asks:
        parts["asks"] = weights.asks * rows.asks.astype(bool)
    if weights.answers:
        parts["answers"] = weights.answers * rows.after_question.astype(bool)
    if hints.when:
        parts["when"] = weights.when * rows.timed.astype(bool)
    if hints.spans:
        parts["span"] = weights.span * span_scores(rows.occurred_at, hints.spans)
    score = np.zeros(pool.size)
    for values in parts.values():
        score += values
    relevance = np.maximum(score, 0.0)
    if weights.recency and hints.now == hints.now:
        parts["recency"] = relevance * _recency(rows, hints, weights)
        score = score + parts["recency"]
    if weights.use and rows.uses.any():
        parts["use"] = relevance * _use(rows, weights)
        score = score + parts["use"]
    relevant = (rows.counts.any(0) if len(rows.counts) else np.zeros(pool.size, bool)) | (own > 0)
    order = np.lexsort((-pool.seq, -score[back]))
    return Ranked(
        order=order,
        scores=score[back][order],
        relevant=relevant[back][order],
        pool=pool,
        hints=hints,
        weights=weights,
        _parts={name: values[back] for name, values in parts.items()},
    )


def with_late(ranked: Ranked, rows: Column, late: Column) -> Ranked:
    """The same with the first rows put in a new order by late interaction.

    Args:
        rows: the first rows of `ranked.order`, any number of them.
        late: (len(rows)) their scores from `late.late_scores`; nan: there was no time for it.
    """
    known = np.isfinite(late)
    if known.sum() < 2 or np.ptp(late[known]) == 0:
        return ranked
    scored = late[known]
    standard = (scored - scored.mean()) / max(float(scored.std()), 1e-9)
    part = np.full(ranked.pool.size, ranked.weights.late * float(standard.min()))
    part[rows[known]] = ranked.weights.late * standard
    score = np.empty(ranked.pool.size)
    score[ranked.order] = ranked.scores
    score += part
    relevant = np.empty(ranked.pool.size, bool)
    relevant[ranked.order] = ranked.relevant
    order = np.lexsort((-ranked.pool.seq, -score))
    return replace(
        ranked,
        order=order,
        scores=score[order],
        relevant=relevant[order],
        _parts={**ranked._parts, "late": part},
    )


def _sorted(pool: Pool) -> tuple[Pool, Column]:
    """(the pool by session and place with finite numbers, where each of its rows went)."""
    order = np.lexsort((pool.seq, pool.place, pool.session))
    places = np.arange(pool.size)
    if np.array_equal(order, places):
        return changed(pool, counts=_bounded(pool.counts), chars=_bounded(pool.chars)), places
    back = np.empty(pool.size, np.int64)
    back[order] = places
    columns = {name: getattr(pool, name)[..., order] for name in _COLUMNS}
    for name in ("counts", "chars"):
        columns[name] = _bounded(columns[name])
    return changed(pool, **columns), back


_COLUMNS = tuple(field.name for field in fields(Pool) if field.name != "scope")


def _recency(pool: Pool, hints: QueryHints, weights: Weights) -> Column:
    """0 to `weights.recency`, halved with every `recency_days` of age."""
    days: Column = np.maximum(hints.now - pool.occurred_at, 0.0) / DAY_S
    return weights.recency * _bounded(np.exp2(-days / weights.recency_days))


def _use(pool: Pool, weights: Weights) -> Column:
    """0 to `weights.use`, half of it after the first eight uses."""
    uses = _bounded(pool.uses)
    share: Column = uses / (uses + USES_COUNTED)
    return weights.use * share


def _bounded(values: Column) -> Column:
    """The values from 0 to a million; what is not a number is 0."""
    bounded: Column = np.fmin(np.fmax(values, 0.0), BOUND)
    return bounded


def _without(parts: Mapping[str, float], name: str) -> dict[str, float]:
    return {other: value for other, value in parts.items() if other != name}
