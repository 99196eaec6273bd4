"""One order from all arms: a weighted sum of standard scores, then small boosts for what is new and what was used."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from perdure.search.ranking.arms import (
    DAY_S,
    Neighbours,
    dense_scores,
    length_scores,
    session_scores,
    span_scores,
    standard_scores,
    word_scores,
)
from perdure.search.ranking.pool import ANSWERS, ASKS, NO_ROLE, ROLE, SPEAKER, Column, Pool, QueryHints
from perdure.search.ranking.weights import Weights

__all__ = ["Explanation", "Ranked", "rank", "with_late"]

USES_COUNTED = 8.0  # more uses than this add little
PLAIN_COSINE = 8.0
"""So many standard deviations above its scope's mean, a cosine speaks for a row as plainly as all the query's words.

With 60 LoCoMo questions and 60 about another dialogue, told apart by `evidence` of the best five hits (area under the
curve): words alone 0.93, cosines alone 0.80, the larger of both 0.90, their mean 0.935; against small talk 0.83, 0.88,
0.81 and 0.90."""


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
        rows, near, back = _sorted(self.pool)
        words, own = np.zeros(self.pool.size), np.zeros(self.pool.size)
        if len(rows.counts):
            words = np.clip(word_scores(rows, near, self.weights, alone=True), 0.0, 1.0)
        if (dense := dense_scores(rows, near, self.weights)) is not None:
            own = dense[0]
        outstanding = np.clip(own / PLAIN_COSINE, 0.0, 1.0)
        plain = np.where(np.isfinite(rows.dense), (words + outstanding) / 2, words)
        return plain[self.order] if back is None else plain[back][self.order]

    def explain(self, row: int) -> Explanation:
        """Why row number `row` of the pool got its score."""
        pool, weights = self.pool, self.weights
        parts = {name: float(values[row]) for name, values in self._parts.items()}
        parts["length"] = weights.length * float(length_scores(pool.chars[row : row + 1])[0])
        parts["asks"] = weights.asks * float(pool.traits[ASKS, row])
        parts["answers"] = weights.answers * float(pool.traits[ANSWERS, row])
        rows, near, back = _sorted(pool)
        at = row if back is None else int(back[row])
        shared, alone = (word_scores(rows, near, weights, alone=only) for only in (False, True))
        own = parts.get("words", 0.0) * (float(alone[at] / shared[at]) if shared[at] > 0 else 1.0)
        parts = {"words": own, "neighbour_words": parts.get("words", 0.0) - own, **_without(parts, "words")}
        own_cosine = 0.0
        if (dense := dense_scores(rows, near, weights)) is not None:
            own_cosine = float(dense[0][at])
        if "dense" in parts:
            own = weights.dense * own_cosine
            parts = {**parts, "dense": own, "neighbour_dense": parts["dense"] - own}
        cosine = float(pool.dense[row])
        sessions, here, _ = session_scores(rows, near)
        return Explanation(
            score=sum(parts.values()),
            parts={name: value for name, value in parts.items() if value},
            words=float(alone[at]),
            session_words=float(sessions.repeat(here)[at]),
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
    rows, near, back = _sorted(pool)
    scope = pool.scope
    parts: dict[str, Column] = {}
    relevant = np.logical_or.reduce(rows.counts)
    score = length_scores(rows.chars)
    score *= weights.length
    score += np.float64(weights.asks) * rows.traits[ASKS]  # in 64 bits, for traits have 32
    score += np.float64(weights.answers) * rows.traits[ANSWERS]
    if len(rows.counts):
        found = word_scores(rows, near, weights)
        parts["words"] = standard_scores(found, of=scope.rows, floor=weights.floor, weight=weights.lexical)
        found, here, sessions = session_scores(rows, near)
        found = standard_scores(found, of=sessions, floor=weights.session_floor, weight=weights.session)
        parts["session"] = found.repeat(here)
    if (dense := dense_scores(rows, near, weights)) is not None:
        own, shared = dense
        parts["dense"] = weights.dense * shared
        relevant |= own > 0
    if hints.speakers:
        parts["speaker"] = weights.speaker * _any_of(rows.traits[SPEAKER], hints.speakers)
    if hints.role != NO_ROLE:
        parts["role"] = weights.role * (rows.traits[ROLE] == hints.role)
    if hints.when and rows.timed is not None:
        parts["when"] = weights.when * rows.timed
    if hints.spans:
        parts["span"] = weights.span * span_scores(rows.occurred_at, hints.spans)
    for values in parts.values():
        score += values
    relevance = np.maximum(score, 0.0)
    if weights.recency and hints.now == hints.now:
        parts["recency"] = recency = _recency(rows, hints, weights)
        recency *= relevance
        score += recency
    if weights.use and rows.uses is not None:
        parts["use"] = relevance * _use(rows.uses, weights)
        score += parts["use"]
    if back is not None:
        score, relevant = score[back], relevant[back]
        parts = {name: values[back] for name, values in parts.items()}
    order, scores = _best_first(score, pool.seq)
    return Ranked(
        order=order,
        scores=scores,
        relevant=relevant[order],
        pool=pool,
        hints=hints,
        weights=weights,
        _parts=parts,
    )


def with_late(ranked: Ranked, rows: Column, late: Column) -> Ranked:
    """The same with the first rows put in a new order by late interaction.

    Args:
        rows: the first rows of `ranked.order`, any number of them.
        late: (len(rows)) their scores from `late.late_scores`; nan: there was no time for it.
    """
    known = np.isfinite(late)
    scored = late[known]
    if len(scored) < 2 or scored.min() == scored.max():
        return ranked
    scored -= scored.mean()
    scored *= ranked.weights.late / max(math.sqrt(float(scored @ scored) / len(scored)), 1e-9)
    part = np.full(ranked.pool.size, scored.min())
    part[rows[known]] = scored
    score = np.empty(ranked.pool.size)
    score[ranked.order] = ranked.scores
    score += part
    relevant = np.empty(ranked.pool.size, bool)
    relevant[ranked.order] = ranked.relevant
    order, scores = _best_first(score, ranked.pool.seq)
    return replace(
        ranked,
        order=order,
        scores=scores,
        relevant=relevant[order],
        _parts={**ranked._parts, "late": part},
    )


def _sorted(pool: Pool) -> tuple[Pool, Neighbours, Column | None]:
    """(the pool by session and place, its neighbours, where each of its rows went; None: nowhere).

    Most pools stand in this order already.
    """
    near, back = Neighbours(pool.spot), None
    if not near.in_order:
        order = np.lexsort((pool.seq, pool.spot))
        back = np.empty(pool.size, np.int64)
        back[order] = np.arange(pool.size)
        pool = pool.select(order)
        near = Neighbours(pool.spot)
    return pool, near, back


def _best_first(score: Column, seq: Column) -> tuple[Column, Column]:
    order = np.lexsort((-seq, -score))
    return order, score[order]


def _any_of(values: Column, wanted: Sequence[int]) -> Column:
    return functools.reduce(np.logical_or, [values == one for one in wanted])


def _recency(pool: Pool, hints: QueryHints, weights: Weights) -> Column:
    """0 to `weights.recency`, halved with every `recency_days` of age."""
    halvings: Column = pool.occurred_at - hints.now
    halvings *= 1.0 / (DAY_S * weights.recency_days)
    share: Column = np.exp2(np.minimum(halvings, 0.0, out=halvings), out=halvings)
    share *= weights.recency
    return share


def _use(uses: Column, weights: Weights) -> Column:
    """0 to `weights.use`, half of it after the first eight uses."""
    share: Column = uses / (uses + USES_COUNTED)
    return weights.use * share


def _without(parts: Mapping[str, float], name: str) -> dict[str, float]:
    return {other: value for other, value in parts.items() if other != name}
