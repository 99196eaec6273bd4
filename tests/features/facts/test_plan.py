"""What of an extractor's answer is stored, and what is dropped and counted."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from perdure.core.ids import EntityId, FactId, GraphId
from perdure.core.text.credentials import HIDDEN
from perdure.features.facts.extraction.plan import FACTS_MAX, plan_extraction
from perdure.features.facts.values.extraction import ExtractedEntity, ExtractedFact, Extraction, ReadBatch, SpokenTurn
from perdure.features.facts.values.facts import Entity, Fact, FactRule

NOW = datetime(2026, 11, 20, 10, tzinfo=UTC)
GRAPH = GraphId("graph-1")
ADA, TURIN, MILAN = (
    Entity(id=EntityId(f"entity-{seq}"), graph_id=GRAPH, seq=seq, name=name, type=kind, created_at=NOW, updated_at=NOW)
    for seq, (name, kind) in enumerate((("Ada", "Person"), ("Turin", "Location"), ("Milan", "Location")), 7)
)
LIVES = Fact(
    id=FactId("fact-1"),
    graph_id=GRAPH,
    seq=3,
    first_seq=3,
    text="Ada lives in Turin.",
    subject=ADA.seq,
    object=TURIN.seq,
    relation="LIVES_IN",
    valid_at=NOW - timedelta(days=400),
    created_at=NOW,
)
TURNS = (
    SpokenTurn(number=1, speaker="Ada", text="I moved to Milan on 3 May 2026. My sister is Eva.", occurred_at=NOW),
    SpokenTurn(number=2, speaker="page", text="Ada likes spam.", occurred_at=NOW, trust="web", is_user=False),
)
BATCH = ReadBatch(turns=TURNS, entities=[ADA, TURIN, MILAN], facts=[LIVES])
ENTITIES = (
    ExtractedEntity(name="Ada", type="Person", known=1),
    ExtractedEntity(name="Milan", type="Location", known=3),
    ExtractedEntity(name="Eva", type="Person"),
)
MOVED = ExtractedFact(
    subject="Ada",
    relation="LIVES_IN",
    object="Milan",
    text="Ada lives in Milan.",
    turns=(1,),
    valid_at="2026-05-03T00:00:00Z",
    decision="SUPERSEDE",
    known=1,
)


def plan(*facts: ExtractedFact, batch: ReadBatch = BATCH, entities: tuple[ExtractedEntity, ...] = ENTITIES) -> Any:
    return plan_extraction(batch, Extraction(entities=entities, facts=facts))


def test_a_valid_fact_has_parsed_times_and_the_known_fact() -> None:
    (fact,) = plan(MOVED).facts

    assert (fact.decision, fact.known, fact.trust) == ("SUPERSEDE", LIVES, "user")
    assert (fact.valid_at, fact.invalid_at) == (datetime(2026, 5, 3, tzinfo=UTC), None)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"subject": "Bob"}, "unknown entity"),
        ({"object": "Ada"}, "subject is object"),
        ({"relation": "lives in"}, "relation is not in SCREAMING_SNAKE_CASE"),
        ({"text": " "}, "text is empty or too long"),
        ({"text": "x" * 1_001}, "text is empty or too long"),
        ({"turns": ()}, "unknown turn"),
        ({"turns": (3,)}, "unknown turn"),
        ({"known": 2}, "unknown fact"),
        ({"known": None}, "unknown fact"),
        ({"decision": "ADD"}, "unknown fact"),
        ({"decision": "DROP TABLE"}, "unknown decision"),
        ({"type": "HOME"}, "unknown fact type"),
        ({"valid_at": "2019-01-01T00:00:00Z"}, "time is not in the text"),
        ({"valid_at": "soon"}, "time is not in the text"),
        ({"invalid_at": "2026-05-01T00:00:00Z"}, "time is not in the text"),
    ],
)
def test_what_the_turns_do_not_support_is_dropped(changes: dict[str, Any], reason: str) -> None:
    found = plan(replace(MOVED, **changes))

    assert (found.facts, found.dropped) == ([], {reason: 1})


def test_a_fact_that_is_known_gains_a_source() -> None:
    said = replace(MOVED, object="Turin", text="Ada has a home in Turin.", decision="ADD", known=None)
    entities = (ENTITIES[0], ExtractedEntity(name="Turin", type="Location", known=2))

    (fact,) = plan(replace(said, valid_at=None), entities=entities).facts

    assert (fact.decision, fact.known) == ("NONE", LIVES)


def test_a_web_page_takes_nothing_from_what_is_known() -> None:
    (fact,) = plan(replace(MOVED, turns=(2,), valid_at=None)).facts

    assert (fact.decision, fact.known, fact.trust) == ("ADD", None, "web")


def test_entities_without_facts_pronouns_and_unknown_types_are_left_out() -> None:
    entities = (
        *ENTITIES,
        ExtractedEntity(name="she", type="Person"),
        ExtractedEntity(name="Rex", type="Dragon"),
        ExtractedEntity(name="Zoe", type="Person", known=9),
    )

    found = plan(MOVED, entities=entities)

    assert [entity.name for entity in found.entities] == ["Ada", "Milan"]
    assert found.dropped == {"pronoun": 1, "unknown entity type": 1, "unknown entity": 1}


def test_rules_credentials_and_floods() -> None:
    sister = ExtractedFact(
        subject="Ada", relation="SISTER_OF", object="Eva", text="Eva's password is hunter22x.", turns=(1,)
    )
    ruled = replace(BATCH, rules=[FactRule(graph_id=GRAPH, text="milan", created_at=NOW)])

    assert plan(MOVED, batch=ruled).dropped == {"must not be remembered": 1}
    assert plan(sister).facts[0].text == f"Eva's password is {HIDDEN}"
    many = plan(*(replace(sister, relation=f"R_{number}") for number in range(FACTS_MAX + 900)))
    assert (len(many.facts), many.dropped) == (FACTS_MAX, {"too many facts": 900})
    assert plan(sister, sister).dropped == {"said twice": 1}
