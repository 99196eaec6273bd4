"""The rules of a plan: who an entity is, types and attributes, changes within one answer, times, and trust."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from perdure.core.ids import EntityId, FactId, GraphId
from perdure.core.text.credentials import HIDDEN
from perdure.features.facts.extraction.plan import FactPlan, plan_extraction
from perdure.features.facts.extraction.times import parse_time
from perdure.features.facts.values.extraction import (
    ExtractedEntity,
    ExtractedFact,
    Extraction,
    FactType,
    ReadBatch,
    Schema,
    SpokenTurn,
)
from perdure.features.facts.values.facts import Entity, Fact, FactRule

NOW = datetime(2026, 11, 20, 10, tzinfo=UTC)
GRAPH = GraphId("graph-1")


def entity(seq: int, name: str, kind: str, *aliases: str) -> Entity:
    return Entity(
        id=EntityId(f"entity-{seq}"),
        graph_id=GRAPH,
        seq=seq,
        name=name,
        type=kind,
        aliases=aliases,
        created_at=NOW,
        updated_at=NOW,
    )


def known_fact(seq: int, subject: Entity, relation: str, object_: Entity, **fields: Any) -> Fact:
    text = f"{subject.name} {relation} {object_.name}"
    values: dict[str, Any] = {
        **{"id": FactId(f"fact-{seq}"), "graph_id": GRAPH, "seq": seq, "first_seq": seq, "text": text},
        **{"subject": subject.seq, "object": object_.seq, "relation": relation, "created_at": NOW},
    }
    return Fact(**values, **fields)


ADA, TURIN, MILAN = entity(7, "Ada", "Person"), entity(8, "Turin", "Location"), entity(9, "Milan", "Location")
FIAT, SAM, OTHER_SAM = entity(10, "Fiat", "Organization"), entity(11, "Sam", "Person"), entity(12, "Sam", "Person")
ROME = entity(13, "Rome", "Location")
LIVES = known_fact(3, ADA, "LIVES_IN", TURIN)
KNOWN = [ADA, TURIN, MILAN, FIAT, SAM, OTHER_SAM, ROME]
FACTS = [LIVES, known_fact(4, SAM, "WORKS_AT", FIAT), known_fact(5, OTHER_SAM, "LIVES_IN", ROME)]


def turn(text: str, number: int = 1, **fields: Any) -> SpokenTurn:
    values: dict[str, Any] = {"number": number, "speaker": "Ada", "text": text, "occurred_at": NOW}
    return SpokenTurn(**{**values, **fields})


def fact(subject: str, relation: str, object_: str, **fields: Any) -> ExtractedFact:
    text = f"{subject} {relation.lower()} {object_}."
    values: dict[str, Any] = {"subject": subject, "relation": relation, "object": object_, "text": text, "turns": (1,)}
    return ExtractedFact(**{**values, **fields})


def plan(text: str, names: Mapping[str, str], *facts: ExtractedFact, **batch: Any) -> FactPlan:
    """The plan for one turn of Ada, with entities as name -> type."""
    return plan_extraction(
        ReadBatch(**{"turns": [turn(text)], "entities": [ADA, TURIN], "facts": [LIVES], **batch}),
        Extraction(entities=[ExtractedEntity(name=name, type=type_) for name, type_ in names.items()], facts=facts),
    )


PLACES = {"Ada": "Person", "Turin": "Location", "Milan": "Location", "Monza": "Location"}


def test_the_speaker_is_the_first_entity_also_where_the_answer_left_them_out() -> None:
    found = plan("Eva lives in Milan.", {"Milan": "Location", "Eva": "Person"}, fact("Ada", "KNOWS", "Eva"))

    assert [(one.name, one.known) for one in found.entities] == [("Ada", ADA.seq), ("Eva", None)]


def test_a_move_within_one_answer_is_about_the_first_home() -> None:
    """Both facts are new; which of them ends, their times say when they are stored."""
    found = plan(
        "I moved to Monza on 3 May 2026.",
        PLACES,
        fact("Ada", "LIVES_IN", "Milan"),
        fact("Ada", "LIVES_IN", "Monza", valid_at="2026-05-03", decision="SUPERSEDE", replaces=1),
    )

    assert [(one.text, one.decision, one.earlier) for one in found.facts] == [
        ("Ada lives_in Milan.", "ADD", None),
        ("Ada lives_in Monza.", "SUPERSEDE", 1),
    ]


@pytest.mark.parametrize(
    ("decision", "texts"), [("UPDATE", ["Ada lives_in Monza."]), ("DELETE", []), ("NONE", ["Ada lives_in Milan."])]
)
def test_a_correction_within_one_answer(decision: Any, texts: list[str]) -> None:
    found = plan(
        "Not Milan, I meant Monza.",
        PLACES,
        fact("Ada", "LIVES_IN", "Milan"),
        fact("Ada", "LIVES_IN", "Monza", decision=decision, replaces=1),
    )

    assert [one.text for one in found.facts] == texts


def test_what_replaces_a_fact_that_was_known_is_about_the_known_fact() -> None:
    """The answer says Turin again, which is known, and then Milan."""
    found = plan(
        "I moved from Turin to Milan.",
        PLACES,
        fact("Ada", "LIVES_IN", "Turin"),
        fact("Ada", "LIVES_IN", "Milan", decision="SUPERSEDE", replaces=1),
    )

    assert [(one.decision, one.known or one.earlier) for one in found.facts] == [("NONE", LIVES), ("SUPERSEDE", 1)]


@pytest.mark.parametrize("replaces", [0, 2, 3, -1])
def test_only_an_earlier_fact_can_be_replaced(replaces: int) -> None:
    moved = fact("Ada", "LIVES_IN", "Monza", decision="SUPERSEDE", replaces=replaces)

    assert plan("Monza.", PLACES, fact("Ada", "LIKES", "Milan"), moved).dropped == {"unknown fact": 1}


def test_a_fact_type_has_its_signature() -> None:
    schema = Schema(fact_types=[FactType(name="EMPLOYMENT", subject_type="Person", object_type="Organization")])
    names = {**PLACES, "Fiat": "Organization"}
    right = fact("Ada", "WORKS_AT", "Fiat", type="EMPLOYMENT")
    wrong = fact("Ada", "WORKS_AT", "Milan", type="EMPLOYMENT")

    found = plan("I work at Fiat in Milan.", names, right, wrong, schema=schema)

    assert [one.type for one in found.facts] == ["EMPLOYMENT"]
    assert found.dropped == {"entities are not of the fact type": 1}


def test_attributes_are_of_the_schema_of_their_type() -> None:
    person = {"type": "object", "properties": {"age": {"type": "integer"}, "title": {"type": "string"}}}
    schema = Schema(entity_types={"Person": {**person, "required": ["age"]}, "Location": {}})
    eva = ExtractedEntity(
        name="Eva", type="Person", attributes={"age": "old", "title": "password: hunter22x", "height": 3}
    )
    batch = ReadBatch(turns=[turn("Eva, my sister.")], schema=schema)

    found = plan_extraction(batch, Extraction(entities=[eva], facts=[fact("Ada", "SISTER_OF", "Eva")]))

    assert found.entities[1].attributes == {"title": f"password: {HIDDEN}"}
    assert found.dropped == {"attribute is not of the schema": 2}


def people(text: str, one: ExtractedEntity, *facts: ExtractedFact, **extra: str) -> FactPlan:
    entities = [one, *(ExtractedEntity(name=name, type=type_) for name, type_ in extra.items())]
    return plan_extraction(
        ReadBatch(turns=[turn(text)], entities=KNOWN, facts=FACTS), Extraction(entities=entities, facts=facts)
    )


@pytest.mark.parametrize(
    ("known", "other", "seq"),
    [
        (6, "Fiat", OTHER_SAM.seq),  # the answer says which
        (None, "Fiat", SAM.seq),  # a known fact connects one of them with Fiat
        (None, "Rome", OTHER_SAM.seq),
        (None, "Milan", 0),  # nothing tells which: another one
        (0, "Fiat", 0),
    ],
)
def test_of_two_people_with_one_name_the_context_tells_which(known: int | None, other: str, seq: int) -> None:
    sam = ExtractedEntity(name="Sam", type="Person", known=known)

    found = people(f"Sam and {other}", sam, fact("Sam", "LIKES", other), **{other: "Concept"})

    assert next(one.known for one in found.entities if one.name == "Sam") == seq


def test_a_name_that_two_entities_of_the_answer_have_names_neither() -> None:
    sams = [ExtractedEntity(name="Sam", type="Person", known=place) for place in (5, 6)]
    milan = ExtractedEntity(name="Milan", type="Location")

    found = plan_extraction(
        ReadBatch(turns=[turn("Sam lives in Milan.")], entities=KNOWN, facts=FACTS),
        Extraction(entities=[*sams, milan], facts=[fact("Sam", "LIVES_IN", "Milan")]),
    )

    assert (found.facts, found.dropped) == ([], {"unknown entity": 1})


def test_an_entity_is_no_other_one_whose_number_it_claims() -> None:
    """A place can't become Ada, nor a person of whom no turn speaks."""
    for name, type_ in (("Milan", "Location"), ("Mallory", "Person")):
        claim = ExtractedEntity(name=name, type=type_, known=1)

        found = people("I live in Milan.", claim, fact(name, "LIKES", "Rome"), Rome="Location")

        assert found.dropped == {"another entity": 1, "unknown entity": 1}


def test_a_decision_is_about_a_fact_of_the_same_entities() -> None:
    """A wrong number ends no fact of others."""
    batch: Any = {"entities": KNOWN, "facts": FACTS}
    end = fact("Ada", "LIVES_IN", "Milan", decision="DELETE", known=3)

    assert plan("No.", PLACES, end, **batch).dropped == {"decision is about another fact": 1}


def test_a_date_is_no_entity() -> None:
    names = {"Ada": "Person", "3 May 2026": "Concept"}

    found = plan("On 3 May 2026.", names, fact("Ada", "BORN_ON", "3 May 2026"))

    assert found.dropped == {"date": 1, "unknown entity": 1}


def test_a_relation_is_no_entity() -> None:
    """What an answer has as a relation is none of its things; of people, places and the like it may be a name."""
    names = {"Ada": "Person", "lives in": "Concept", "Likes": "Location", "Rome": "Location"}
    facts = [fact("Ada", "LIVES_IN", "Rome"), fact("Ada", "KNOWS", "lives in"), fact("Ada", "LIKES", "Likes")]

    found = plan("I live in Rome, and I like Likes.", names, *facts)

    assert found.dropped == {"relation": 1, "unknown entity": 1}
    assert len(found.facts) == 2


def test_a_rule_can_be_about_an_entity_and_a_relation() -> None:
    rule = FactRule(graph_id=GRAPH, entity=TURIN.seq, relation="LIKES", created_at=NOW)
    likes, visits = fact("Ada", "LIKES", "Turin"), fact("Ada", "VISITS", "Turin")

    found = plan("I like Turin, and visit it.", PLACES, likes, visits, rules=[rule])

    assert [one.relation for one in found.facts] == ["VISITS"]
    assert found.dropped == {"must not be remembered": 1}


@pytest.mark.parametrize(
    ("text", "time", "there"),
    [
        ("I have lived here since 2019.", "2019", True),
        ("I have lived here since 2019.", "2019-07-03", False),
        ("I moved in March.", "2026-03-01", True),
        ("I moved in March.", "2026-03-17T09:00:00Z", False),
        ("I lived there until last May.", "2026-05-31T23:59:59Z", True),
        ("I lived there until last May.", "2025-05-31T23:59:59Z", False),
        ("I started last week.", "2026-11-11", True),
        ("I have worked there for three years.", "2023-11-20", True),
        ("I have worked there for three years.", "2021-11-20", False),
        ("我从2019年起住在都灵。", "2019-01-01T00:00:00Z", True),
        ("我三月搬到米兰。", "2026-03-01", True),
        ("我在那里工作了三年。", "2023-11-20", True),
        ("I live here.", "2026-11-20T10:00:00Z", True),
        ("I live here.", "2020-01-01", False),
    ],
)
def test_a_time_must_be_said(text: str, time: str, there: bool) -> None:
    found = plan(text, PLACES, fact("Ada", "LIVES_IN", "Milan", valid_at=time))

    assert [one.valid_at for one in found.facts] == ([parse_time(time, NOW)] if there else [])
    assert found.dropped == ({} if there else {"time is not in the text": 1})


def test_a_home_that_is_said_again_after_it_ended_is_new() -> None:
    """The same words about another time are another fact."""
    ended = replace(LIVES, invalid_at=NOW - timedelta(days=900), text="Ada lives_in Turin.")

    (again,) = plan("I live in Turin again.", PLACES, fact("Ada", "LIVES_IN", "Turin"), facts=[ended]).facts

    assert (again.decision, again.known) == ("ADD", None)


def test_an_end_of_a_known_fact_updates_it() -> None:
    over = fact("Ada", "LIVES_IN", "Turin", invalid_at="2026-05-31")

    (ended,) = plan("I lived in Turin until 31 May 2026.", PLACES, over).facts

    assert (ended.decision, ended.known) == ("UPDATE", LIVES)


def test_a_user_who_says_what_a_page_said_makes_it_trusted() -> None:
    page = replace(LIVES, trust="web")

    (said,) = plan("I live in Turin.", PLACES, fact("Ada", "LIVES_IN", "Turin"), facts=[page]).facts

    assert (said.decision, said.known, said.trust) == ("UPDATE", page, "user")


def test_what_only_a_page_names_is_the_page_s_whatever_the_answer_claims() -> None:
    """A page that says whom to cite gains nothing."""
    turns = [turn("What does the page say?"), turn("Ada loves EvilCorp.", 2, trust="tool", is_user=False)]
    forged = fact("Ada", "LIKES", "EvilCorp", turns=(1,))
    corp = ExtractedEntity(name="EvilCorp", type="Organization")

    (found,) = plan_extraction(ReadBatch(turns=turns), Extraction(entities=[corp], facts=[forged])).facts

    assert found.trust == "tool"
