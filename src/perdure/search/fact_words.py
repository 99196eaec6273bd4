"""Messages by the words of their facts: a fact names in full what the messages that say it may leave out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from perdure.core.agents import Agent
from perdure.core.facts.values import Fact, FactFilter
from perdure.core.passages import PassageFilter
from perdure.core.provenance.sources import TRUSTED
from perdure.core.text.words import Query
from perdure.search.hits import SearchRequest
from perdure.search.ranking.matching import clause_counts
from perdure.storage.tx import Tx

FACTS_MAX = 10
"""The best facts by the words of a query. More find nothing more."""


def match_facts(tx: Tx, agent: Agent, request: SearchRequest, query: Query) -> Mapping[int, Sequence[Fact]]:
    """The numbers of messages -> the facts that they say and that the words of a query find, from trusted sources."""
    graph = tx.graphs.find_by_agent(agent.id)
    if graph is None or not query.clauses:
        return {}
    archive, everything = tx.archives.get(graph.fact_archive_id), PassageFilter()
    postings = request.archives.postings(archive, everything)
    found = tx.passages.match(archive.id, query, where=everything, limit=FACTS_MAX, postings=postings).seqs[:FACTS_MAX]
    facts = tx.facts.list_by_texts(graph.id, found, where=FactFilter(trust=tuple(sorted(TRUSTED)))) if found else ()
    sources = tx.facts.sources(graph.id, [fact.first_seq for fact in facts])
    # The first has the fact's words, or the last, if it said them better; those between need not have them.
    ends = {fact: {seqs[0], seqs[-1]} for fact, seqs in sources.items() if seqs}
    episodes = {one.seq: one for one in tx.episodes.list_by_seqs(graph.id, sorted(set().union(*ends.values())))}
    by_message: dict[int, list[Fact]] = {}
    for fact in facts:
        for seq in sorted(ends.get(fact.first_seq, ())):
            episode = episodes.get(seq)
            if episode is not None and episode.agent_id == agent.id and episode.message_seq is not None:
                by_message.setdefault(episode.message_seq, []).append(fact)
    return by_message


def add_fact_words(
    counts: NDArray[np.float64], query: Query, seqs: NDArray[np.int64], facts: Mapping[int, Sequence[Fact]]
) -> NDArray[np.float64]:
    """Return (clauses, rows) the counts with those clauses, once, that stand only in facts of a message."""
    rows = [row for row, seq in enumerate(seqs.tolist()) if seq in facts]
    if rows:
        texts = [" ".join(fact.text for fact in facts[seq]) for seq in seqs[rows].tolist()]
        counts[:, rows] = np.maximum(counts[:, rows], np.minimum(clause_counts(query, texts), 1.0))
    return counts
