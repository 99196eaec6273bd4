"""Summaries of communities, made in the background: from their best facts, or by a model in one call for several."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Sequence
from datetime import datetime
from functools import partial

from perdure.core.errors import ModelError, ModelNotFound
from perdure.core.ids import AgentId
from perdure.engine.ports import with_next_model
from perdure.engine.reading import ModelInput
from perdure.engine.workers.background import AT_ONCE, Piece
from perdure.features.facts.extraction.extractors import FactPorts
from perdure.features.facts.tables import Entities, Graphs
from perdure.features.facts.units.communities import best_facts_summary, store_summary, summary_facts
from perdure.features.facts.values.extraction import CommunityFacts, Extractor, Summarizer
from perdure.features.facts.values.facts import Community, Graph
from perdure.features.facts.values.settings import load_agent_facts
from perdure.storage.tx import Tx

log = logging.getLogger(__name__)

SUMMARIES_MAX = 10
"""The most communities that are summarized at once; others follow after the next run."""

Due = Sequence[tuple[Community, CommunityFacts]]


async def summarize_due(ports: FactPorts, agent_id: AgentId, piece: Piece = AT_ONCE) -> None:
    """Summarize communities of the agent's graph that have changed. `piece` is as of `extract_due`.
    Raises: NotFound, StoreError; CallPostponed, if no caller waits."""
    at = ports.clock.now()
    async with piece():
        graph, due, extractor = await ports.store.read(_load_due, ports, agent_id, at)
    if graph is None or not due:
        return
    summaries = [best_facts_summary(facts.texts) for _, facts in due]
    if isinstance(extractor, Summarizer):
        large = [index for index, (_, facts) in enumerate(due) if facts.texts]
        try:
            async with ports.slot(extractor.handle) if large and piece is not AT_ONCE else contextlib.nullcontext():
                written = await extractor.summarize([due[index][1] for index in large]) if large else ()
            for index, summary in zip(large, written, strict=False):
                summaries[index] = summary or summaries[index]
        except ModelError as error:
            log.warning("communities of %s are summarized by their facts: %s", graph.id, error)

    def again(tx: Tx, community: Community) -> object:
        """Return a community and what its summary is made from, as they are now; None: it is gone."""
        tx.of(Graphs).lock(graph.id)
        now = tx.of(Entities).find_community(graph.id, community.seq)
        return None if now is None else (now, summary_facts(tx, graph, now, at=at))

    def store(tx: Tx) -> None:
        """Store the summaries of communities that have not changed since they were loaded."""
        for (community, facts), summary in zip(due, summaries, strict=True):
            if ModelInput((community, facts), partial(again, community=community)).holds(tx):
                store_summary(tx, graph, community, facts.name, summary, at=ports.clock.now())

    async with piece():
        await ports.store.write(store)


def _load_due(tx: Tx, ports: FactPorts, agent_id: AgentId, at: datetime) -> tuple[Graph | None, Due, Extractor | None]:
    """Load the agent's graph, its communities whose summaries are due with their facts, and the extractor that may
    write these; each None or empty if there is none. Raises: NotFound."""
    graph = tx.of(Graphs).find_by_agent(agent_id)
    communities = [] if graph is None else tx.of(Entities).list_communities(graph.id, due=True, limit=SUMMARIES_MAX)
    if graph is None or not communities:
        return graph, (), None
    due = [(community, summary_facts(tx, graph, community, at=at)) for community in communities]
    agent = tx.agents.get(agent_id)
    try:
        extractor = ports.find_extractor(
            load_agent_facts(agent.settings).extractor, with_next_model(agent, ports.models).model
        )
    except ModelNotFound:
        extractor = None
    return graph, due, extractor
