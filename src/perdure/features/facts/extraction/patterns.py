"""The extractor without a model: what people state about themselves and their families, by patterns.

A JSON document is read by a fixed table of keys: `{"user": {"name": "Ada", "city": "Turin"}}` says where Ada lives. It
comes as `units.documents` renders it, a line for each value: `user, city: Turin`. Only records of people are
read, and of them only keys that name a known relation.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Final

from perdure.core.models import EXTRACTIVE
from perdure.core.text.dates import spans
from perdure.core.text.zones import local
from perdure.features.facts.values.extraction import (
    USER,
    Decision,
    ExtractedEntity,
    ExtractedFact,
    Extraction,
    ReadBatch,
    SpokenTurn,
)
from perdure.features.facts.values.facts import Entity
from perdure.providers.extractive.language import KIN, asks, language_of, load_table
from perdure.providers.extractive.statements import (
    BIRTHDAY,
    NAME,
    OBJECT_SIGNS,
    OBJECT_WORDS,
    RELATIONS,
    Statement,
    statements_in,
)

_DOCUMENTS: Final = load_table("documents")
_KEYS: Final = {word: key for key, words in _DOCUMENTS["listed"].items() for word in words}
"""Key of a document -> key of a fact in `statements.RELATIONS`, or a relation of its own."""
_OF_PEOPLE_ONLY, _SPEAKER, _PARTS, _TITLES, _JOBS, _SAYING = (
    frozenset[str](_DOCUMENTS[name]) for name in ("of_people_only", "speaker", "parts", "titles", "jobs", "saying")
)
_PERSON: Final = frozenset(KIN) | frozenset(_DOCUMENTS["person"])
_TOLD_OF = re.compile(r"\b(?:The u|the u|U)ser\b(?: (?P<name>[A-Z][\w'-]+(?: [A-Z][\w'-]+){0,2})(?= [a-z]))?")
_NAME_TOLD = re.compile(r"\b(?:The u|the u|U)ser(?:'s name is| is (?:called|named))\b")
_TELLS = r"(?:lives in|works (?:at|as|for)|comes from|is from|likes|dislikes|loves|hates|enjoys)"
_TELLS_TWICE = re.compile(
    rf"(?P<who>{_TOLD_OF.pattern}) (?P<said>{_TELLS} [^.;\n]{{1,100}}?)(?:,|,? and) (?={_TELLS} )"
)
_LINE = re.compile(r"(?P<path>[^:：\n]+): (?P<value>.+)")


def statements_in_document(text: str, *, now: datetime) -> Sequence[Statement]:
    """Return the statements about people in a rendered JSON document, in order; `now` is when it was written."""
    records: dict[tuple[str, ...], list[tuple[str, str]]] = {}
    for match in filter(None, map(_LINE.fullmatch, text.splitlines())):
        *path, key = (part.strip().casefold() for part in match["path"].split(","))
        record, key = _record_path(path, key)
        if key:
            records.setdefault(record, []).append((key, match["value"].strip()))
    return [one for path, values in records.items() for one in _read_record(path, values, now)]


def document_values(text: str, speaker: str) -> Sequence[str]:
    """Return the values of a rendered JSON document that may be the speaker's own words, by names in its records."""
    lines = [
        (tuple(match["path"].casefold().split(", ")), match["value"].strip())
        for match in filter(None, map(_LINE.fullmatch, text.splitlines()))
    ]
    speakers = {path[:-1]: value for path, value in lines if path[-1] in _SAYING}
    own = {
        path
        for path, name in speakers.items()
        if name == speaker or _SPEAKER.intersection((*path[-1:], name.casefold()))
    }
    others = speakers.keys() - own
    return [
        value
        for (*record, _), value in lines
        if tuple(record) in own or not any(tuple(record[: len(other)]) == other for other in others)
    ]


def in_first_person(text: str) -> tuple[str, Mapping[str, str]]:
    """Return a program's text about its user, with the user's names put into the first person, and name -> subject of
    such sentences; empty: the speaker. "The user Ada" is Ada, but names no speaker in "the user Service lives in a
    container"."""
    for _ in range(3):  # "lives in Ghent, likes tea and works at Fiat": as many sentences as it has verbs
        text = _TELLS_TWICE.sub(r"\g<who> \g<said>. \g<who> ", text)
    named = {match[0]: match["name"] or "" for match in _TOLD_OF.finditer(text)}
    return _NAME_TOLD.sub("My name is", text), dict(sorted(named.items(), key=lambda one: -len(one[0])))


def _record_path(path: list[str], key: str) -> tuple[tuple[str, ...], str]:
    """Return the path of the record that a value belongs to, and the key of the fact that it says; empty: of none."""
    if key == "name" and path and path[-1] in _KEYS and path[-1] not in _PERSON:  # "user, company, name"
        key = path.pop()
    elif key in _TITLES:
        key = "job" if path and path[-1] in _JOBS else key
    while path and path[-1] in _PARTS:
        path.pop()
    return tuple(path), _KEYS.get(key, "")


def _read_record(path: tuple[str, ...], values: Sequence[tuple[str, str]], now: datetime) -> Iterator[Statement]:
    """Yield the statements of one record of a document, if it is of a person. `path` has the keys that lead to the
    record, `values` are pairs of a fact's key and its value, and it was written `now`."""
    word = next((part for part in reversed(path) if not part.isdigit()), "")
    name = next((value for key, value in values if key == NAME and _is_short(value)), "")
    if word in _SPEAKER:
        subject = ""
        if name:
            yield Statement(relation=NAME, object=name, kind="Person")
    elif name and (word in _PERSON or _OF_PEOPLE_ONLY & {key for key, _ in values}):
        subject = name
        if word in KIN:
            yield Statement(relation=f"{KIN[word]}_OF", object=name, kind="Person", word=word)
    else:
        return
    for key, value in values:
        if key == BIRTHDAY and next(iter(spans(value, now=now)), None):
            yield Statement(relation=BIRTHDAY, object=value, kind="Event", subject=subject)
        if key in RELATIONS:
            relation, kind = RELATIONS[key]
            for item in filter(_is_short, value.split("; ")):
                item = f"{item} years old" if key == "Age" and item.isdecimal() else item
                yield Statement(relation=relation, object=item, kind=kind, subject=subject)


def _is_short(value: str) -> bool:
    """Return whether a value is as short as a name can be."""
    return bool(value) and len(value.split()) <= OBJECT_WORDS and len(value) <= OBJECT_SIGNS


SINGLE: Final = frozenset({"HAS_AGE", "LIVES_IN", "COMES_FROM", "WORKS_AS", "WORKS_AT", "HAS_BIRTHDAY"})
"""Relations of which a person has one object at a time: a new one ends the one before."""

CORRECTABLE: Final = frozenset({"HAS_AGE", "LIVES_IN", "COMES_FROM", "WORKS_AS", "WORKS_AT", "LIKES", "DISLIKES"})
"""Relations of one verb: they begin with the turn unless it says another time, and "I meant" puts another object in."""

OPPOSITES: Final[Mapping[str, str]] = {"LIKES": "DISLIKES", "DISLIKES": "LIKES"}

# Relation -> the sentence in English and in Chinese, now and in the past.
_SENTENCES: Final[Mapping[str, Sequence[str]]] = load_table("phrases")["of_relations"]


class PatternExtractor:
    """`Extractor` by patterns, in English and Chinese, of what users say. Equal batches give equal answers."""

    async def extract(self, batch: ReadBatch) -> Extraction:
        """Return what the users of a batch state. Raises nothing, whatever the batch holds."""
        return _BatchExtraction(batch).run()


class _BatchExtraction:
    """The extraction of one batch, in progress."""

    def __init__(self, batch: ReadBatch) -> None:
        self._batch = batch
        self._entities: dict[str, ExtractedEntity] = {}
        self._facts: list[ExtractedFact] = []
        # Name -> place in the batch and known entity; without the names that several have: patterns can't tell which.
        self._known: dict[str, tuple[int, Entity]] = {}
        self._shared_names = set()
        for place, entity, name in _names(batch):
            key = name.casefold()
            if self._known.setdefault(key, (place, entity))[1].seq != entity.seq:
                self._shared_names.add(key)
        for key in self._shared_names:
            del self._known[key]

    def run(self) -> Extraction:
        """Return what all turns of users say: names first, so that facts have them."""
        people = [name for _, one, name in _names(self._batch) if one.type == "Person" and name != USER]
        found: list[tuple[SpokenTurn, Statement]] = []
        before: list[str] = []
        for turn in (*self._batch.context, *self._batch.turns):
            if turn.is_user and turn in self._batch.turns:
                is_json = turn.kind == "json"
                previous = before[-1] if before and not is_json else ""
                new = [*statements_in_document(turn.text, now=turn.occurred_at)] if is_json else []
                text, told_of = in_first_person(turn.text) if turn.kind == "text" else (turn.text, {})
                for words in document_values(turn.text, turn.speaker) if is_json else (text,):
                    spoken = statements_in(words, now=turn.occurred_at, people=[*told_of, *people], before=previous)
                    new += [replace(one, subject=told_of.get(one.subject, one.subject)) for one in spoken]
                found += [(turn, statement) for statement in new]
            before = [turn.text] if turn.is_user else [] if asks(turn.text) else before
        for turn, statement in found:
            if statement.relation == NAME and not statement.subject:
                self._name(turn.speaker, statement)
        for turn, statement in found:
            if statement.relation != NAME and statement.subject.casefold() not in self._shared_names:
                self._add(turn, statement)
        return Extraction(entities=list(self._entities.values()), facts=self._facts, model=EXTRACTIVE)

    def _name(self, speaker: str, statement: Statement) -> None:
        """Set the speaker's name from a statement, and keep the former as alias; or remove the name if it is denied."""
        entity, name = self._entity(speaker, "Person"), statement.object
        if statement.mode != "is":
            name = speaker if entity.name.casefold() == name.casefold() else entity.name
        if name.casefold() != entity.name.casefold():
            aliases = tuple(one for one in (*entity.aliases, entity.name) if one.casefold() != name.casefold())
            self._entities[speaker.casefold()] = replace(entity, name=name, aliases=aliases, is_new_name=True)

    def _add(self, turn: SpokenTurn, statement: Statement) -> None:
        """Add the fact of a statement, with its entities and times."""
        subject = self._entity(statement.subject or turn.speaker, "Person")
        if not statement.object:
            if (present := self._present_object(subject, statement.relation)) is None:
                return
            statement = replace(statement, object=present)
        object_ = self._entity(statement.object, statement.kind)
        if subject.name == object_.name or object_.name.casefold() in self._shared_names:
            return
        now = turn.occurred_at
        valid_at = statement.valid_at
        invalid_at = statement.invalid_at or (now if statement.mode in ("was", "not", "ends") else None)
        if statement.mode == "is" and valid_at is None and not statement.old and statement.relation in CORRECTABLE:
            valid_at = now
        fact = ExtractedFact(
            subject=subject.name,
            relation=statement.relation,
            object=object_.name,
            text=_sentence(turn, statement, subject.name, object_.name),
            turns=(turn.number,),
            valid_at=_iso(valid_at, now),
            invalid_at=_iso(invalid_at, now),
        )
        if statement.word and statement.relation != "HAS_PET":  # "my sister Eva": the relation is hers to the speaker
            fact = replace(fact, subject=object_.name, object=subject.name)
            subject, object_ = object_, subject
        self._decide(statement, fact, subject)

    def _decide(self, statement: Statement, fact: ExtractedFact, subject: ExtractedEntity) -> None:
        """Add a fact with the decision that follows from an earlier fact of the batch, or from a known one."""
        target = self._entity(statement.old, statement.kind).name if statement.old else fact.object
        for is_known, place, other in self._facts_of(subject):
            is_current = other.invalid_at is None and other.decision in ("ADD", "SUPERSEDE")
            decision = _meaning(statement, other.relation, other.object == target) if is_current else None
            if decision is not None:
                known, replaces = (place, None) if is_known else (None, place)
                self._facts.append(replace(fact, decision=decision, known=known, replaces=replaces))
                return
        if statement.mode in ("is", "was"):
            self._facts.append(fact)

    def _present_object(self, subject: ExtractedEntity, relation: str) -> str | None:
        """Return the object that the subject has in this relation now, by the batch or known facts; None: none."""
        for is_known, _, one in self._facts_of(subject):
            if one.relation == relation and (one.invalid_at is None or not is_known):
                return one.object if one.invalid_at is None else None
        return None

    def _facts_of(self, subject: ExtractedEntity) -> Iterator[tuple[bool, int, ExtractedFact]]:
        """Yield (whether it is known, its place, a fact) for the facts of a subject: those of the batch, and then the
        known ones in the same form, the newest first."""
        for place, one in reversed(list(enumerate(self._facts, 1))):
            if one.subject == subject.name:
                yield False, place, one
        names = {entity.seq: entity.name for entity in self._batch.entities}
        names |= {self._batch.entities[one.known - 1].seq: one.name for one in self._entities.values() if one.known}
        seq = self._batch.entities[subject.known - 1].seq if subject.known else None
        for place, fact in reversed(list(enumerate(self._batch.facts, 1))):
            if fact.subject == seq:
                object_ = names.get(fact.object, "")
                known = ExtractedFact(
                    subject=subject.name, relation=fact.relation, object=object_, text=fact.text, turns=()
                )
                yield True, place, known if fact.invalid_at is None else replace(known, invalid_at=str(fact.invalid_at))

    def _entity(self, name: str, kind: str) -> ExtractedEntity:
        """Return the entity of this name: the known one, or a new one of type `kind`."""
        key = name.casefold()
        for one in self._entities.values():
            if key in (one.name.casefold(), *map(str.casefold, one.aliases)):
                return one
        place, known = self._known.get(key, (None, None))
        entity = ExtractedEntity(name=known.name if known else name, type=known.type if known else kind, known=place)
        if entity.name.casefold() != key:
            entity = replace(entity, aliases=(name,))
        self._entities[key] = entity
        return entity


def _meaning(statement: Statement, relation: str, same_object: bool) -> Decision | None:
    """Return what a statement decides about a fact of its subject with this relation; None: nothing. `same_object`: the
    fact has the object that the statement has or corrects."""
    if statement.relation == relation and same_object:
        if statement.old:
            return "UPDATE"
        return {"is": "NONE", "was": "UPDATE", "not": "UPDATE", "ends": "UPDATE", "never": "DELETE"}[statement.mode]  # type: ignore[return-value]
    if statement.mode != "is" or statement.invalid_at is not None:
        return None
    if statement.relation == relation and relation in SINGLE:
        return "SUPERSEDE"
    return "SUPERSEDE" if relation == OPPOSITES.get(statement.relation) and same_object else None


def _sentence(turn: SpokenTurn, statement: Statement, subject: str, object_: str) -> str:
    """Return a statement as a sentence in the language of the turn, with the names of subject and object."""
    chinese = language_of(turn.text) == "zh"
    form, names = _SENTENCES.get(statement.relation, _SENTENCES["kin"]), (subject, object_)
    if chinese and statement.relation == "HAS_AGE":
        names = subject, object_.replace(" years old", "岁")
    return form[chinese + 2 * (statement.mode in ("was", "not", "ends"))].format(*names, word=statement.word)


def _iso(time: datetime | None, now: datetime) -> str | None:
    """Return a time in ISO 8601, as extractors write it, in the zone of `now`."""
    return None if time is None else local(time, now.tzinfo or UTC).isoformat()


def _names(batch: ReadBatch) -> Iterator[tuple[int, Entity, str]]:
    """Yield (number, entity, name) for each name and alias of the known entities of a batch."""
    for place, entity in enumerate(batch.entities, 1):
        for name in dict.fromkeys((entity.name, *entity.aliases)):
            yield place, entity, name
