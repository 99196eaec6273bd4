"""What is derived from facts whenever it is read: profiles, timelines, communities, texts, and what may fade; and the
conditions of a list or search, as programs and people give them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, TypedDict

from perdure.app import App
from perdure.core.errors import InvalidInput, NotFound
from perdure.core.ids import AgentId, EntityId, GraphId, is_id
from perdure.core.passages import Passage, PassageFilter
from perdure.core.sources import TRUST_LABELS, TrustLabel
from perdure.core.text.zones import local as local
from perdure.core.text.zones import zone as zone
from perdure.features.facts.extraction.extractors import FactPorts
from perdure.features.facts.extraction.worker import Extractions
from perdure.features.facts.fading.passes import Fading, load_fading, restore_last, tidy
from perdure.features.facts.fading.policy import TidyItem
from perdure.features.facts.search.plan import find_facts
from perdure.features.facts.tables import Entities, Facts, Graphs
from perdure.features.facts.units.communities import TAG as COMMUNITY_TAG
from perdure.features.facts.units.communities import community_members
from perdure.features.facts.units.context import PROFILE_SHARE, context_facts, pack_context
from perdure.features.facts.units.graphs import check_scope, zone_of
from perdure.features.facts.units.lines import sources_of
from perdure.features.facts.units.profile import load_profile, trust_filter
from perdure.features.facts.values.facts import (
    FACT_STATES,
    KNOWN_STATES,
    CommunityHit,
    Fact,
    FactContext,
    FactEvent,
    FactFilter,
    FactHit,
    FactState,
    Graph,
    Profile,
)
from perdure.features.facts.values.settings import Forgetting, load_agent_facts
from perdure.library.memory.search import check_budget
from perdure.library.parts.checks import check_choice, check_limit, utc
from perdure.library.parts.part import AsyncPart, reads
from perdure.storage.tx import Tx

Owner = AgentId | GraphId
"""Whose facts: those of an agent's graph, or of a graph."""


class FactConditions(TypedDict, total=False):
    """Which facts. Times have a zone; `entity` is a name or an id. `at`: true at this time; `since` and `until`: true
    at some time between; `ended_at`: true no longer at this time; `as_of`: believed on that day."""

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
    """Return the filter of these conditions in a graph. Raises: InvalidInput, NotFound: an unknown entity; TooMany."""
    for name in conditions:
        check_choice("a condition", name, [*FactConditions.__annotations__])
    for state in conditions.get("states") or ():
        check_choice("a state", state, FACT_STATES)
    for label in conditions.get("trust") or ():
        check_choice("a label of trust", label, TRUST_LABELS)
    check_scope(tx, conditions.get("scope") or {})
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
    """Return facts of a graph with their subjects and objects, as hits without a score."""
    entities = tx.of(Entities).of_facts(graph.id, facts)
    return [FactHit(fact, 0.0, entities[fact.subject], entities[fact.object]) for fact in facts]


def find_graph(tx: Tx, owner: Owner) -> Graph | None:
    """Return the graph of an owner; None: the agent has none yet. Raises: NotFound."""
    if is_id("graph", owner):
        return tx.of(Graphs).get(GraphId(owner))
    tx.agents.get(AgentId(owner))
    return tx.of(Graphs).find_by_agent(AgentId(owner))


def entity_seqs(tx: Tx, graph: Graph, name_or_id: str | None) -> tuple[int, ...]:
    """Return the numbers of the entities with this name or id; without one none. Raises: NotFound: none has it."""
    if not name_or_id:
        return ()
    if is_id("entity", name_or_id):
        return (tx.of(Entities).get(EntityId(name_or_id)).seq,)
    seqs = tuple(tx.of(Entities).find_by_names(graph.id, [name_or_id])[name_or_id])
    if not seqs:
        hint = "write the name as the list of entities has it, which `perdure fact entities AGENT` prints"
        raise NotFound("entity", name_or_id, hint=hint)
    return seqs


PROFILE_TOKENS = 500
CONTEXT_TOKENS = 1_000
COMMUNITIES_MAX = 1_000
"""The most communities among which the largest are found."""
CONTEXT_FACTS, CONTEXT_EVENTS = 30, 30
"""The most facts and events from which a context is packed."""


class AsyncFactViews(AsyncPart):
    """What is derived from the facts of an agent or graph."""

    def __init__(self, app: App, owner: Owner | None = None) -> None:
        super().__init__(app, AgentId(owner) if owner is not None and is_id("agent", owner) else None)
        self._of = owner
        self._ports: FactPorts = app.service(Extractions).ports

    @property
    def _owner(self) -> Owner:
        """The agent or graph whose facts these are. Raises: InvalidInput: none was named."""
        if self._of is None:
            raise InvalidInput("whose facts? Name an agent or a graph, by `facts.of(id)`")
        return self._of

    @reads
    def profile(self, tx: Tx, *, budget_tokens: int = PROFILE_TOKENS, user: str = "") -> Profile:
        """What is known about the user now, by slots, the most important first: true facts of trusted sources.

        Args:
            budget_tokens: the largest size of its text.
            user: the name of another entity whose profile it is.
        Raises: InvalidInput.
        """
        check_budget(budget_tokens)
        if (graph := find_graph(tx, self._owner)) is None:
            return Profile()
        return self._profile(tx, graph, budget_tokens, user)

    @reads
    def timeline(
        self,
        tx: Tx,
        since: datetime | None = None,
        until: datetime | None = None,
        *,
        limit: int = 100,
        newest_first: bool = False,
        entity: str | None = None,
        tags: Sequence[str] = (),
    ) -> Sequence[FactEvent]:
        """When facts began and ceased to be true, from `since` until before `until`, in order of time.

        Args:
            entity: the name or id of an entity that the facts are about.
            tags: relations and types of facts; empty: all.
        Raises: InvalidInput, NotFound.
        """
        check_limit(limit)
        start, end = utc("since", since), utc("until", until)
        if (graph := find_graph(tx, self._owner)) is None:
            return ()
        where = fact_filter(tx, graph, {"entity": entity})
        return tx.of(Facts).timeline(
            graph.id, where=where, since=start, until=end, tags=tags, newest_first=newest_first, limit=limit
        )

    async def context(self, query: str = "", *, budget_tokens: int = CONTEXT_TOKENS) -> FactContext:
        """What is known as one text for any program: the profile, the facts that match a query, the latest events; with
        the sources of each fact. Raises: InvalidInput."""
        check_budget(budget_tokens)
        now = self._ports.clock.now()
        graph = await self._ports.store.read(find_graph, self._owner)
        if graph is None:
            return FactContext()
        home = await self._ports.store.read(zone_of, self._owner, self._ports.settings.timezone)
        where = await self._ports.store.read(
            lambda tx: trust_filter(tx, self._agent_id, fact_filter(tx, graph, {"at": now}))
        )
        hits = await find_facts(self._ports.search, graph.id, query, where=where, limit=CONTEXT_FACTS, timezone=home)

        def pack(tx: Tx) -> FactContext:
            """Load the profile, events and sources, and pack them with the facts that were found."""
            profile = self._profile(tx, graph, int(PROFILE_SHARE * budget_tokens), "")
            events = tx.of(Facts).timeline(
                graph.id, where=replace(where, at=None), until=now, newest_first=True, limit=CONTEXT_EVENTS
            )
            packed = pack_context(
                profile,
                [hit.fact for hit in hits],
                events[::-1],
                budget_tokens=budget_tokens,
                count=self._ports.counter.count,
                tz=zone(home),
            )
            facts = context_facts(packed)
            sources = sources_of(tx, graph.id, facts)
            return replace(packed, sources={fact.id: sources[fact.first_seq] for fact in facts})

        return await self._ports.store.read(pack)

    async def communities(self, query: str = "", *, limit: int = 10) -> Sequence[CommunityHit]:
        """Groups of entities that many facts connect, by their summaries: those that match the query best; without one
        the largest. Raises: InvalidInput."""
        check_limit(limit)
        graph = await self._ports.store.read(find_graph, self._owner)
        if graph is None:
            return ()
        scores: dict[int, float] | None = None
        if query.strip():
            where = PassageFilter(tags=(COMMUNITY_TAG,))
            hits = await self._ports.search.passages([graph.entity_archive_id], query, where=where, limit=limit)
            scores = {hit.passage.source["community_seq"]: hit.score for hit in hits}

        def load(tx: Tx) -> Sequence[CommunityHit]:
            """Load the communities that were found, or without a query the largest, with some members."""
            if scores is None:
                everything = tx.of(Entities).list_communities(graph.id, limit=COMMUNITIES_MAX)
                found = sorted(everything, key=lambda one: -one.size)[:limit]
            else:
                found = [one for seq in scores if (one := tx.of(Entities).find_community(graph.id, seq)) is not None]
            return [
                CommunityHit(
                    community=one, members=community_members(tx, graph, one), score=(scores or {}).get(one.seq, 0.0)
                )
                for one in found
            ]

        return await self._ports.store.read(load)

    async def tidy(self, *, dry_run: bool = False) -> Sequence[TidyItem]:
        """Let facts and passages fade by the agent's policy, `facts.forgetting` of its settings, and near-duplicates
        become one; return which. They leave recall, later searches, and `restore_last` brings them back. Passages fade
        in the archives that only this agent has. With `dry_run` only return what would fade."""

        def load(tx: Tx) -> tuple[Fading, Forgetting]:
            """Return the memories to look through, and the policy for them."""
            agent_id = self._agent_id
            settings = {} if agent_id is None else tx.agents.get(agent_id).settings
            return load_fading(tx, agent_id, find_graph(tx, self._owner)), load_agent_facts(settings).forgetting

        fading, policy = await self._ports.store.read(load)
        return await tidy(self._ports, fading, policy, dry_run=dry_run)

    async def restore_last(self) -> Sequence[Fact | Passage]:
        """Take back the latest pass of `tidy`; return the facts and passages as they are again."""
        fading = await self._ports.store.read(lambda tx: load_fading(tx, self._agent_id, find_graph(tx, self._owner)))
        return await restore_last(self._ports, fading)

    def _profile(self, tx: Tx, graph: Graph, budget_tokens: int, user: str) -> Profile:
        """Load the profile of the graph's user, or of the entity of this name. Raises: NotFound."""
        return load_profile(
            tx,
            graph,
            self._agent_id,
            budget_tokens=budget_tokens,
            count=self._ports.counter.count,
            at=self._ports.clock.now(),
            user=user,
        )
