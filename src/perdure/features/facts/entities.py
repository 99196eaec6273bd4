"""The people, places and things that facts are about: listed, renamed, and merged where two are one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import TypedDict, Unpack

from perdure.core.errors import InvalidInput, NotFound
from perdure.core.ids import EntityId, is_id
from perdure.core.text.credentials import without_credentials
from perdure.features.facts.episodes import AsyncEpisodes
from perdure.features.facts.tables import Entities, Facts, Graphs
from perdure.features.facts.tables.entities import EntitySort
from perdure.features.facts.units.graphs import ALIASES_MAX
from perdure.features.facts.units.merging import check_separate, merge_entities, put_entity, split_entity
from perdure.features.facts.values.facts import Entity, FactNetwork
from perdure.features.facts.views import entity_seqs, find_graph
from perdure.library.parts.checks import Page, check_page, check_text
from perdure.library.parts.part import reads, writes
from perdure.storage.tables.table import first
from perdure.storage.tx import Tx

NODES_MAX, EDGES_MAX = 150, 200
"""The most entities and facts of a network."""
NAME_MAX_CHARS = 200
"""The longest name of an entity that a person gives it."""


class EntityFields(TypedDict, total=False):
    """The fields of an entity that people change; a missing field stays as it is."""

    name: str
    type: str
    aliases: Sequence[str]


class AsyncEntities(AsyncEpisodes):
    """The people, places and things that an agent's facts are about."""

    async def entities(self, *, limit: int = 100, after: EntityId | None = None) -> Sequence[Entity]:
        """The people, places and things that facts are about, in order of creation. Raises: InvalidInput."""
        return await self.page_of_entities(Page(limit, ascending=True, after=after))

    @reads
    def page_of_entities(self, tx: Tx, page: Page) -> Sequence[Entity]:
        """List a page of entities. Raises: InvalidInput, NotFound."""
        check_page(page)
        if (graph := find_graph(tx, self._owner)) is None:
            return ()
        return page.load(
            partial(tx.of(Entities).list, graph.id), lambda cursor: tx.of(Entities).get(EntityId(cursor)).seq
        )

    async def get_entity(self, entity: str) -> Entity:
        """Return an entity by its name or id. Raises: NotFound; InvalidInput: several have this name."""
        return await self._ports.store.read(lambda tx: self._find(tx, entity))

    @reads
    def sorted_entities(self, tx: Tx, sort: EntitySort, *, offset: int = 0, limit: int = 100) -> Sequence[Entity]:
        """List entities in an order, such as `name`, or `-facts` for most facts first, after `offset` ones."""
        if (graph := find_graph(tx, self._owner)) is None:
            return ()
        return tx.of(Entities).list_sorted(graph.id, sort, offset=offset, limit=limit)

    @reads
    def network(self, tx: Tx) -> FactNetwork:
        """The entities of most facts with the newest facts between them, as many as a drawing can show."""
        if (graph := find_graph(tx, self._owner)) is None:
            return FactNetwork()
        most = tx.of(Entities).list_sorted(graph.id, "-facts", offset=0, limit=NODES_MAX + 1)
        entities = most[:NODES_MAX]
        facts = tx.of(Facts).list_among(graph.id, [one.seq for one in entities], limit=EDGES_MAX + 1)
        named = {seq for fact in facts for seq in (fact.subject, fact.object)}
        return FactNetwork(
            entities=[entity for entity in entities if entity.seq in named],
            facts=facts[:EDGES_MAX],
            is_whole=len(most) <= NODES_MAX and len(facts) <= EDGES_MAX,
        )

    @writes
    def change_entity(self, tx: Tx, entity: str, **changes: Unpack[EntityFields]) -> Entity:
        """Change the name, type or aliases of an entity, given by name or id, and return it. Its former name becomes an
        alias, unless aliases are given. Raises: InvalidInput, NotFound."""
        check_separate(tx, before := self._find(tx, entity))
        name = _check_name("name", changes.get("name", before.name))
        aliases = [_check_name("aliases", alias) for alias in changes.get("aliases", (*before.aliases, before.name))]
        others = tuple(alias for alias in dict.fromkeys(aliases) if alias != name)
        if len(others) > ALIASES_MAX:
            raise InvalidInput(f"{name!r:.80} would have {len(others)} other names, the limit is {ALIASES_MAX}")
        kind = _check_name("type", changes.get("type", before.type))
        changed = replace(before, name=name, type=kind, aliases=others, updated_at=self._ports.clock.now())
        put_entity(tx, tx.of(Graphs).get(before.graph_id), changed)
        return changed

    @writes
    def merge_entities(self, tx: Tx, entity: str, into: str) -> Entity:
        """Say that an entity is the same as the entity `into`, each by its name or id. The latter gets the facts and
        names of the former, and is returned; facts that connect the two are deleted. `split_entity` takes it back.
        Raises: InvalidInput, NotFound."""
        gone, kept = self._find(tx, entity), self._find(tx, into)
        graph = tx.of(Graphs).get(kept.graph_id)
        return merge_entities(tx, graph, kept, gone, at=self._ports.clock.now())

    @writes
    def split_entity(self, tx: Tx, entity_id: EntityId) -> Entity:
        """Take back that an entity was merged into another one: its facts and names are its own again; return it.
        Raises: Conflict: it was not merged; NotFound."""
        check_text("entity_id", entity_id)
        entity = tx.of(Entities).get(entity_id)
        return split_entity(tx, tx.of(Graphs).get(entity.graph_id), entity, at=self._ports.clock.now())

    def _find(self, tx: Tx, name_or_id: str) -> Entity:
        """Return the entity of this name or id. Raises: NotFound; InvalidInput: several have this name."""
        check_text("entity", name_or_id)
        if is_id("entity", name_or_id):
            return tx.of(Entities).get(EntityId(name_or_id))
        if (graph := find_graph(tx, self._owner)) is None:
            raise NotFound("entity", name_or_id)
        found = tx.of(Entities).list_by_seqs(graph.id, entity_seqs(tx, graph, name_or_id) or (0,))
        if len(found) > 1:
            ids = ", ".join(one.id for one in found[:3])
            raise InvalidInput(
                f"{len(found)} entities are called {name_or_id!r:.80}: give the id of one, such as {ids}"
            )
        return first(found, "entity", name_or_id)


def _check_name(field: str, name: str) -> str:
    """Return the name in a field, without credentials. Raises: InvalidInput: it is empty or too long."""
    check_text(field, name)
    if not name.strip():
        raise InvalidInput(f"{field} is {name!r:.80}: give a name, such as {'PERSON' if field == 'type' else 'Ada'!r}")
    if len(name) > NAME_MAX_CHARS:
        raise InvalidInput(f"{field} has a name of {len(name):,} characters, the limit is {NAME_MAX_CHARS}")
    return without_credentials(" ".join(name.split()))
