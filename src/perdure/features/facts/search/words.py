"""Messages that are found by the words of facts that they say."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from perdure.core.agents import Agent
from perdure.core.ids import GraphId
from perdure.core.passages import PassageFilter
from perdure.core.sources import TRUSTED
from perdure.core.text.words import Query
from perdure.features.facts.tables import Facts, Graphs
from perdure.features.facts.units.lines import sources_of
from perdure.features.facts.values.facts import FactFilter
from perdure.search.ranking.hits import AlternativeText, SearchRequest
from perdure.storage.tx import Tx

FACTS_MAX = 10
"""How many of the facts that match a query's words best are looked at: more of them find no more messages."""


def match_facts(
    tx: Tx, agent: Agent, request: SearchRequest, query: Query, graph_id: GraphId
) -> Mapping[int, Sequence[AlternativeText]]:
    """Return the number of an agent's message -> trusted facts that it says and that match the words of a query."""
    graph = tx.of(Graphs).get(graph_id)
    archive, everything = tx.archives.get(graph.fact_archive_id), PassageFilter()
    postings = request.archives.postings(archive, everything)
    found = tx.passages.match(archive.id, query, where=everything, limit=FACTS_MAX, postings=postings).seqs[:FACTS_MAX]
    facts = tx.of(Facts).list_by_texts(graph.id, found, where=FactFilter(trust=tuple(sorted(TRUSTED)))) if found else ()
    sources = sources_of(tx, graph.id, facts)
    by_message: dict[int, list[AlternativeText]] = {}
    for fact in facts:
        # The first has the fact's words, or the last, if it said them better; those between need not have them.
        for episode in {one.seq: one for one in (*sources[fact.first_seq][:1], *sources[fact.first_seq][-1:])}.values():
            if episode.agent_id == agent.id and episode.message_seq is not None:
                by_message.setdefault(episode.message_seq, []).append(AlternativeText(fact.id, fact.text))
    return by_message
