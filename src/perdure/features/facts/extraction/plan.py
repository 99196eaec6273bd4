"""What an extraction changes: an extractor's answer, validated against the batch that it read.

Nothing that an extractor returns is stored as it is. What names unknown things, repeats a known fact, claims times that
the turns don't have, or holds what must not be remembered is dropped and counted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import get_args

from perdure.core.sources import TRUSTED, TrustLabel
from perdure.core.text.credentials import without_credentials
from perdure.core.text.forms import match_form, name_key
from perdure.features.facts.extraction.entities import Entities, valid_entities
from perdure.features.facts.extraction.times import DAY, merge_times, parse_time, says_time
from perdure.features.facts.units.graphs import NewEntity
from perdure.features.facts.values.extraction import Decision, ExtractedFact, Extraction, ReadBatch, SpokenTurn
from perdure.features.facts.values.facts import RELATION, Fact, FactRule

FACTS_MAX = 100
"""The most facts of one batch."""
TEXT_MAX_CHARS = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedFact:
    """A fact of an extractor's answer that may be stored.

    Args:
        subject, object: places in `FactPlan.entities`.
        turns: the numbers of the turns that say it.
        known: the stored fact that the decision is about; None: it is about none.
        number: its own number in the answer, from 1.
        earlier: in place of `known` the number of an earlier fact of the answer that the decision is about.
    """

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
    trust: TrustLabel
    number: int = 0
    earlier: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FactPlan:
    """What to store of an extraction. `dropped` is reason -> how many entities or facts are left out for it."""

    entities: Sequence[NewEntity] = ()
    facts: Sequence[PlannedFact] = ()
    dropped: Mapping[str, int] = field(default_factory=dict)


def plan_extraction(batch: ReadBatch, extraction: Extraction) -> FactPlan:
    """Return what is to be stored of an extractor's answer about a batch."""
    dropped: Counter[str] = Counter(extraction.dropped)
    draft = _Draft(batch, valid_entities(batch, extraction, dropped))
    for number, extracted in enumerate(extraction.facts[:FACTS_MAX], 1):
        if reason := draft.add(number, extracted):
            dropped[reason] += 1
    dropped["too many facts"] += max(0, len(extraction.facts) - FACTS_MAX)
    used = {
        place
        for place, one in enumerate(draft.entities.items)
        if one.known or (one.is_new_name and not draft.facts)  # a new name is stored even without a fact
    }
    return with_facts(FactPlan(entities=draft.entities.items, dropped=+dropped), draft.facts, used)


class _Draft:
    """The facts of a plan while they are added, in the order of the answer. A later one may change an earlier one."""

    def __init__(self, batch: ReadBatch, entities: Entities) -> None:
        self.entities = entities
        self._batch = batch
        self._facts: dict[int, PlannedFact] = {}  # by their numbers in the answer
        self._moved: dict[int, int] = {}  # number of a fact that only changed an earlier one -> that one's number

    @property
    def facts(self) -> Sequence[PlannedFact]:
        """The facts of the plan, in order."""
        return list(self._facts.values())

    def add(self, number: int, extracted: ExtractedFact) -> str:
        """Add the fact with this number in the answer; return why it is dropped, empty if it is not."""
        batch, entities = self._batch, self.entities
        if reason := _reason_to_drop(batch, extracted, entities):
            return reason
        if extracted.replaces is not None and not 1 <= extracted.replaces < number:
            return "unknown fact"
        planned = _plan_fact(batch, extracted, entities)
        if isinstance(planned, str):
            return planned
        planned = replace(planned, number=number)
        if extracted.replaces is not None and planned.trust in TRUSTED:
            return self._change(number, planned, self._moved.get(extracted.replaces, extracted.replaces))
        planned = _fit_decision(batch, planned, entities.items)
        if planned.decision == "ADD":
            changed = {fact.earlier for fact in self._facts.values()}
            for place, earlier in self._facts.items():
                if place not in changed and _is_repeated_fact(planned, earlier):
                    if set(planned.turns) <= set(earlier.turns):
                        return "said twice"
                    self._facts[place] = _with_support(earlier, planned)
                    self._moved[number] = place
                    return ""
        self._facts[number] = planned
        return ""

    def _change(self, number: int, planned: PlannedFact, place: int) -> str:
        """Apply a decision about the earlier fact `place` of the answer; return why it is dropped, empty if not."""
        earlier = self._facts.get(place)
        if earlier is None:  # it was dropped: then this fact is a new one, unless it only takes something back
            if planned.decision in ("DELETE", "NONE"):
                return "unknown fact"
            self._facts[number] = _fit_decision(self._batch, replace(planned, decision="ADD"), self.entities.items)
            return ""
        self._moved[number] = place
        turns = tuple(dict.fromkeys((*earlier.turns, *planned.turns)))
        if planned.decision == "NONE":
            self._facts[place] = replace(earlier, turns=turns)
        elif planned.decision == "SUPERSEDE" or turns != earlier.turns:
            # Both are stored, in order: their times say which of them ends, and if the other turns are edited, what
            # these decided can be taken back.
            self._facts[number] = replace(planned, earlier=place)
        elif planned.decision == "DELETE":
            del self._facts[place]
            if earlier.decision in ("NONE", "UPDATE"):
                self._facts[place] = replace(earlier, decision="DELETE")
        else:
            valid_at, invalid_at = merge_times(
                planned.valid_at, planned.invalid_at, before=(earlier.valid_at, earlier.invalid_at)
            )
            self._facts[place] = replace(
                planned,
                decision="UPDATE" if earlier.decision == "NONE" else earlier.decision,
                known=earlier.known,
                number=place,
                earlier=earlier.earlier,
                turns=turns,
                valid_at=valid_at,
                invalid_at=invalid_at,
            )
        if number in self._facts:
            del self._moved[number]
        return ""


def _reason_to_drop(batch: ReadBatch, fact: ExtractedFact, entities: Entities) -> str:
    """Return why a fact of an answer can't be stored; empty: it can."""
    subject, object_ = entities.find(fact.subject), entities.find(fact.object)
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
    ends = entities.items[subject], entities.items[object_]
    if reason := _reason_of_type(batch, fact.type, ends):
        return reason
    if fact.decision not in get_args(Decision):
        return "unknown decision"
    if reason := _reason_of_known(batch, fact, ends):
        return reason
    if any(_is_forbidden(rule, fact, ends) for rule in batch.rules):
        return "must not be remembered"
    return ""


def _reason_of_type(batch: ReadBatch, name: str | None, ends: tuple[NewEntity, NewEntity]) -> str:
    """Return why a fact can't have the type of this name, with its two entities; empty: it can, or has none."""
    if name is None:
        return ""
    type_ = next((fact_type for fact_type in batch.schema.fact_types if fact_type.name == name), None)
    if type_ is None:
        return "unknown fact type"
    known = {entity.seq: entity.type for entity in batch.entities}
    types = [known.get(end.known or 0, end.type) for end in ends]
    return "" if types == [type_.subject_type, type_.object_type] else "entities are not of the fact type"


def _reason_of_known(batch: ReadBatch, fact: ExtractedFact, ends: tuple[NewEntity, NewEntity]) -> str:
    """Return why the decision of a fact can't be carried out, with its two entities; empty: it can."""
    if (fact.decision == "ADD") != (fact.known is None and fact.replaces is None):
        return "unknown fact"
    if fact.known is None:
        return ""
    if fact.replaces is not None or not 1 <= fact.known <= len(batch.facts):
        return "unknown fact"
    known = batch.facts[fact.known - 1]
    return "" if {known.subject, known.object} & {end.known for end in ends} else "decision is about another fact"


def _is_forbidden(rule: FactRule, fact: ExtractedFact, ends: tuple[NewEntity, NewEntity]) -> bool:
    """Return whether a fact, with its two entities, has all that a rule names: words, relation, entity."""
    conditions = []
    if rule.text:
        text = " ".join((fact.text, fact.subject, fact.object))
        conditions.append(match_form(rule.text) in match_form(text))
    if rule.relation is not None:
        conditions.append(rule.relation == fact.relation)
    if rule.entity is not None:
        conditions.append(rule.entity in {end.known for end in ends})
    return bool(conditions) and all(conditions)


def _plan_fact(batch: ReadBatch, fact: ExtractedFact, entities: Entities) -> PlannedFact | str:
    """Return a fact with parsed times and its trust, or why it is dropped: it has a time that its turns don't say."""
    turns = [batch.turns[number - 1] for number in fact.turns]
    valid_at, invalid_at = (parse_time(time, turns[0].occurred_at) for time in (fact.valid_at, fact.invalid_at))
    for text, time in ((fact.valid_at, valid_at), (fact.invalid_at, invalid_at)):
        if text and (time is None or not any(says_time(turn, time) for turn in turns)):
            return "time is not in the text"
    if valid_at and invalid_at and invalid_at < valid_at:
        if all(abs(turn.occurred_at - valid_at) > DAY for turn in turns):
            return "it ends before it begins"
        valid_at = None  # the time at which it was said is not when it began
    subject, object_ = entities.find(fact.subject), entities.find(fact.object)
    assert subject is not None and object_ is not None  # `_reason_to_drop` found them
    planned = PlannedFact(
        text=without_credentials(" ".join(fact.text.split())),
        subject=subject,
        relation=fact.relation,
        object=object_,
        turns=tuple(dict.fromkeys(fact.turns)),
        type=fact.type,
        rating=min(1.0, max(0.0, fact.rating)),
        valid_at=valid_at,
        invalid_at=invalid_at,
        decision=fact.decision,
        known=None if fact.known is None else batch.facts[fact.known - 1],
        trust=_trust(batch, turns, entities.items[object_]),
    )
    # What an untrusted source says adds to what is known, and takes nothing from it.
    if planned.trust not in TRUSTED and planned.decision != "NONE":
        return replace(planned, decision="ADD", known=None)
    return planned


def _fit_decision(batch: ReadBatch, planned: PlannedFact, entities: Sequence[NewEntity]) -> PlannedFact:
    """Return a fact with the decision that fits what is known. A known fact gains a source or an end; if only an
    untrusted source said it, it also gains the trust of this source."""
    same = planned.known if planned.decision == "NONE" else None
    if planned.decision in ("ADD", "SUPERSEDE"):
        same = _known_same(batch, planned, entities)
    if same is None:
        return planned
    says_more = same.trust not in TRUSTED or (planned.invalid_at is not None and same.invalid_at is None)
    return replace(planned, decision="UPDATE" if says_more and planned.trust in TRUSTED else "NONE", known=same)


def _known_same(batch: ReadBatch, planned: PlannedFact, entities: Sequence[NewEntity]) -> Fact | None:
    """Return the known fact with the same content and time; None: there is none."""
    ends = entities[planned.subject].known, entities[planned.object].known
    for fact in batch.facts:
        has_same_ends = (fact.subject, fact.object) == ends and fact.relation == planned.relation
        if (
            (has_same_ends or match_form(fact.text) == match_form(planned.text))
            and (planned.valid_at is None or fact.is_true_at(planned.valid_at))
            and (fact.invalid_at is None or fact.invalid_at == planned.invalid_at)
        ):
            return fact
    return None


def _trust(batch: ReadBatch, turns: Sequence[SpokenTurn], object_: NewEntity) -> TrustLabel:
    """Return the trust of a fact: the least of the turns that say it. If only untrusted turns of the batch name the
    object, it has the trust of the first of these, whichever turns the extractor lists."""
    for turn in turns:
        if turn.trust not in TRUSTED:
            return turn.trust
    names = [name_key(name) for name in (object_.name, *object_.aliases)]
    all_turns = [*batch.context, *batch.turns]
    if not any(_names(turn, names) for turn in all_turns if turn.trust in TRUSTED):
        for turn in all_turns:
            if turn.trust not in TRUSTED and _names(turn, names):
                return turn.trust
    return "user" if any(turn.trust == "user" for turn in turns) else turns[0].trust


def _names(turn: SpokenTurn, names: Sequence[str]) -> bool:
    """Return whether the text of a turn contains one of these names, given as `name_key` writes them."""
    text = name_key(turn.text)
    return any(name in text for name in names)


def with_facts(plan: FactPlan, facts: Sequence[PlannedFact], used: Collection[int] = ()) -> FactPlan:
    """Return the plan with only these facts, and only the entities that they name or whose indexes are `used`."""
    named = {place for fact in facts for place in (fact.subject, fact.object)}
    places = {place: index for index, place in enumerate(sorted(named.union(used)))}
    moved = [replace(fact, subject=places[fact.subject], object=places[fact.object]) for fact in facts]
    return replace(plan, entities=[plan.entities[place] for place in places], facts=moved)


def with_name_alone(batch: ReadBatch, plan: FactPlan) -> FactPlan:
    """Return the plan with the name that its user says as a fact, if the plan has no other fact."""
    for place, one in enumerate(plan.entities):
        turns = [turn for turn in batch.turns if turn.is_user and name_key(one.name) in name_key(turn.text)]
        if plan.facts or not one.is_new_name or not turns:
            continue
        known = [fact for fact in batch.facts if fact.relation == "HAS_NAME" and fact.subject == one.known]
        fact = PlannedFact(
            text=f"The name of the user is {one.name}.",
            subject=place,
            relation="HAS_NAME",
            object=len(plan.entities),
            turns=(turns[-1].number,),
            type=None,
            rating=0.8,
            valid_at=None,
            invalid_at=None,
            decision="UPDATE" if known else "ADD",
            known=known[0] if known else None,
            trust="user",
        )
        return replace(plan, entities=[*plan.entities, NewEntity(name="Name", type="Concept")], facts=[fact])
    return plan


def _is_repeated_fact(one: PlannedFact, earlier: PlannedFact) -> bool:
    """Return whether `one` repeats an earlier fact of the batch, for a time at which that is true."""
    if (one.subject, one.relation, one.object) != (earlier.subject, earlier.relation, earlier.object):
        return False
    if one.invalid_at != earlier.invalid_at or earlier.decision == "DELETE":
        return False
    return one.valid_at is None or earlier.valid_at is None or earlier.valid_at <= one.valid_at


def _with_support(earlier: PlannedFact, planned: PlannedFact) -> PlannedFact:
    """Return a fact with the turns of `planned`, a repetition of it, and with its trust if that is higher."""
    return replace(
        earlier,
        turns=tuple(dict.fromkeys((*earlier.turns, *planned.turns))),
        valid_at=earlier.valid_at or planned.valid_at,
        rating=max(earlier.rating, planned.rating),
        trust=earlier.trust if earlier.trust in TRUSTED else planned.trust,
    )
