"""The tool by which an agent searches what it knows as facts."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import tzinfo
from typing import Any

from perdure.core.passages import Passage
from perdure.core.sources import TRUSTED, Source
from perdure.core.specs import ToolOutcome
from perdure.core.text.zones import zone
from perdure.engine.search.tools import MAX_RESULTS, SearchCall, cut
from perdure.features.facts.forgetting import sources_of_facts
from perdure.features.facts.search.plan import find_facts
from perdure.features.facts.tables import Entities, Graphs
from perdure.features.facts.units.lines import sources_of
from perdure.features.facts.values.facts import Episode, Fact, FactFilter, Graph
from perdure.search.ranking.query import parse_time
from perdure.storage.tx import Tx


async def search_facts(
    call: SearchCall, query: str, entity: str | None = None, at: str | None = None, limit: int = 10
) -> ToolOutcome:
    """Run the tool `search_facts`: find facts of the agent's graph by a query, an entity and a time."""
    where = FactFilter(at=parse_time("at", at, timezone=call.timezone))
    limit = max(1, min(limit, MAX_RESULTS))

    def prepare(tx: Tx) -> tuple[Graph | None, Sequence[int]]:
        """Return the agent's graph and the entities of this name in it."""
        graph = tx.of(Graphs).find_by_agent(call.run.key.agent_id)
        name = (entity or "").strip()
        return graph, tx.of(Entities).find_by_names(graph.id, [name])[name] if graph is not None and name else ()

    graph, entities = await call.store.read(prepare)
    if graph is None:
        return ToolOutcome(text=json.dumps({"message": "No facts are known yet.", "results": []}))
    if (entity or "").strip() and not entities:
        message = f"Nothing is known by the name {entity!r:.80}: search without an entity."
        return ToolOutcome(text=json.dumps({"message": message, "results": []}, ensure_ascii=False))
    where = replace(where, entities=tuple(entities))
    hits = await find_facts(call.search, graph.id, query, where=where, limit=limit, timezone=call.timezone)
    facts = [hit.fact for hit in hits]

    def load(tx: Tx) -> tuple[Mapping[int, Sequence[Episode]], Sequence[Passage], tuple[Source, ...]]:
        """Load the episodes of the facts by `first_seq`, their passages, and their sources from outside."""
        texts = [fact.text_seq for fact in facts]
        passages = tx.passages.list_by_seqs(graph.fact_archive_id, texts)
        return sources_of(tx, graph.id, facts), passages, sources_of_facts(tx, graph, facts)

    sources, passages, outside = await call.store.read(load)
    results = [_fact_shape(fact, sources[fact.first_seq], zone(call.timezone)) for fact in facts]
    message = f"Showing {len(results)} results:" if results else "No results found."
    text = json.dumps({"message": message, "results": results}, ensure_ascii=False)
    return ToolOutcome(text=text, passages=tuple(passages), sources=outside)


def _fact_shape(fact: Fact, sources: Sequence[Episode], tz: tzinfo) -> dict[str, Any]:
    """Return a fact as the model sees it: text, times in a zone, and the newest message or text that says it."""
    times = {
        name: time.astimezone(tz).isoformat(timespec="seconds")
        for name, time in (("since", fact.valid_at), ("until", fact.invalid_at))
        if time is not None
    }
    return {
        "fact": cut(fact.text),
        **times,
        **({"source": sources[-1].ref} if sources else {}),
        **({} if fact.trust in TRUSTED else {"untrusted": f"from {fact.trust}"}),
        "id": fact.id,
    }
