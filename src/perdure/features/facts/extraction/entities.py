"""The entities of an extraction: which may be stored, and which known entity each of them is."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from perdure.core.errors import PerdureError
from perdure.core.sources import TRUSTED
from perdure.core.text.credentials import value_without_credentials, without_credentials
from perdure.core.text.dates import spans
from perdure.core.text.forms import match_form, name_key
from perdure.core.tools.arguments import fit_arguments
from perdure.features.facts.extraction.grounds import FIRST_PERSON, speaker_of
from perdure.features.facts.units.graphs import GENERAL_TYPE, VAGUE_TYPES, NewEntity, type_fits
from perdure.features.facts.values.extraction import USER, ExtractedEntity, Extraction, ReadBatch
from perdure.features.facts.values.facts import Entity

ENTITIES_MAX = 50
"""The most entities of one batch."""
ALIASES_MAX = 10
NAME_MAX_CHARS, SUMMARY_MAX_CHARS = 200, 1_000
_PRONOUN = re.compile(
    "i|me|my|mine|myself|we|us|our|you|your|he|him|his|she|her|hers|it|its|they|them|their|this|that|these|those|who"
    "|someone|somebody|everyone|something|我|我们|你|您|你们|他|她|它|他们|她们|它们|自己|这|那|谁|大家",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Entities:
    """The entities of an answer that may be stored.

    Attributes:
        items: in order, the speakers first.
        places: name or alias, as `name_key` writes it -> the place of the entity in `items`.
        ambiguous: names, in the same form, that two entities of the answer have.
    """

    items: Sequence[NewEntity]
    places: Mapping[str, int]
    ambiguous: frozenset[str]

    def find(self, name: str) -> int | None:
        """Return the index of the entity with this name; None: no entity has it, or several have."""
        key = name_key(name)
        return None if key in self.ambiguous else self.places.get(key)


def valid_entities(batch: ReadBatch, extraction: Extraction, dropped: Counter[str]) -> Entities:
    """Return the entities that may be stored, speakers first, resolved to known ones. `dropped`: gains reasons."""
    valid: list[NewEntity] = []
    relations = {fact.relation.replace("_", " ").casefold() for fact in extraction.facts}
    speaker = speaker_of(batch.turns)
    types = {match_form(name): name for name in batch.schema.entity_types}
    for one in extraction.entities[:ENTITIES_MAX]:
        name = " ".join(one.name.split())
        if speaker is not None and name_key(name) == name_key(USER) != name_key(speaker) and not one.known:
            continue
        type_ = types.get(match_form(one.type))
        is_unlisted = type_ is None and not one.known
        one = replace(one, name=name, type=type_ or (GENERAL_TYPE if is_unlisted else one.type))
        reason = _reason_to_drop(batch, one, name)
        if not reason and one.type in VAGUE_TYPES and name_key(name).replace("_", " ") in relations:
            reason = "relation"
        if reason:
            dropped[reason] += 1
        else:
            dropped["unknown entity type"] += is_unlisted
            valid.append(_build(batch, one, extraction, dropped))
    dropped["too many entities"] += max(0, len(extraction.entities) - ENTITIES_MAX)
    valid = _with_speakers(batch, valid)
    by_name: dict[str, NewEntity] = {}
    ambiguous = set()
    for entity in valid:
        key = name_key(entity.name)
        if by_name.setdefault(key, entity).known != entity.known:
            ambiguous.add(key)
    items = list(by_name.values())
    places = {key: place for place, key in enumerate(by_name)}
    for place, entity in enumerate(items):
        for alias in entity.aliases:
            places.setdefault(name_key(alias), place)
    if speaker is not None and name_key(speaker) in places:
        places = dict.fromkeys(FIRST_PERSON, places[name_key(speaker)]) | places
    return Entities(items=items, places=places, ambiguous=frozenset(ambiguous))


def names_of(entity: Entity) -> Iterator[str]:
    """Yield the name and the aliases of a known entity in the form of `name_key`."""
    yield name_key(entity.name)
    yield from map(name_key, entity.aliases)


def _reason_to_drop(batch: ReadBatch, one: ExtractedEntity, name: str) -> str:
    """Return why an entity, under this cleaned name, can't be stored; empty: it can."""
    if not name or len(name) > NAME_MAX_CHARS or not any(map(str.isalnum, name)):
        return "no name"
    if _PRONOUN.fullmatch(name):
        return "pronoun"
    if one.known and not 1 <= one.known <= len(batch.entities):
        return "unknown entity"
    if one.known and one.known > 0 and not _is_plausible(batch, batch.entities[one.known - 1], one, name):
        return "another entity"
    dates = spans(name, now=batch.turns[0].occurred_at) if batch.turns and one.type in ("Concept", "Object") else ()
    return "date" if any(len(span.text) >= len(name) for span in dates) else ""


def _is_plausible(batch: ReadBatch, known: Entity, one: ExtractedEntity, name: str) -> bool:
    """Return whether an entity can be the known one: it has its name, or a trusted turn says the new `name`."""
    if not type_fits(known.type, one.type):
        return False
    if not {name_key(name), *map(name_key, one.aliases)}.isdisjoint(names_of(known)):
        return True
    return is_said(batch, name)


def is_said(batch: ReadBatch, name: str) -> bool:
    """Return whether a trusted turn of the batch, or one before it, has this name or a speaker of this name."""
    said = (turn for turn in (*batch.context, *batch.turns) if turn.trust in TRUSTED)
    return any(name_key(name) in name_key(f"{turn.speaker} {turn.text}") for turn in said)


def _build(batch: ReadBatch, extracted: ExtractedEntity, extraction: Extraction, dropped: Counter[str]) -> NewEntity:
    """Return an entity to store, without credentials and pronouns; if a turn is untrusted, also without what only that
    turn says. `dropped` gains counts of attributes that are left out."""
    place = extracted.known
    if place is None:  # a user who introduces himself is no known entity of that name
        place = 0 if extracted.is_new_name else _resolve(batch, extracted, extraction)
    known = batch.entities[place - 1] if place else None
    aliases = [without_credentials(alias.strip()[:NAME_MAX_CHARS]) for alias in extracted.aliases]
    if any(turn.trust not in TRUSTED for turn in batch.turns):  # untrusted texts must not rename or describe anything
        aliases = [alias for alias in aliases if is_said(batch, alias)]
        extracted = replace(extracted, summary="", attributes={}, is_new_name=False)
    return NewEntity(
        name=without_credentials(extracted.name),
        type=extracted.type,
        known=0 if place == 0 else None if known is None else known.seq,
        is_new_name=extracted.is_new_name,
        aliases=tuple(dict.fromkeys(alias for alias in aliases if alias and not _PRONOUN.fullmatch(alias)))[
            :ALIASES_MAX
        ],
        summary=without_credentials(" ".join(extracted.summary.split())[:SUMMARY_MAX_CHARS]),
        attributes=_attributes(batch, extracted, known, dropped),
    )


def _resolve(batch: ReadBatch, one: ExtractedEntity, extraction: Extraction) -> int | None:
    """Return the number, from 1, of the known entity that `one` names; None: no entity has the name; 0: several could
    be meant. Of several, the only one that a known fact connects with another entity of the extraction is taken."""
    found = [
        place
        for place, known in enumerate(batch.entities, 1)
        if name_key(one.name) in names_of(known) and type_fits(known.type, one.type)
    ]
    if len(found) <= 1:
        return found[0] if found else None
    partners = set()
    for fact in extraction.facts:
        ends = {name_key(fact.subject), name_key(fact.object)}
        if name_key(one.name) in ends:
            partners |= ends - {name_key(one.name)}
    others = {known.seq for known in batch.entities if not partners.isdisjoint(names_of(known))}
    near = [
        place
        for place in found
        for seq in [batch.entities[place - 1].seq]
        if any(
            (fact.subject == seq and fact.object in others) or (fact.object == seq and fact.subject in others)
            for fact in batch.facts
        )
    ]
    return near[0] if len(near) == 1 else 0


def _attributes(
    batch: ReadBatch, one: ExtractedEntity, known: Entity | None, dropped: Counter[str]
) -> Mapping[str, Any]:
    """Return the attributes that fit the schema of the entity's type, each checked alone; count others in `dropped`."""
    schema = batch.schema.entity_types.get(known.type if known else one.type) or {}
    properties = schema.get("properties") or {}
    fitting: dict[str, Any] = {}
    for name, value in one.attributes.items():
        try:
            if name not in properties:
                raise KeyError(name)
            single = {**schema, "properties": {name: properties[name]}, "required": []}
            fitting |= fit_arguments("attributes", single, {name: value_without_credentials(value)})
        except (KeyError, PerdureError):
            dropped["attribute is not of the schema"] += 1
    return fitting


def _with_speakers(batch: ReadBatch, entities: Sequence[NewEntity]) -> list[NewEntity]:
    """Return the entities with the speaking, trusted users first, whether or not the model named them."""
    speakers: list[NewEntity] = []
    others = list(entities)
    for speaker in dict.fromkeys(turn.speaker for turn in batch.turns if turn.is_user and turn.trust in TRUSTED):
        key = name_key(speaker)
        named = [one for one in batch.entities if key in names_of(one)]
        known = [one.seq for one in named]
        index = next(
            (
                index
                for index, one in enumerate(others)
                if key in (name_key(one.name), *map(name_key, one.aliases)) or (one.known and [one.known] == known)
            ),
            None,
        )
        if index is not None:
            entity = others.pop(index)
            speakers.append(replace(entity, known=known[0]) if entity.known is None and len(known) == 1 else entity)
        elif len(named) == 1:
            (one,) = named
            speakers.append(NewEntity(name=one.name, type=one.type, known=one.seq, aliases=one.aliases))
        elif without_credentials(speaker) == speaker:
            speakers.append(NewEntity(name=speaker, type=_person(batch), known=0 if named else None))
    return speakers + others


def _person(batch: ReadBatch) -> str:
    """Return the type of a user: `Person`, or the first of the graph's types if it has no such."""
    types = list(batch.schema.entity_types)
    return "Person" if "Person" in types or not types else types[0]
