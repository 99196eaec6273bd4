"""Two entities that are one: all their facts become those of the one that stays, and a person can take that back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from perdure.core.errors import Conflict, InvalidInput
from perdure.core.ids import PassageId, derived_id
from perdure.features.facts.tables import Entities, Facts
from perdure.features.facts.units.communities import Changes, drop_passage
from perdure.features.facts.units.graphs import ALIASES_MAX, delete_facts, entity_text, restore_fact
from perdure.features.facts.values.facts import FACT_STATES, Entity, Fact, FactFilter, Graph
from perdure.storage.tx import Tx

MERGED_FACTS_MAX = 2_000
"""An entity with more facts is not merged into another one: each gets a new version, in one transaction."""
MARK = "merged_from"
"""What names, in the origin of a version, the entity whose fact it was before a merge."""
HAD = "kept_had"
"""What names, in the attributes of a merged entity, the aliases, the summary and the names of attributes that the kept
one had before."""
BETWEEN_MAX = 1_000


def merge_entities(tx: Tx, graph: Graph, kept: Entity, gone: Entity, *, at: datetime) -> Entity:
    """Merge the entity `gone` into `kept`, which gets its facts and names; return `kept`. Facts between the two are
    deleted. Raises: InvalidInput: they are the same, of two graphs, or `gone` has too many facts."""
    check_separate(tx, kept, gone)
    if kept.seq == gone.seq or kept.graph_id != gone.graph_id:
        raise InvalidInput(f"{gone.name!r:.80} can't be merged into {kept.name!r:.80}: choose two different entities")
    facts = _facts_of(tx, graph, gone, limit=MERGED_FACTS_MAX + 1)
    if len(facts) > MERGED_FACTS_MAX:
        raise InvalidInput(
            f"{gone.name!r:.80} has more than {MERGED_FACTS_MAX:,} facts: merge the other entity into it instead"
        )
    between = [fact for fact in facts if kept.seq in (fact.subject, fact.object)]
    delete_facts(tx, graph, between, origin={"type": "person", MARK: gone.id}, at=at)
    _move(tx, graph, [fact for fact in facts if fact not in between], gone.seq, kept.seq, mark=gone.id, at=at)
    names = [name for name in dict.fromkeys((gone.name, *kept.aliases, *gone.aliases)) if name != kept.name]
    merged = replace(
        kept,
        aliases=tuple(names[:ALIASES_MAX]),
        summary=kept.summary or gone.summary,
        attributes={**gone.attributes, **kept.attributes},
        updated_at=at,
    )
    had = {"aliases": list(kept.aliases), "summary": kept.summary, "attributes": list(kept.attributes)}
    marked = {**gone.attributes, HAD: had}
    tx.of(Entities).put(replace(gone, merged_into=kept.seq, attributes=marked, updated_at=at))
    drop_passage(tx, graph, PassageId(derived_id("passage", gone.id)))
    put_entity(tx, graph, merged)
    return merged


def check_separate(tx: Tx, *entities: Entity) -> None:
    """Raises: InvalidInput: one of these was merged into another entity."""
    for entity in entities:
        for kept in tx.of(Entities).list_by_seqs(entity.graph_id, [entity.merged_into] if entity.merged_into else []):
            raise InvalidInput(f"{entity.name!r:.80} was merged into {kept.name!r:.80}: change that one")


def split_entity(tx: Tx, graph: Graph, gone: Entity, *, at: datetime) -> Entity:
    """Undo that `gone` was merged: give back its names and facts; return it. Raises: Conflict: it was not merged."""
    if gone.merged_into is None:
        raise Conflict(f"{gone.name!r:.80} was not merged into another entity")
    (kept,) = tx.of(Entities).list_by_seqs(graph.id, [gone.merged_into])
    given = {name: value for name, value in gone.attributes.items() if name != HAD}
    own = replace(gone, merged_into=None, attributes=given, updated_at=at)
    tx.of(Entities).put(own)
    tx.passages.add([entity_text(graph, own, at=at)])
    put_entity(tx, graph, replace(_without(kept, own, gone.attributes.get(HAD)), updated_at=at))
    facts = _facts_of(tx, graph, kept)
    histories = tx.of(Facts).histories(graph.id, [fact.first_seq for fact in facts])
    back = [
        fact
        for fact in facts
        if any(one.change == "join" and one.origin.get(MARK) == gone.id for one in histories[fact.first_seq])
    ]
    _move(tx, graph, back, kept.seq, gone.seq, mark=kept.id, at=at)
    for one, other in ((gone.seq, kept.seq), (kept.seq, gone.seq)):
        for fact in tx.of(Facts).list_between(graph.id, one, other, limit=BETWEEN_MAX):
            if fact.is_deletion and fact.origin.get(MARK) == gone.id:
                restore_fact(tx, graph, fact.id, origin={"type": "person"}, at=at)
    return own


def _without(kept: Entity, gone: Entity, had: Any) -> Entity:
    """Return an entity without what a merge gave it; `had`: what it had before, None after an older merge."""
    theirs = {gone.name, *gone.aliases}
    if not isinstance(had, Mapping):
        return replace(kept, aliases=tuple(one for one in kept.aliases if one not in theirs))
    return replace(
        kept,
        aliases=tuple(alias for alias in kept.aliases if alias not in theirs or alias in had["aliases"]),
        summary="" if not had["summary"] and kept.summary == gone.summary else kept.summary,
        attributes={
            name: value
            for name, value in kept.attributes.items()
            if name in had["attributes"] or value != gone.attributes.get(name)
        },
    )


def put_entity(tx: Tx, graph: Graph, entity: Entity) -> None:
    """Store an entity, and the text by which searches find it."""
    tx.of(Entities).put(entity)
    tx.passages.put(entity_text(graph, entity, at=entity.updated_at))


def _facts_of(tx: Tx, graph: Graph, entity: Entity, *, limit: int = 100_000) -> Sequence[Fact]:
    """Load the believed facts that name an entity, in any state, oldest first."""
    where = FactFilter(entities=(entity.seq,), states=FACT_STATES)
    return tx.of(Facts).page(graph.id, where=where, limit=limit)


def _move(tx: Tx, graph: Graph, facts: Sequence[Fact], old: int, new: int, *, mark: str, at: datetime) -> None:
    """Write versions of facts with the entity `new` in place of `old`."""
    expired = tx.of(Facts).expire(graph.id, [fact.seq for fact in facts], at=at)
    versions = [
        replace(
            fact,
            seq=0,
            created_at=max(at, fact.created_at),
            subject=new if fact.subject == old else fact.subject,
            object=new if fact.object == old else fact.object,
            change="join",
            origin={**fact.origin, MARK: mark},
        )
        for fact in expired
    ]
    Changes(expired=[*expired, *tx.of(Facts).add(graph, versions)]).update_communities(tx, graph, at=at)
