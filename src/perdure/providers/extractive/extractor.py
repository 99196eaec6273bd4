"""The extractor without a model: facts that people state about themselves, by the patterns of `facts`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC
from typing import Final

from perdure.core.facts.extraction import Batch, Decision, ExtractedEntity, ExtractedFact, Extraction, Turn
from perdure.core.facts.values import Entity
from perdure.core.models import EXTRACTIVE
from perdure.providers.extractive.facts import Fact as Statement
from perdure.providers.extractive.facts import facts_in

RELATIONS: Final[Mapping[str, tuple[str, str]]] = {
    "Age": ("HAS_AGE", "Concept"),
    "Lives in": ("LIVES_IN", "Location"),
    "From": ("COMES_FROM", "Location"),
    "Works as": ("WORKS_AS", "Concept"),
    "Works at": ("WORKS_AT", "Organization"),
    "Likes": ("LIKES", "Preference"),
    "Dislikes": ("DISLIKES", "Preference"),
}
"""Key of a statement -> relation and type of the object."""

SINGLE: Final = frozenset({"HAS_AGE", "LIVES_IN", "WORKS_AS", "WORKS_AT"})
"""Relations of which a person has one object at a time: a new one ends the one before."""

OPPOSITES: Final[Mapping[str, str]] = {"LIKES": "DISLIKES", "DISLIKES": "LIKES"}

_SENTENCES: Final[Mapping[str, str]] = {
    "HAS_AGE": "{} is {} years old.",
    "LIVES_IN": "{} lives in {}.",
    "COMES_FROM": "{} comes from {}.",
    "WORKS_AS": "{} works as {}.",
    "WORKS_AT": "{} works at {}.",
    "LIKES": "{} likes {}.",
    "DISLIKES": "{} dislikes {}.",
}


class PatternExtractor:
    """`Extractor` by patterns, in English and Chinese, of what users say. Equal batches give equal answers."""

    async def extract(self, batch: Batch) -> Extraction:
        """Raise nothing, whatever the batch holds."""
        return _Extraction(batch).run()


class _Extraction:
    """One extraction, turn by turn."""

    def __init__(self, batch: Batch) -> None:
        self._batch = batch
        self._entities: dict[str, ExtractedEntity] = {}
        self._facts: list[ExtractedFact] = []
        self._known = {name.casefold(): (place, one) for place, one, name in _names(batch)}

    def run(self) -> Extraction:
        """Extract from all turns of users."""
        for turn in self._batch.turns:
            if turn.is_user:
                for statement in facts_in(turn.text):
                    self._add(turn, statement)
        return Extraction(entities=list(self._entities.values()), facts=self._facts, model=EXTRACTIVE)

    def _add(self, turn: Turn, statement: Statement) -> None:
        """Add what a statement says about the speaker."""
        if statement.key == "Name":
            self._entity(turn.speaker, "Person", aliases=(statement.value,))
            return
        relation, kind = RELATIONS.get(statement.key, ("", ""))
        if not relation:
            return
        subject = self._entity(turn.speaker, "Person")
        object_ = self._entity(statement.value, kind)
        decision, known = self._decide(subject, relation, object_)
        self._facts.append(
            ExtractedFact(
                subject=subject.name,
                relation=relation,
                object=object_.name,
                text=_SENTENCES[relation].format(subject.name, object_.name),
                turns=(turn.number,),
                valid_at=turn.occurred_at.astimezone(UTC).isoformat(),
                decision=decision,
                known=known,
            )
        )

    def _entity(self, name: str, kind: str, *, aliases: tuple[str, ...] = ()) -> ExtractedEntity:
        """Return the entity of this name, the known one if there is one."""
        key = name.casefold()
        if key in self._entities and not aliases:
            return self._entities[key]
        place, known = self._known.get(key, (None, None))
        entity = ExtractedEntity(
            name=known.name if known else name, type=known.type if known else kind, known=place, aliases=aliases
        )
        self._entities[key] = entity
        return entity

    def _decide(self, subject: ExtractedEntity, relation: str, object_: ExtractedEntity) -> tuple[Decision, int | None]:
        """Return what a statement means for the known facts, and the place of the known one."""
        if subject.known is None:
            return "ADD", None
        seq = self._batch.entities[subject.known - 1].seq
        other = None if object_.known is None else self._batch.entities[object_.known - 1].seq
        for place, fact in enumerate(self._batch.facts, 1):
            if fact.subject != seq or fact.invalid_at is not None:
                continue
            if fact.relation == relation and fact.object == other:
                return "NONE", place
            ends = fact.relation == relation and relation in SINGLE
            if ends or (fact.relation == OPPOSITES.get(relation) and fact.object == other):
                return "SUPERSEDE", place
        return "ADD", None


def _names(batch: Batch) -> Iterator[tuple[int, Entity, str]]:
    """Yield place, entity and name of all names of known entities; main names last, for they count more."""
    for place, entity in enumerate(batch.entities, 1):
        yield from ((place, entity, alias) for alias in entity.aliases)
    yield from ((place, entity, entity.name) for place, entity in enumerate(batch.entities, 1))
