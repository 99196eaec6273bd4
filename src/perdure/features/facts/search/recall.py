"""What recall adds of facts: those about what is spoken of, and what is known of the user."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from perdure.core.agents import Agent
from perdure.features.facts.search.find import search_facts, texts_with_names
from perdure.features.facts.search.plan import NAME, FactScope
from perdure.features.facts.tables import Entities, Graphs
from perdure.features.facts.units.known import known_entities
from perdure.features.facts.units.lines import sources_of
from perdure.features.facts.units.profile import load_profile
from perdure.features.facts.values.facts import Fact, FactFilter, FactHit, Graph
from perdure.search.packing.packing import Candidate
from perdure.search.ranking.hits import Hits, RecallScope, SearchRequest
from perdure.search.recall import Candidates, rank_cost
from perdure.storage.tx import Tx


def add_facts(tx: Tx, agent: Agent, request: SearchRequest, scope: RecallScope, collection: Candidates) -> None:
    """Add the facts of a recall's scope to its candidates, with scores from 0 to 1. None is cut off by its score: they
    are few, and about what the texts name."""
    hits = _recall_facts(tx, agent, request, scope)
    if not hits:
        return
    collection.ran["facts"] = hits.ran
    sources = sources_of(tx, hits[0].fact.graph_id, [hit.fact for hit in hits])
    best = hits[0].score
    for place, hit in enumerate(hits):
        fact = hit.fact
        score = min(1.0, max(0.0, hit.score / best)) if best > 0 else 1 / (1 + place)
        collection.add(
            Candidate(kind="fact", id=fact.id, text=fact.text, score=score, occurred_at=fact.valid_at),
            why=hit.why,
            entities=(hit.subject.name, hit.object.name),
            occurred_at=fact.valid_at,
            refs=tuple(source.ref for source in sources[fact.first_seq]),
        )


def add_profile(
    tx: Tx,
    agent: Agent,
    request: SearchRequest,
    scope: RecallScope,
    collection: Candidates,
    count: Callable[[str], int],
) -> None:
    """Fill the rest of the budget with facts of the user's profile, the most important first; `count` counts tokens."""
    if (graph := tx.of(Graphs).find_by_agent(agent.id)) is None:
        return
    profile = load_profile(tx, graph, agent.id, budget_tokens=scope.budget_tokens, count=count, at=request.now)
    facts = [entry.fact for entry in profile.entries if entry.fact is not None]
    in_view = first_seqs_in_view(tx, graph, agent, facts, scope)
    facts = [fact for fact in facts if fact.first_seq not in in_view]
    entities, sources = tx.of(Entities).of_facts(graph.id, facts), sources_of(tx, graph.id, facts)
    for place, fact in enumerate(facts):
        collection.add(
            Candidate(
                kind="fact",
                id=fact.id,
                text=fact.text,
                score=2 - rank_cost(place),
                occurred_at=fact.valid_at,
                fills=True,
            ),
            entities=(entities[fact.subject].name, entities[fact.object].name),
            occurred_at=fact.valid_at,
            refs=tuple(source.ref for source in sources[fact.first_seq]),
        )


def _recall_facts(tx: Tx, agent: Agent, request: SearchRequest, scope: RecallScope) -> Hits[FactHit]:
    """Return the facts that a recall may add, best first: true now, of entities in its texts, and not said in view."""
    wanted = (scope.features or {}).get(NAME, FactScope())
    if wanted is None or not wanted.limit or (graph := tx.of(Graphs).find_by_agent(agent.id)) is None:
        return Hits()
    texts = [request.text] if wanted.texts is None else wanted.texts
    named = known_entities(tx, graph, [name for text in texts for name in texts_with_names(text)])
    if not named:
        return Hits()
    where = FactFilter(
        at=request.now, entities=tuple(entity.seq for entity in named), trust=wanted.trust, states=("active",)
    )
    hits = search_facts(tx, graph, request, where=where, limit=2 * wanted.limit, explain=scope.explain)
    in_view = first_seqs_in_view(tx, graph, agent, [hit.fact for hit in hits], scope)
    return Hits([hit for hit in hits if hit.fact.first_seq not in in_view][: wanted.limit], hits.ran)


def first_seqs_in_view(tx: Tx, graph: Graph, agent: Agent, facts: Sequence[Fact], scope: RecallScope) -> set[int]:
    """Return the `first_seq` of those of these facts that messages in the context window say."""
    if scope.in_view is None:
        return set()
    conversation, first = scope.in_view
    return {
        fact
        for fact, episodes in sources_of(tx, graph.id, facts).items()
        for one in episodes
        if one.agent_id == agent.id and one.message_seq is not None
        if one.message_seq in scope.pinned or (one.conversation_seq == conversation and one.message_seq >= first)
    }
