"""What an edited sentence of a fact says of its entities: where it has another name, the fact is about another one."""

from __future__ import annotations

import re
from datetime import datetime

from perdure.core.ids import Ids
from perdure.features.facts.tables import Entities
from perdure.features.facts.units.graphs import FactFields, NewEntity, store_entities
from perdure.features.facts.units.profile import NAME_SLOT, SLOTS, TEXT_RELATION
from perdure.features.facts.values.extraction import USER
from perdure.features.facts.values.facts import Entity, Fact, Graph
from perdure.storage.tx import Tx

NAMING = frozenset(SLOTS[NAME_SLOT])
"""The relations of facts that say what somebody is called."""
NAME_CHARS = 200


def ends_of_edit(tx: Tx, graph: Graph, fact: Fact, text: str, *, ids: Ids, at: datetime) -> FactFields:
    """The new subject and object of a fact whose sentence is changed to `text`; empty: they stay. If the new sentence
    renames the user, with a name that no other entity has, the user is renamed and the old name stays an alias."""
    if fact.relation == TEXT_RELATION or text == fact.text:
        return {}
    ends = {one.seq: one for one in tx.of(Entities).list_by_seqs(graph.id, [fact.subject, fact.object])}
    subject, object_ = ends[fact.subject], ends[fact.object]
    subject_name, object_name = names_in_place(fact.text, text, subject, object_)
    if not (subject_name or object_name):
        subject_name, object_name = _stated(fact, text, subject, at)
    named = tx.of(Entities).find_by_names(graph.id, [subject_name])[subject_name] if subject_name else ()
    if subject_name and USER in (subject.name, *subject.aliases) and not {*named} - {subject.seq}:
        renamed = NewEntity(name=subject_name, type=subject.type, known=subject.seq, is_new_name=True)
        store_entities(tx, graph, [renamed], ids=ids, at=at)
        subject_name = ""
    new = [(subject, subject_name, "subject"), (object_, object_name, "object")]
    new = [one for one in new if one[1]]
    entities = [NewEntity(name=name, type=entity.type) for entity, name, _ in new]
    stored = store_entities(tx, graph, entities, ids=ids, at=at)
    seqs = {"subject": fact.subject, "object": fact.object}
    seqs |= {end: entity.seq for (*_, end), entity in zip(new, stored, strict=True)}
    return FactFields(subject=seqs["subject"], object=seqs["object"]) if len({*seqs.values()}) == 2 else {}


def names_in_place(before: str, after: str, subject: Entity, object_: Entity) -> tuple[str, str]:
    """Return the new names of subject and object; both empty if more of the sentence differs, one if it is the same."""
    places = {end: _find(before, entity) for end, entity in (("object", object_), ("subject", subject))}
    found = sorted((place, end) for end, place in places.items() if place is not None)
    if not found or (len(found) == 2 and found[0][0][1] > found[1][0][0]):
        return "", ""
    pattern, last = "", 0
    for (start, end), name in found:
        pattern += f"{re.escape(before[last:start])}(?P<{name}>.{{1,{NAME_CHARS}}}?)"
        last = end
    match = re.fullmatch(pattern + re.escape(before[last:].rstrip(". ")) + "[. ]*", after.strip(), re.DOTALL)
    if match is None:
        return "", ""
    names = {end: " ".join(match[end].split()) for _, end in found}
    same = {end: before[slice(*place)] for place, end in found}
    changed = {end: name for end, name in names.items() if name.casefold() != same[end].casefold()}
    named = changed.get("subject", "")
    return (named, changed.get("object", "")) if is_name(named) else ("", "")


def is_name(text: str) -> bool:
    """Return whether a text can be a name: a few words, whose first and last begin with no small letter; or empty."""
    words = text.split()
    return not words or (len(words) <= 4 and not any(word[0].islower() for word in (words[0], words[-1])))


def _find(text: str, entity: Entity) -> tuple[int, int] | None:
    """Return the start and end of a name of the entity in the text; None: it does not occur."""
    for name in sorted((entity.name, *entity.aliases), key=lambda name: name == USER):
        if match := re.search(rf"(?<!\w){re.escape(name)}(?!\w)", text, re.IGNORECASE):
            return match.span()
    return None


def _stated(fact: Fact, text: str, subject: Entity, at: datetime) -> tuple[str, str]:
    """Return the names that a sentence in other words states for the fact's subject, if the fact is its name, or else
    for the object; empty: it states none."""
    from perdure.providers.extractive.statements import statements_in  # not sooner: its patterns are many

    relations = NAMING if fact.relation in NAMING else {fact.relation}
    people = [name for name in (subject.name, *subject.aliases) if name != USER]
    stated = [one for one in statements_in(text, now=at, people=people) if one.relation in relations]
    if len(stated) != 1 or stated[0].mode != "is":
        return "", ""
    return (stated[0].object, "") if fact.relation in NAMING else ("", stated[0].object)
