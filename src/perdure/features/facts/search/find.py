"""Search facts by words and vectors of their texts, by nearness to the query's entities, and by time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from perdure.core.passages import PassageFilter
from perdure.core.text.dates import TimeSpan, spans
from perdure.features.facts.search.columns import FactColumns, load_fact_columns
from perdure.features.facts.tables import Entities, Facts
from perdure.features.facts.units.known import known_entities
from perdure.features.facts.values.extraction import USER as USER_NAME
from perdure.features.facts.values.facts import Fact, FactFilter, FactHit, Graph
from perdure.search.passages import CANDIDATES, RankedPassages, rank_passages, why_passage
from perdure.search.ranking.hints import role_meant
from perdure.search.ranking.hits import HITS_MAX, Hits, SearchReport, SearchRequest, Why
from perdure.search.ranking.pool import USER
from perdure.storage.tx import Tx

DISTANCE_SCORES = (0.5, 0.2)
"""What a fact gains whose entities stand in the query, or are one fact away from such an entity."""
TIME_SCORE = 1.0
"""What a fact gains that was true at a time which the query names."""
ENDED_SCORE = -1.5
"""What a fact loses that is no longer true, unless the query or the filter names a time."""
NAMED_CANDIDATES, NEAR_CANDIDATES, SPAN_CANDIDATES = 40, 20, 30
"""The most facts that are ranked even if their words don't match: of entities that the query or the filter names, of
their neighbours, and of times that the query names."""


@dataclass(frozen=True, slots=True, eq=False)
class _Graded:
    """The facts that a filter lets through, in order of their texts, and what each gains beside its words and vector.

    Attributes:
        texts: (m) the numbers of their texts, sorted; several facts may have one text.
        seqs: (m) the numbers of their versions.
        gains: name of a signal, such as `distance` -> (m) what it adds to the score.
        candidates: numbers of texts that are ranked even if their words don't match.
    """

    texts: NDArray[np.int64]
    seqs: NDArray[np.int64]
    gains: dict[str, NDArray[np.floating]]
    candidates: Sequence[int]


def search_facts(
    tx: Tx, graph: Graph, request: SearchRequest, *, where: FactFilter, limit: int, explain: bool = False
) -> Hits[FactHit]:
    """Return the facts of a graph that match the request's text and the filter, best first; without a text the newest
    ones. With `explain` each says why. Raises: NotFound."""
    if not request.text.strip():
        facts = tx.of(Facts).page(graph.id, where=where, newest_first=True, limit=limit)
        return Hits(_hits(tx, graph, [(fact, 0.0, None) for fact in facts]), SearchReport(rows=len(facts)))
    archive = tx.archives.get(graph.fact_archive_id)
    columns = request.archives.columns(archive, lambda before: load_fact_columns(tx, graph.id, before))
    graded = _grade(tx, graph, request, columns, where)
    most = min(HITS_MAX, max(CANDIDATES, 2 * limit))
    ranking = rank_passages(
        tx, [archive], request, where=PassageFilter(), limit=most, only=np.unique(graded.texts), more=graded.candidates
    )
    scored = _sum_scores(ranking, graded)[:limit]
    facts = tx.of(Facts).list_by_seqs(graph.id, [seq for _, seq, _, _ in scored])
    found = {fact.seq: fact for fact in facts}
    why = [
        (found[seq], score, _explain(ranking, row, graded, place) if explain else None)
        for score, seq, row, place in scored
        if seq in found
    ]
    return Hits(_hits(tx, graph, why), ranking.ran)


def _grade(tx: Tx, graph: Graph, request: SearchRequest, columns: FactColumns, where: FactFilter) -> _Graded:
    """Apply the filter, and compute what the facts gain by their entities and times."""
    rows = columns.match(where)
    contents = np.stack([columns.text_seq[rows], columns.valid_at[rows], columns.invalid_at[rows]])[:, ::-1]
    rows = rows[::-1][np.unique(contents, axis=1, return_index=True)[1]]  # of equal texts and times the newest
    texts = columns.text_seq[rows]
    named = [entity.seq for entity in known_entities(tx, graph, texts_with_names(request.text))]
    distances = columns.distances(rows, named)
    gains: dict[str, NDArray[np.floating]] = {}
    candidates: list[int] = []
    for distance, (score, most) in enumerate(zip(DISTANCE_SCORES, (NAMED_CANDIDATES, NEAR_CANDIDATES), strict=True)):
        near = np.flatnonzero(distances == distance)
        gains.setdefault("distance", np.zeros(len(rows)))[near] = score
        candidates += texts[_best_rated(columns, rows, near)[:most]].tolist()
    if where.entities:
        candidates += texts[_best_rated(columns, rows, np.arange(len(rows)))[:NAMED_CANDIDATES]].tolist()
    named_spans = spans(request.text, now=request.now, timezone=request.timezone)
    if named_spans:
        then = _true_in(columns, rows, named_spans)
        gains["time"] = TIME_SCORE * then
        candidates += texts[np.flatnonzero(then)[-SPAN_CANDIDATES:]].tolist()
    elif where.at is None and where.since is None and where.until is None and where.ended_at is None:
        today = (where.as_of or request.now).timestamp()
        gains["ended"] = ENDED_SCORE * (columns.invalid_at[rows] <= today)
    return _Graded(texts, columns.seq[rows], gains, list(dict.fromkeys(candidates)))


def _best_rated(columns: FactColumns, rows: NDArray[np.int64], some: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return `some`, which are places in `rows`, by the rating of their facts, the best first, and then the newest."""
    return some[np.lexsort((-columns.seq[rows[some]], -columns.rating[rows[some]]))]


def texts_with_names(text: str) -> Sequence[str]:
    """Return the texts in which names are looked up: the query, and the user's name if it says "I" or "my"."""
    return [USER_NAME, text] if role_meant(text) == USER else [text]


def _true_in(columns: FactColumns, rows: NDArray[np.int64], named: Sequence[TimeSpan]) -> NDArray[np.bool_]:
    """Return for each row whether its fact was true at one of these times, as far as its start or end is known."""
    valid, invalid = columns.valid_at[rows], columns.invalid_at[rows]
    is_true = np.zeros(len(rows), np.bool_)
    for span in named:
        is_true |= (valid < span.end.timestamp()) & (invalid > span.start.timestamp())
    return is_true & (np.isfinite(valid) | np.isfinite(invalid))


def _sum_scores(ranking: RankedPassages, graded: _Graded) -> list[tuple[float, int, int, int]]:
    """Return (score, version, row in the ranking's pool, place in `graded`) of each ranked fact, best first."""
    order = ranking.ranked.order
    seqs = np.array(ranking.texts.seqs, np.int64)[order]
    first, last = graded.texts.searchsorted(seqs, "left"), graded.texts.searchsorted(seqs, "right")
    order, scores = order.repeat(last - first), np.repeat(ranking.ranked.scores, last - first).astype(np.float64)
    places = np.concatenate([np.arange(*pair) for pair in zip(first, last, strict=True)] or [first])
    for values in graded.gains.values():
        scores += values[places]
    best = np.argsort(-scores, kind="stable")
    columns = (scores[best], graded.seqs[places[best]], order[best], places[best])
    return list(zip(*(column.tolist() for column in columns), strict=True))


def _explain(ranking: RankedPassages, row: int, graded: _Graded, place: int) -> Why:
    """Return why a fact has its score: the reasons of its text, with what its entities and times add."""
    why = why_passage(ranking, row)
    parts = {name: float(values[place]) for name, values in graded.gains.items() if values[place]}
    return replace(why, score=why.score + sum(parts.values()), parts={**why.parts, **parts})


def _hits(tx: Tx, graph: Graph, scored: Sequence[tuple[Fact, float, Why | None]]) -> Sequence[FactHit]:
    """Return facts, each with score and reasons, with their entities."""
    entities = tx.of(Entities).of_facts(graph.id, [fact for fact, _, _ in scored])
    return [FactHit(fact, score, entities[fact.subject], entities[fact.object], why) for fact, score, why in scored]
