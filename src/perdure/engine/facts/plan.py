"""What an extraction changes: an extractor's answer, validated against the batch that it read.

Nothing that an extractor returns is stored as it is. What names unknown things, repeats a known fact, claims times that
the turns don't have, or holds what must not be remembered is dropped and counted.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta

from perdure.core.facts.credentials import without_credentials
from perdure.core.facts.extraction import Batch, Decision, ExtractedEntity, ExtractedFact, Extraction, Turn
from perdure.core.facts.values import TRUSTED, Fact, Trust
from perdure.domain.facts.graphs import NewEntity
from perdure.search.query.dates import spans

ENTITIES_MAX, FACTS_MAX = 50, 100
"""The most entities and facts of one batch."""
NAME_MAX_CHARS, TEXT_MAX_CHARS = 200, 1_000
RELATION = re.compile(r"[A-Z][A-Z0-9_]{1,59}")
_PRONOUN = re.compile(
    "i|me|my|mine|myself|we|us|our|you|your|he|him|his|she|her|hers|it|its|they|them|their|this|that|these|those|who"
    "|someone|somebody|everyone|something|我|我们|你|您|你们|他|她|它|他们|她们|它们|自己|这|那|谁|大家",
    re.IGNORECASE,
)
_YEAR = re.compile(r"(?<!\d)(1[5-9]\d\d|20\d\d)(?!\d)")


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedFact:
    """A valid fact. `subject` and `object` are places in `Plan.entities`; `known` is the fact that the decision is
    about; `turns` are the numbers of the turns that say it."""

    text: str
    subject: int
    relation: str
    object: int
    turns: tuple[int, ...]
    type: str | None
    rating: float
    valid_at: datetime | None
    invalid_at: datetime | None
    decision: Decision
    known: Fact | None
    trust: Trust


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What to store: entities, facts, and how often something was dropped, by reason."""

    entities: Sequence[NewEntity] = ()
    facts: Sequence[PlannedFact] = ()
    dropped: Mapping[str, int] = field(default_factory=dict)


def plan_extraction(batch: Batch, extraction: Extraction) -> Plan:
    """Validate an extraction and return what it changes."""
    dropped: Counter[str] = Counter(extraction.dropped)
    entities = _valid_entities(batch, extraction.entities, dropped)
    places = {_key(name): place for place, entity in enumerate(entities) for name in (entity.name, *entity.aliases)}
    facts: list[PlannedFact] = []
    for extracted in extraction.facts[:FACTS_MAX]:
        reason = _reason_to_drop(batch, extracted, places)
        planned = None if reason else _plan_fact(batch, extracted, places, entities)
        if planned is None:
            dropped[reason or "time is not in the text"] += 1
        elif planned.decision == "ADD" and any(_same(planned, other) for other in facts):
            dropped["said twice"] += 1
        else:
            facts.append(planned)
    dropped["too many facts"] += max(0, len(extraction.facts) - FACTS_MAX)
    return _used_entities(entities, facts, {reason: count for reason, count in dropped.items() if count})


def _valid_entities(batch: Batch, extracted: Sequence[ExtractedEntity], dropped: Counter[str]) -> list[NewEntity]:
    """Return the entities that may be stored, each name once."""
    valid: dict[str, NewEntity] = {}
    for one in extracted[:ENTITIES_MAX]:
        name = " ".join(one.name.split())
        if not name or len(name) > NAME_MAX_CHARS or not any(map(str.isalnum, name)):
            dropped["no name"] += 1
        elif _PRONOUN.fullmatch(name):
            dropped["pronoun"] += 1
        elif one.known is not None and not 1 <= one.known <= len(batch.entities):
            dropped["unknown entity"] += 1
        elif one.type not in batch.schema.entity_types and one.known is None:
            dropped["unknown entity type"] += 1
        elif _key(name) not in valid:
            known = None if one.known is None else batch.entities[one.known - 1].seq
            aliases = tuple(alias for alias in map(str.strip, one.aliases) if alias and not _PRONOUN.fullmatch(alias))
            schema = batch.schema.entity_types.get(one.type, {})
            attributes = {key: value for key, value in one.attributes.items() if key in schema.get("properties", {})}
            valid[_key(name)] = NewEntity(
                name=without_credentials(name),
                type=one.type,
                known=known,
                aliases=aliases[:10],
                summary=without_credentials(one.summary[:TEXT_MAX_CHARS]),
                attributes=attributes,
            )
    dropped["too many entities"] += max(0, len(extracted) - ENTITIES_MAX)
    return list(valid.values())


def _reason_to_drop(batch: Batch, fact: ExtractedFact, places: Mapping[str, int]) -> str:
    """Return why a fact can't be stored; empty: it can."""
    subject, object_ = places.get(_key(fact.subject)), places.get(_key(fact.object))
    if subject is None or object_ is None:
        return "unknown entity"
    if subject == object_:
        return "subject is object"
    if not RELATION.fullmatch(fact.relation):
        return "relation is not in SCREAMING_SNAKE_CASE"
    if not fact.text.strip() or len(fact.text) > TEXT_MAX_CHARS:
        return "text is empty or too long"
    if not fact.turns or any(not 1 <= number <= len(batch.turns) for number in fact.turns):
        return "unknown turn"
    if fact.type is not None and fact.type not in {one.name for one in batch.schema.fact_types}:
        return "unknown fact type"
    if fact.decision not in ("ADD", "UPDATE", "SUPERSEDE", "DELETE", "NONE"):
        return "unknown decision"
    if (fact.known is None) != (fact.decision == "ADD") or (
        fact.known is not None and not 1 <= fact.known <= len(batch.facts)
    ):
        return "unknown fact"
    if any(_is_forbidden(batch, fact, rule.text, rule.relation) for rule in batch.rules):
        return "must not be remembered"
    return ""


def _is_forbidden(batch: Batch, fact: ExtractedFact, text: str, relation: str | None) -> bool:
    """Return whether a rule's words or relation are a fact's."""
    if relation is not None and relation != fact.relation:
        return False
    return bool(relation) or (bool(text) and text.casefold() in fact.text.casefold())


def _plan_fact(
    batch: Batch, fact: ExtractedFact, places: Mapping[str, int], entities: Sequence[NewEntity]
) -> PlannedFact | None:
    """Return a fact with parsed times; None: it claims a time that its turns don't have."""
    turns = [batch.turns[number - 1] for number in fact.turns]
    valid_at, invalid_at = _parse_time(fact.valid_at), _parse_time(fact.invalid_at)
    for text, time in ((fact.valid_at, valid_at), (fact.invalid_at, invalid_at)):
        if text and (time is None or not any(_names_time(turn, time) for turn in turns)):
            return None
    if valid_at and invalid_at and invalid_at < valid_at:
        return None
    known = None if fact.known is None else batch.facts[fact.known - 1]
    planned = PlannedFact(
        text=without_credentials(" ".join(fact.text.split())),
        subject=places[_key(fact.subject)],
        relation=fact.relation,
        object=places[_key(fact.object)],
        turns=tuple(dict.fromkeys(fact.turns)),
        type=fact.type,
        rating=min(1.0, max(0.0, fact.rating)),
        valid_at=valid_at,
        invalid_at=invalid_at,
        decision=fact.decision,
        known=known,
        trust=_least_trusted(turns),
    )
    if planned.decision == "ADD" and (same := _known_same(batch, planned, entities)) is not None:
        return replace(planned, decision="NONE", known=same)
    # What an untrusted source says adds to what is known, and takes nothing from it.
    if planned.trust not in TRUSTED and planned.decision != "NONE":
        return replace(planned, decision="ADD", known=None)
    return planned


def _known_same(batch: Batch, planned: PlannedFact, entities: Sequence[NewEntity]) -> Fact | None:
    """Return the known fact that says the same of the same time, if there is one."""
    subject, object_ = entities[planned.subject].known, entities[planned.object].known
    for fact in batch.facts:
        if fact.text.casefold() == planned.text.casefold() or (
            subject is not None
            and (fact.subject, fact.relation, fact.object) == (subject, planned.relation, object_)
            and (planned.valid_at is None or fact.is_true_at(planned.valid_at))
            and planned.invalid_at in (None, fact.invalid_at)
        ):
            return fact
    return None


def _names_time(turn: Turn, time: datetime) -> bool:
    """Return whether a turn gives a time: as its own, by a date or period in its text, or by the year."""
    if abs(time - turn.occurred_at) <= timedelta(days=1):
        return True
    named = spans(turn.text, now=turn.occurred_at, timezone="UTC")
    if any(span.start - timedelta(days=1) <= time <= span.end + timedelta(days=1) for span in named):
        return True
    return str(time.year) in _YEAR.findall(turn.text)


def _parse_time(text: str | None) -> datetime | None:
    """Return a time in ISO 8601, of which a date or a year alone means its first moment in UTC; None: it is none."""
    if not text:
        return None
    text = (
        f"{text}-01-01" if re.fullmatch(r"\d{4}", text) else f"{text}-01" if re.fullmatch(r"\d{4}-\d\d", text) else text
    )
    try:
        time = datetime.fromisoformat(text)
        return time.replace(tzinfo=UTC) if time.tzinfo is None else time.astimezone(UTC)
    except (ValueError, OverflowError):
        return None


def _least_trusted(turns: Sequence[Turn]) -> Trust:
    """Return the trust of facts that these turns say."""
    return next((turn.trust for turn in turns if turn.trust not in TRUSTED), turns[0].trust)


def _used_entities(entities: Sequence[NewEntity], facts: Sequence[PlannedFact], dropped: Mapping[str, int]) -> Plan:
    """Return the plan without new entities that no fact names."""
    used = {place for fact in facts for place in (fact.subject, fact.object)}
    used |= {place for place, entity in enumerate(entities) if entity.known is not None}
    places = {place: index for index, place in enumerate(sorted(used))}
    moved = [replace(fact, subject=places[fact.subject], object=places[fact.object]) for fact in facts]
    return Plan(entities=[entities[place] for place in places], facts=moved, dropped=dropped)


def _same(one: PlannedFact, other: PlannedFact) -> bool:
    """Return whether two facts of a batch say the same."""
    return (one.subject, one.relation, one.object, one.valid_at, one.invalid_at) == (
        other.subject,
        other.relation,
        other.object,
        other.valid_at,
        other.invalid_at,
    )


def _key(name: str) -> str:
    """Return the form in which names are compared."""
    return " ".join(name.split()).casefold()
