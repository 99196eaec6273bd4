"""Rank rows by a weighted sum of the arms' standard scores, with small boosts for new and used rows."""

from __future__ import annotations

import math
import re
from collections import Counter
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
from perdure.search.ranking.hits import Why
from perdure.search.ranking.pool import ANSWERS, ASKS, NO_ROLE, ROLE, SPEAKER, Column, Pool, QueryHints
from perdure.search.ranking.weights import Weights

USES_COUNTED = 8.0  # they gain half of the weight; more add little
PLAIN_COSINE = 8.0
"""A cosine of so many standard deviations above its scope's mean is as much evidence as all the query's words.

With 60 LoCoMo questions and 60 about another dialogue, separated by `evidence` of the best five hits (area under the
curve): words alone 0.93, cosines alone 0.80, the larger of both 0.90, their mean 0.935; against small talk 0.83, 0.88,
0.81 and 0.90."""
ALIKE = 0.9
"""Two texts are near-duplicates when they share this part of their words; in real dialogue hardly any two do."""
COMPARED_CHARS = 2_000
SMALL_PAGE = 20  # so many texts are compared all with all; in longer pages, each with those that share a rare word
FEWEST_WORDS = 8  # shorter texts must be equal: one word more is a tenth of them
_WORDS = re.compile(r"""\w+|(?<!\w)-(?=\d)|[^\w\s.,;:!?'"`*()\[\]{}…–—\-·¿¡«»，。、；：！？“”‘’（）【】《》「」『』]""")
"""Words, and signs that are no punctuation: "C" and "C#" are two things, and so are "a < b" and "a > b"."""
_ADDABLE = re.compile(
    r"(?!(?:not?|never|none|nothing|nobody|neither|nor|without|cannot|t|nicht|keine?|nie|pas|jamais|non)$)[^\W\d]+"
)
"""A word that a longer form of a text may have: no number, sign or denial ("can't" is "can" and "t")."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Ranking:
    """The rows of a pool in order.

    Attributes:
        order: (n) rows of the pool, best first; equal scores: the newer one first.
        scores: (n) their scores, in the same order; finite, comparable within one search only.
        relevant: (n) in the same order, whether the row itself has a word of the query or a high cosine; other rows
            are only neighbours.
    """

    order: Column
    scores: Column
    relevant: Column
    pool: Pool
    hints: QueryHints
    weights: Weights
    _parts: Mapping[str, Column]  # by row of the pool

    def evidence(self) -> Column:
        """Return (n) in the order of `order`: the evidence of each row by itself, from 0 to 1.

        It is the share of the query's words in the row, weighted by rarity; with a vector, the mean of that share and
        of how far the cosine stands out. Unlike scores it compares between searches.
        """
        if not self.pool.size:
            return np.zeros(0)
        rows, near, back = _sort_by_session(self.pool)
        words, own = np.zeros(self.pool.size), np.zeros(self.pool.size)
        if len(rows.counts):
            words = np.clip(word_scores(rows, near, self.weights, alone=True), 0.0, 1.0)
        if (dense := dense_scores(rows, near, self.weights)) is not None:
            own = dense[0]
        dense_share = np.clip(own / PLAIN_COSINE, 0.0, 1.0)
        plain = np.where(np.isfinite(rows.dense), (words + dense_share) / 2, words)
        return plain[self.order] if back is None else plain[back][self.order]

    def explain(self, row: int) -> Why:
        """Explain the score of row number `row` of the pool; the ids of other hits are left empty."""
        pool, weights = self.pool, self.weights
        parts = {name: float(values[row]) for name, values in self._parts.items()}
        parts["asks"] = weights.asks * float(pool.traits[ASKS, row])
        parts["answers"] = weights.answers * float(pool.traits[ANSWERS, row])
        rows, near, back = _sort_by_session(pool)
        at = row if back is None else int(back[row])
        alone = word_scores(rows, near, weights, alone=True)
        with_neighbours = word_scores(replace(rows, related=None), near, weights)
        whole, score = word_scores(rows, near, weights)[at], parts.pop("words", 0.0)
        own, exact = (score * (float(one[at] / whole) if whole > 0 else 1.0) for one in (alone, with_neighbours))
        parts = {"words": own, "neighbour_words": exact - own, "related_words": score - exact, **parts}
        own_cosine = 0.0
        if (dense := dense_scores(rows, near, weights)) is not None:
            own_cosine = float(dense[0][at])
        if "dense" in parts:
            own = weights.dense * own_cosine
            parts = {**parts, "dense": own, "neighbour_dense": parts["dense"] - own}
        cosine = float(pool.dense[row])
        sessions, session_sizes, _ = session_scores(rows, near, weights)
        return Why(
            score=sum(parts.values()),
            parts={name: value for name, value in parts.items() if value},
            words=float(alone[at]),
            session_words=float(sessions.repeat(session_sizes)[at]),
            cosine=cosine if np.isfinite(cosine) else None,
        )


def rank(pool: Pool, hints: QueryHints, weights: Weights) -> Ranking:
    """Rank the rows of the pool, best first; the result does not depend on the order of rows and clauses.

    An arm with the same score for every row changes nothing; a missing one (no clauses; cosines all nan) is left out.
    Scores are finite for any input.

    Source: sum of normalised scores after Fox and Shaw, TREC-2, 1994.
    """
    if not pool.size:
        none = np.zeros(0, np.int64)
        return Ranking(
            order=none, scores=np.zeros(0), relevant=none > 0, pool=pool, hints=hints, weights=weights, _parts={}
        )
    rows, near, back = _sort_by_session(pool)
    scope = pool.scope
    parts: dict[str, Column] = {}
    relevant = np.logical_or.reduce(rows.counts)
    score = np.float64(weights.asks) * rows.traits[ASKS]  # in 64 bits, for traits have 32
    score += np.float64(weights.answers) * rows.traits[ANSWERS]
    if len(rows.counts):
        raw = word_scores(rows, near, weights)
        parts["words"] = standard_scores(raw, of=scope.rows, floor=weights.floor, weight=weights.lexical)
        raw, session_sizes, sessions = session_scores(rows, near, weights)
        raw = standard_scores(raw, of=sessions, floor=weights.session_floor, weight=weights.session)
        parts["session"] = raw.repeat(session_sizes)
    if (dense := dense_scores(rows, near, weights)) is not None:
        own, with_neighbours = dense
        parts["dense"] = weights.dense * with_neighbours
        relevant |= own > 0
    if hints.speakers:
        parts["speaker"] = weights.speaker * np.isin(rows.traits[SPEAKER], hints.speakers)
    if hints.role != NO_ROLE:
        parts["role"] = weights.role * (rows.traits[ROLE] == hints.role)
    if hints.asked and rows.asked is not None:
        name, weight = ("when", weights.when) if hints.asked == "time" else ("name", weights.name)
        parts[name] = weight * rows.asked
    if hints.spans:
        parts["span"] = weights.span * span_scores(rows.occurred_at, hints.spans)
    for values in parts.values():
        score += values
    plain = score
    parts["length"] = weights.length * length_scores(rows.chars)
    score = plain + parts["length"]
    if weights.first_person and rows.first_person is not None:
        # A text that waits for its vector must not fall behind for what it lacks meanwhile.
        lifted = rows.first_person if dense is None else rows.first_person | np.isnan(rows.dense)
        parts["first_person"] = weights.first_person * lifted
        score += parts["first_person"]
    relevance = np.maximum(score, 0.0)
    if weights.recency and hints.now == hints.now:
        parts["recency"] = recency = _recency(rows, hints, weights)
        recency *= relevance
        score += recency
    if weights.use and rows.uses is not None:
        parts["use"] = relevance * (weights.use * (rows.uses / (rows.uses + USES_COUNTED)))
        score += parts["use"]
    if weights.length and relevant.any():
        lower = np.minimum(score, _ceilings(plain, score, relevant))
        parts["length"] -= score - lower
        score = lower
    if back is not None:
        score, relevant = score[back], relevant[back]
        parts = {name: values[back] for name, values in parts.items()}
    order, scores = _best_first(score, pool.seq)
    return Ranking(
        order=order, scores=scores, relevant=relevant[order], pool=pool, hints=hints, weights=weights, _parts=parts
    )


def add_late(ranked: Ranking, rows: Column, late: Column) -> Ranking:
    """Return the ranking with its first rows reordered by late interaction.

    Args:
        rows: the first rows of `ranked.order`, any number of them.
        late: (len(rows)) their scores from `late.late_scores`; nan: its words are not known.
    """
    is_known = np.isfinite(late)
    known_scores = late[is_known]
    if len(known_scores) < 2 or known_scores.min() == known_scores.max():
        return ranked
    known_scores -= known_scores.mean()
    known_scores *= ranked.weights.late / max(math.sqrt(float(known_scores @ known_scores) / len(known_scores)), 1e-9)
    part = np.full(ranked.pool.size, known_scores.min())
    part[rows] = 0.0  # as much as the mean: a text that waits for its words is as good as before
    part[rows[is_known]] = known_scores
    score = np.empty(ranked.pool.size)
    score[ranked.order] = ranked.scores
    score += part
    relevant = np.empty(ranked.pool.size, bool)
    relevant[ranked.order] = ranked.relevant
    order, scores = _best_first(score, ranked.pool.seq)
    return replace(ranked, order=order, scores=scores, relevant=relevant[order], _parts={**ranked._parts, "late": part})


def _sort_by_session(pool: Pool) -> tuple[Pool, Neighbours, Column | None]:
    """Return (the pool by session and place, its neighbours, the new index of each row; None: the order is the same).
    Most pools have this order already."""
    near, back = Neighbours(pool.spot), None
    if not near.in_order:
        order = np.lexsort((pool.seq, pool.spot))
        back = np.empty(pool.size, np.int64)
        back[order] = np.arange(pool.size)
        pool = pool.select(order)
        near = Neighbours(pool.spot)
    return pool, near, back


def _best_first(score: Column, seq: Column) -> tuple[Column, Column]:
    """Return (order, scores) with the best first; equal scores: the newer first."""
    order = np.lexsort((-seq, -score))
    return order, score[order]


def _ceilings(plain: Column, score: Column, relevant: Column) -> Column:
    """Return (n) the highest score allowed for each row: one without a match of its own stays below the matches that
    its `plain` score (the one without length) does not exceed.

    In a store of a few messages every row is a neighbour, and the longest one would come first. On LoCoMo this
    costs 0.1 R@10 without vectors and nothing with them; no length at all for such rows costs 0.2.
    """
    ceilings = np.full(len(plain), np.inf)
    others = ~relevant
    if others.any():
        matches = -plain[relevant]
        best = np.argsort(matches)
        below = np.nextafter(np.minimum.accumulate(score[relevant][best]), -np.inf)
        above = np.searchsorted(matches[best], -plain[others], side="right")  # how many matches each row is not above
        ceilings[others] = np.where(above > 0, below[above - 1], np.inf)
    return ceilings


def _recency(pool: Pool, hints: QueryHints, weights: Weights) -> Column:
    """Return the gain of each row by its age: 0 to `weights.recency`, half with every `recency_days`."""
    halvings: Column = pool.occurred_at - hints.now
    halvings *= 1.0 / (DAY_S * weights.recency_days)
    share: Column = np.exp2(np.minimum(halvings, 0.0, out=halvings), out=halvings)
    share *= weights.recency
    return share


def merge_duplicates(texts: Sequence[str], seqs: Sequence[int], *, limit: int) -> list[tuple[int, tuple[int, ...]]]:
    """Select which of the ranked texts to show, at most `limit`, with the duplicates that each stands for.

    Texts are duplicates if they are equal but for case, spaces and punctuation, or one is the other with a few words
    more. A group stands at the place of its best text, and shows the newest of those that equal it word for word.

    Args:
        texts: best first; more than `limit`, to fill the places of duplicates.
        seqs: their numbers, larger is newer.
    Returns: (index of the text, indexes of its duplicates), both into `texts`.
    """
    same_as: dict[int, list[int]] = {}
    words_of: dict[int, str] = {}
    lists: dict[int, list[str]] = {}
    by_words: dict[str, int] = {}
    by_rare_word: dict[str, list[int]] = {}
    for index, text in enumerate(texts):
        if len(same_as) >= limit:
            break
        found = _WORDS.findall(text[:COMPARED_CHARS].casefold())
        words = " ".join(found)
        words_of[index] = words
        key = words if len(text) <= COMPARED_CHARS else f"{words}\n{text}"
        rare = _rare_words(found) if limit > SMALL_PAGE else []
        best = by_words.get(key)
        if best is None and len(found) >= FEWEST_WORDS:
            near = {other for word in rare for other in by_rare_word.get(word, ())} if limit > SMALL_PAGE else lists
            best = min((other for other in near if _are_alike(found, lists[other])), default=None)
        if best is not None:
            same_as[best].append(index)
            continue
        same_as[index] = []
        lists[index] = found
        by_words[key] = index
        for word in rare:
            by_rare_word.setdefault(word, []).append(index)
    return [_newest(index, others, words_of, seqs) for index, others in same_as.items()]


def _newest(
    index: int, others: Sequence[int], words_of: dict[int, str], seqs: Sequence[int]
) -> tuple[int, tuple[int, ...]]:
    """Return the newest text of a group that equals its best, `index`, word for word, and the others of the group."""
    newest = max((at for at in (index, *others) if words_of[at] == words_of[index]), key=lambda at: seqs[at])
    return newest, tuple(at for at in (index, *others) if at != newest)


def _are_alike(words: Sequence[str], others: Sequence[str]) -> bool:
    """Return whether one of two texts is the other plus a few words, in its order, none of which is a number, a sign or
    a denial. "Ann owes Ben" and "Ben owes Ann", "enable it" and "disable it" are different."""
    small, large = sorted((words, others), key=len)
    shared = set(small)
    if len(shared) < ALIKE * len(shared | set(large)) or len(small) < ALIKE * len(large):
        return False
    rest = iter(large)
    if not all(word in rest for word in small):
        return False
    return all(map(_ADDABLE.fullmatch, Counter(large) - Counter(small)))


def _rare_words(words: Sequence[str]) -> list[str]:
    """Return the longest words of a text: any text that is alike shares one of them.

    Long words are rare, so few texts need a comparison.

    Source: prefix filtering after Chaudhuri, Ganti and Kaushik, ICDE 2006.
    """
    ordered = sorted(set(words), key=lambda word: (len(word), word))
    return ordered[max(0, int(ALIKE * len(ordered)) - 1) :]
