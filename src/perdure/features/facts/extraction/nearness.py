"""Entities by vectors: between exact names, which need none, and the model, which decides what is unclear.

The model is shown the known entities that are near to what was said. Without one, or where it was shown none, a new
name becomes a known entity only if their names are nearly equal in meaning; everything else stays apart.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

from perdure.core.text.forms import name_key
from perdure.engine.ports import Ports
from perdure.features.facts.extraction.entities import ENTITIES_MAX, is_said, names_of
from perdure.features.facts.tables import Entities
from perdure.features.facts.units.graphs import type_fits
from perdure.features.facts.values.extraction import ExtractedEntity, Extraction, ReadBatch
from perdure.features.facts.values.facts import Entity, Graph
from perdure.storage.tx import Tx

# Measured with the local model on 48 pairs of names: from 0.94 on all are the same (`Oslo University` and
# `University of Oslo`: 0.985); `Monday meeting` and `Tuesday meeting` have 0.912, `Milan` and `AC Milan` 0.903.
SAME_COSINE = 0.94
"""The cosine of two names from which they are of one entity."""
SAME_MARGIN = 0.02
"""How much nearer the best known name has to be than that of any other entity."""
SHOWN_COSINE = 0.3
"""The cosine of a turn and a known entity from which the entity is shown to the model."""
NEAREST, SHOWN_MAX = 4, 10
"""The most entities that are compared with one name, and that a model is shown beside those of the turns' names."""
APART_TYPES = frozenset({"Person"})
"""Types that vectors never make one: two people may have the same name."""
_NUMBER = re.compile(r"\d+")


async def show_near(ports: Ports, graph: Graph, batch: ReadBatch) -> ReadBatch:
    """Return the batch with known entities added that are near to its turns. Raises: NotFound, StoreError."""
    found = await ports.search.nearest(graph.entity_archive_id, [turn.text for turn in batch.turns], limit=NEAREST)
    near: dict[int, float] = {}
    for of_turn in found:
        for source, cosine in of_turn:
            if (seq := source.get("entity_seq")) is not None and cosine >= SHOWN_COSINE:
                near[seq] = max(cosine, near.get(seq, 0.0))
    shown = {entity.seq for entity in batch.entities}
    seqs = [seq for seq in sorted(near, key=lambda seq: -near[seq]) if seq not in shown][:SHOWN_MAX]
    more = await ports.store.read(lambda tx: tx.of(Entities).list_by_seqs(graph.id, seqs)) if seqs else ()
    return replace(batch, entities=[*batch.entities, *more])


async def find_same(
    ports: Ports, graph: Graph, batch: ReadBatch, extraction: Extraction, *, shown: bool
) -> tuple[ReadBatch, Extraction]:
    """Return the batch and the extraction, with new entities replaced by the known ones that they mean, as compared by
    vectors. With `shown` the extractor saw the entities of the batch, and has distinguished them itself. Raises:
    NotFound, StoreError."""
    new = await ports.store.read(_new_entities, graph, batch, extraction)
    if not new:
        return batch, extraction
    found = await ports.search.nearest(graph.entity_archive_id, [one.name for one in new], limit=NEAREST)
    excluded = {entity.seq for entity in batch.entities} if shown else set()
    seqs = sorted({source["entity_seq"] for near in found for source, _ in near if "entity_seq" in source} - excluded)
    known = {one.seq: one for one in await ports.store.read(lambda tx: tx.of(Entities).list_by_seqs(graph.id, seqs))}
    candidates = {
        one.name: [
            known[source["entity_seq"]]
            for source, _ in near
            if source.get("entity_seq") in known and _may_be_one(one, known[source["entity_seq"]])
        ]
        for one, near in zip(new, found, strict=True)
    }
    same = await _resolve_names(ports, {name: entities for name, entities in candidates.items() if entities})
    if not same:
        return batch, extraction
    places = {entity.seq: place for place, entity in enumerate(batch.entities, 1)}
    entities = list(batch.entities)
    for entity in same.values():
        if entity.seq not in places:
            entities.append(entity)
            places[entity.seq] = len(entities)
    extracted = [
        replace(one, known=places[same[one.name].seq]) if one.name in same and one.known is None else one
        for one in extraction.entities
    ]
    return replace(batch, entities=entities), replace(extraction, entities=extracted)


async def _resolve_names(ports: Ports, candidates: Mapping[str, Sequence[Entity]]) -> Mapping[str, Entity]:
    """Return name -> the entity of its candidates that it means: the one with the nearest name, if that is nearly equal
    and no other one is as near. Names that mean none are left out."""
    names = list(
        dict.fromkeys([*candidates, *(one for some in candidates.values() for e in some for one in names_of(e))])
    )
    vectors = await ports.search.embed(names)
    if vectors is None:
        return {}
    vector_of = dict(zip(names, vectors, strict=True))
    same: dict[str, Entity] = {}
    for name, entities in candidates.items():
        scored = sorted(
            ((max(float(vector_of[name] @ vector_of[one]) for one in names_of(entity)), entity) for entity in entities),
            key=lambda pair: -pair[0],
        )
        second = scored[1][0] if len(scored) > 1 else 0.0
        if scored[0][0] >= SAME_COSINE and scored[0][0] - second >= SAME_MARGIN:
            same[name] = scored[0][1]
    return same


def _new_entities(tx: Tx, graph: Graph, batch: ReadBatch, extraction: Extraction) -> Sequence[ExtractedEntity]:
    """Return the extracted entities that nothing known has a name of, without people and speakers."""
    speakers = {name_key(turn.speaker) for turn in batch.turns}
    candidates = [
        entity
        for entity in extraction.entities[:ENTITIES_MAX]
        if entity.known is None and entity.type not in APART_TYPES and name_key(entity.name) not in speakers
        if entity.name.strip() and is_said(batch, entity.name)
    ]
    named = tx.of(Entities).find_by_names(graph.id, [name for one in candidates for name in (one.name, *one.aliases)])
    return [one for one in candidates if not any(named[name] for name in (one.name, *one.aliases))]


def _may_be_one(new: ExtractedEntity, known: Entity) -> bool:
    """Return whether a name may mean a known entity: no person, a fitting type, and the same numbers in its name."""
    numbers = [sorted(_NUMBER.findall(name)) for name in (new.name, known.name)]
    return known.type not in APART_TYPES and type_fits(known.type, new.type) and numbers[0] == numbers[1]
