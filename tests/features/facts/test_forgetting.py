"""Forgetting: what fades, what becomes one sentence, and how all of it is taken back."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from perdure import Agent, AsyncPerdure, FactHit, InvalidInput, Perdure, Settings
from perdure.context.sections.assemble import parse_recalled
from perdure.core.ids import FactId, GraphId
from perdure.features.facts.fading.facts import judge_fact
from perdure.features.facts.fading.passes import ForgettingWork
from perdure.features.facts.fading.policy import find_duplicates
from perdure.features.facts.values.facts import Fact
from perdure.features.facts.values.settings import Forgetting
from perdure.testing import InlineStore, ScriptedModel, calls, says
from perdure.testing.clock import START
from tests.support.library import open_sync

MODEL = "test/scripted"
POLICY = Forgetting(half_life_days=100, min_score=0.2, min_age_days=10)
FACT = Fact(
    id=FactId("fact-1"),
    graph_id=GraphId("graph-1"),
    seq=1,
    text="Ada likes green tea.",
    subject=1,
    object=2,
    relation="LIKES",
    rating=0.8,
    created_at=START,
)


@pytest.fixture
def perdure(tmp_path: Path) -> Iterator[Perdure]:
    with open_sync(tmp_path / "agents.db") as perdure:
        yield perdure


@pytest.fixture
def agent(perdure: Perdure) -> Agent:
    fading = {"half_life_days": 1, "min_score": 0.2, "min_age_days": 0}
    agent = perdure.create_agent("helper")
    agent.update(settings={"facts": {"forgetting": fading}})
    return agent


def add(agent: Agent, text: str, object_: str, rating: float, **changes: Any) -> FactHit:
    hit = agent.facts.add(text, subject="Ada", relation="LIKES", object=object_)
    return agent.facts.update(hit.fact.id, rating=rating, **changes)


def texts(agent: Agent, **conditions: Any) -> list[str]:
    return [hit.fact.text for hit in agent.facts.list(**conditions)]


def test_facts_fade_and_one_command_brings_them_back(agent: Agent) -> None:
    """They leave recall, and with a later pass list and search, not the history; a dry run changes nothing."""
    assert [*agent.facts.tidy(), *agent.facts.restore_last()] == []
    add(agent, "Ada likes tea.", "tea", 0.9)
    weak = add(agent, "Ada likes rain.", "rain", 0.1)

    (item,) = agent.facts.tidy(dry_run=True)
    assert (item.memory.id, item.reason) == (weak.fact.id, "faded")
    assert item.score == pytest.approx(0.1, abs=0.01)
    assert texts(agent) == ["Ada likes rain.", "Ada likes tea."]
    assert [one.memory.id for one in agent.facts.tidy()] == [weak.fact.id]
    assert texts(agent) == ["Ada likes rain.", "Ada likes tea."]
    assert texts(agent, states=["faded"]) == ["Ada likes rain."]
    assert [one.reason for one in agent.facts.tidy()] == ["unused"]
    assert texts(agent) == ["Ada likes tea."]
    assert agent.facts.search("rain") == []
    assert texts(agent, states=["archived"]) == ["Ada likes rain."]
    assert agent.facts.tidy() == []
    assert [one.state for one in agent.facts.restore_last()] == ["faded"]
    assert texts(agent) == ["Ada likes rain.", "Ada likes tea."]
    assert [one.state for one in agent.facts.restore_last()] == ["active"]
    changes = [one.change for one in agent.facts.history(weak.fact.id).versions]
    assert changes[-4:] == ["fade", "archive", "restore", "restore"]
    assert agent.facts.restore_last() == []


async def test_a_faded_fact_is_not_recalled_until_it_is_used() -> None:
    """A search that shows it is a use: the next pass lets it be recalled again, and does not archive it."""
    model = ScriptedModel(*(says("Yes."),) * 3, calls("search_facts", query="rain"), says("Yes."))
    settings = Settings(model=MODEL, embedding="none", facts="off")
    opening = AsyncPerdure.open(store=InlineStore(), models={MODEL: model}, settings=settings)
    async with await opening as perdure:
        fading = {"min_score": 0.2, "min_age_days": 0}
        own = {"auto_recall": True, "facts": {"forgetting": fading}}
        agent = await perdure.create_agent("a", settings=own, tools=["search_facts"])
        weak = await agent.facts.add("Ada likes rain.", subject="Ada", relation="LIKES", object="rain")
        await agent.send("What does Ada like?")
        assert "Ada likes rain." in parse_recalled(model.requests[-1].tail)
        await agent.facts.update(weak.fact.id, rating=0.1)
        await agent.facts.tidy()
        await agent.send("What does Ada like?", conversation=(await agent.new_conversation()).id)
        assert "Ada likes rain." not in parse_recalled(model.requests[-1].tail)

        await agent.send("And now?")
        await agent.send("Search.")
        assert [one.reason for one in await agent.facts.tidy()] == ["used"]
        assert (await agent.facts.get(weak.fact.id)).fact.state == "active"


def test_near_duplicates_become_one_sentence_with_all_sources(agent: Agent) -> None:
    """The best rated stays, and is true from the earlier beginning on."""
    early = START - timedelta(days=300)
    best = add(agent, "Ada really likes green tea.", "tea", 0.9)
    same = add(agent, "Ada likes green tea.", "tea", 0.8, valid_at=early)
    other = add(agent, "Ada does not like green tea.", "tea", 0.7)

    (item,) = agent.facts.tidy()
    assert (item.memory.id, item.reason, item.into and item.into.id) == (same.fact.id, "duplicate", best.fact.id)
    assert texts(agent) == [other.fact.text, best.fact.text]
    merged = agent.facts.history(best.fact.id)
    assert (merged.versions[-1].change, merged.versions[-1].valid_at) == ("merge", early)
    assert {episode.text for episode in merged.sources} == {best.fact.text, same.fact.text}
    assert len(agent.facts.restore_last()) == 1
    assert agent.facts.get(best.fact.id).fact.valid_at == best.fact.valid_at
    assert texts(agent) == [other.fact.text, same.fact.text, best.fact.text]


def test_what_a_person_changed_after_a_pass_stays(agent: Agent) -> None:
    weak = add(agent, "Ada likes rain.", "rain", 0.1)
    agent.facts.tidy()
    agent.facts.update(weak.fact.id, text="Ada likes storms.")

    assert agent.facts.restore_last() == []
    assert texts(agent, states=["active"]) == ["Ada likes storms."]


def test_passes_begin_by_themselves_where_the_policy_is_on(tmp_path: Path, perdure: Perdure, agent: Agent) -> None:
    """After extraction; here that of what waits when the program ends."""
    add(agent, "Ada likes rain.", "rain", 0.1)
    agent.send("Hello.")
    other = perdure.create_agent("other")
    other.update(settings={"facts": {"forgetting": {"on": True, "min_age_days": 0, "min_score": 0.2}}})
    add(other, "Ada likes rain.", "rain", 0.1)
    other.send("Hello.")
    perdure.close()

    with open_sync(tmp_path / "agents.db") as perdure:
        assert texts(perdure.agent("helper"), states=["active"]) == ["Ada likes rain."]
        assert texts(perdure.agent("other"), states=["faded"]) == ["Ada likes rain."]


@pytest.mark.parametrize(
    ("changes", "uses", "days", "expected"),
    [
        ({}, 0, 0, 0.8),
        ({}, 0, 100, 0.4),
        ({}, 3, 190, 0.4),
        ({"rating": 0.4}, 0, 100, 0.2),
        ({"invalid_at": START + timedelta(days=50)}, 0, 100, 0.4),
        ({"invalid_at": START + timedelta(days=500)}, 0, 100, 0.4),
    ],
)
def test_a_fact_is_worth_its_rating_halved_with_age(
    changes: dict[str, Any], uses: int, days: int, expected: float
) -> None:
    """Uses make it younger; the age of what has ended counts from its end, and twice."""
    at: datetime = START + timedelta(days=days)
    assert judge_fact(replace(FACT, **changes), uses, POLICY, at=at).worth == pytest.approx(expected)


@pytest.mark.parametrize(
    ("changes", "is_same"),
    [
        ({"text": "Ada likes green tea a lot."}, True),
        ({"text": "Ada likes tea"}, True),
        ({"text": "Ada hates boiled cabbage."}, False),
        ({"text": "Ada likes no green tea."}, False),
        ({"text": "Ada likes 2 green tea."}, False),
        ({"trust": "web"}, False),
        ({"scope": {"user_id": "bob"}}, False),
        ({"invalid_at": START}, False),
        ({"relation": "LOVES"}, True),
        ({"relation": "LOVES", "text": "Ada likes tea."}, False),
    ],
)
def test_near_duplicates_are_equal_in_words_trust_scope_and_end(changes: dict[str, Any], is_same: bool) -> None:
    other = replace(FACT, **{"id": FactId("fact-2"), "seq": 2, "rating": 0.7, **changes})
    judged = [judge_fact(fact, 0, POLICY, at=START) for fact in (FACT, other)]
    found = [(one.memory.seq, kept.memory.seq) for one, kept in find_duplicates(judged)]

    assert found == ([(2, 1)] if is_same else [])


@pytest.mark.parametrize(
    ("fading", "message"),
    [
        ("yes", "facts.forgetting is 'yes': give true"),
        ({"when": 1}, "facts.forgetting has no 'when'"),
        ({"min_score": 2}, "facts.forgetting.min_score is 2"),
        ({"on": 1}, "facts.forgetting.on is 1"),
    ],
)
def test_a_policy_is_checked(agent: Agent, fading: Any, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        agent.update(settings={"facts": {"forgetting": fading}})


async def test_forgetting_that_is_switched_on_begins_with_the_next_run() -> None:
    """A look that found it off is no pass, after which a day has to go by."""
    settings = Settings(model=MODEL, embedding="none")
    async with await AsyncPerdure.open(
        store=InlineStore(), models={MODEL: ScriptedModel()}, settings=settings
    ) as perdure:
        agent = await perdure.create_agent("helper")
        await agent.archive("The printer on floor 3 is being repaired.")
        work = ForgettingWork(perdure.app.ports)
        await work.tidy_due(agent.id)
        fading = {"on": True, "min_score": 0.9, "min_age_days": 0}
        await agent.update(settings={"facts": {"forgetting": fading}})
        await work.tidy_due(agent.id)

        assert [one.state for one in await agent.passages()] == ["faded"]
