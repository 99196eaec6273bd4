"""The search of facts: their texts by words and vectors, and how near their entities are to those of the query."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from perdure.core.facts.values import Fact, FactFilter, Graph
from perdure.core.passages import PassageFilter
from perdure.domain.facts.batches import known_entities
from perdure.search.hits import HITS_MAX, FactHit, Hits, SearchReport, Why
from perdure.search.passages import CANDIDATES, rank_passages, why_passage
from perdure.search.request import SearchRequest
from perdure.storage.tx import Tx

DISTANCE_SCORES = (0.25, 0.1)
"""What a fact gains whose entities stand in the query, or are one fact away from such an entity."""
NEIGHBOURS_MAX = 200
"""The most facts that are followed from the entities of a query."""


def search_facts(
    tx: Tx, graph: Graph, request: SearchRequest, *, where: FactFilter, limit: int, explain: bool = False
) -> Hits[FactHit]:
    """Search the facts of a graph that match, best first; without a text the newest ones. Raises: NotFound."""
    if not request.text.strip():
        facts = tx.facts.page(graph.id, where=where, newest_first=True, limit=limit)
        return Hits(_hits(tx, graph, [(fact, 0.0, None) for fact in facts]), SearchReport(rows=len(facts)))
    archive = tx.archives.get(graph.fact_archive_id)
    most = min(HITS_MAX, max(CANDIDATES, 2 * limit))
    ranking = rank_passages(tx, [archive], request, where=PassageFilter(facts=where), limit=most)
    distances = _distances(tx, graph, request.text)
    order = ranking.ranked.order.tolist()
    by_text: dict[int, Fact] = {}
    for fact in tx.facts.list_by_texts(graph.id, [ranking.texts.seqs[row] for row in order], where=where):
        by_text[fact.text_seq] = fact  # the newest of several versions with one text
    scored: list[tuple[Fact, float, Why | None]] = []
    for row in order:
        if (found := by_text.get(ranking.texts.seqs[row])) is None:
            continue
        distance = min(distances.get(found.subject, 9), distances.get(found.object, 9))
        gain = DISTANCE_SCORES[distance] if distance < len(DISTANCE_SCORES) else 0.0
        why = _add_part(why_passage(ranking, row), "distance", gain) if explain else None
        scored.append((found, float(ranking.ranked.scores[row]) + gain, why))
    scored.sort(key=lambda one: -one[1])
    return Hits(_hits(tx, graph, scored[:limit]), ranking.ran)


def facts_of_entities(
    tx: Tx, graph: Graph, texts: Sequence[str], *, where: FactFilter, limit: int
) -> Sequence[FactHit]:
    """Load the facts of the entities that these texts name, of the latest text first; of an entity the best rated."""
    if limit <= 0:
        return ()
    chosen: dict[int, Fact] = {}
    for entity in known_entities(tx, graph, texts):
        facts = tx.facts.page(
            graph.id, where=replace(where, entities=(entity.seq,)), newest_first=True, limit=4 * limit
        )
        for fact in sorted(facts, key=lambda fact: -fact.rating):
            chosen.setdefault(fact.seq, fact)
        if len(chosen) >= limit:
            break
    return _hits(tx, graph, [(fact, fact.rating, None) for fact in list(chosen.values())[:limit]])


def _distances(tx: Tx, graph: Graph, text: str) -> Mapping[int, int]:
    """Entity -> how many facts it is away from an entity that the query names, up to 1."""
    named = [entity.seq for entity in known_entities(tx, graph, [text])]
    distances = dict.fromkeys(named, 0)
    if named:
        for pair in tx.facts.neighbours(graph.id, named, limit=NEIGHBOURS_MAX):
            for seq in pair:
                distances.setdefault(seq, 1)
    return distances


def _hits(tx: Tx, graph: Graph, scored: Sequence[tuple[Fact, float, Why | None]]) -> Sequence[FactHit]:
    """Build the hits, with their entities."""
    seqs = sorted({seq for fact, _, _ in scored for seq in (fact.subject, fact.object)})
    entities = {entity.seq: entity for entity in tx.entities.list_by_seqs(graph.id, seqs)}
    return [FactHit(fact, score, entities[fact.subject], entities[fact.object], why) for fact, score, why in scored]


def _add_part(why: Why, name: str, value: float) -> Why:
    """Add a signal to an explanation, if it is not zero."""
    return replace(why, score=why.score + value, parts={**why.parts, name: value}) if value else why
