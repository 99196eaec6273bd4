"""Which facts of which graph: the conditions of a list or search, as programs and people give them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, TypedDict

from perdure.core.errors import NotFound
from perdure.core.facts.values import KNOWN_STATES, Fact, FactFilter, FactState, Graph
from perdure.core.ids import AgentId, EntityId, GraphId, is_id
from perdure.core.provenance.sources import TrustLabel
from perdure.library.checks import utc
from perdure.search.hits import FactHit
from perdure.storage.tx import Tx

Owner = AgentId | GraphId
"""An agent, for its graph, or a graph."""


class FactConditions(TypedDict, total=False):
    """Which facts. Times have a zone; `entity` is a name or an id.

    `at`: true at this time; `since` and `until`: true at some time between; `ended_at`: true no longer at this time;
    `as_of`: believed on that day.
    """

    at: datetime | None
    since: datetime | None
    until: datetime | None
    ended_at: datetime | None
    as_of: datetime | None
    entity: str | None
    relations: Sequence[str]
    types: Sequence[str]
    min_rating: float
    states: Sequence[FactState]
    trust: Sequence[TrustLabel] | None
    scope: Mapping[str, str]


def fact_filter(tx: Tx, graph: Graph, conditions: FactConditions) -> FactFilter:
    """Return the filter of these conditions. Raises: InvalidInput, NotFound."""
    times: dict[str, Any] = {
        name: utc(name, conditions.get(name))  # type: ignore[arg-type]
        for name in ("at", "since", "until", "ended_at", "as_of")
    }
    return FactFilter(
        **times,
        entities=entity_seqs(tx, graph, conditions.get("entity")),
        relations=tuple(conditions.get("relations") or ()),
        types=tuple(conditions.get("types") or ()),
        min_rating=conditions.get("min_rating", 0.0),
        states=tuple(conditions.get("states") or KNOWN_STATES),
        trust=None if conditions.get("trust") is None else tuple(conditions["trust"] or ()),
        scope=tuple(sorted((conditions.get("scope") or {}).items())),
    )


def with_entities(tx: Tx, graph: Graph, facts: Sequence[Fact]) -> Sequence[FactHit]:
    """Return facts with their entities, without a score."""
    seqs = sorted({seq for fact in facts for seq in (fact.subject, fact.object)})
    entities = {entity.seq: entity for entity in tx.entities.list_by_seqs(graph.id, seqs)}
    return [FactHit(fact, 0.0, entities[fact.subject], entities[fact.object]) for fact in facts]


def find_graph(tx: Tx, owner: Owner) -> Graph | None:
    """Return the graph; None: the agent has none yet. Raises: NotFound."""
    if is_id("graph", owner):
        return tx.graphs.get(GraphId(owner))
    tx.agents.get(AgentId(owner))
    return tx.graphs.find_by_agent(AgentId(owner))


def entity_seqs(tx: Tx, graph: Graph, name_or_id: str | None) -> tuple[int, ...]:
    """Return the numbers of the entities of a name or id; empty: none was given. Raises: NotFound."""
    if not name_or_id:
        return ()
    if is_id("entity", name_or_id):
        return (tx.entities.get(EntityId(name_or_id)).seq,)
    seqs = tuple(tx.entities.find_by_names(graph.id, [name_or_id])[name_or_id])
    if not seqs:
        hint = "`perdure fact entities AGENT` and GET /v1/entities list those that facts are about"
        raise NotFound("entity", name_or_id, hint=hint)
    return seqs
