"""Views over facts: profiles, timelines, and what is known as one text."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from perdure import Agent, FactHit, InvalidInput, Perdure
from tests.support.library import open_sync

MARCH, MAY, JULY = (datetime(2026, month, 1, tzinfo=UTC) for month in (3, 5, 7))


@pytest.fixture
def perdure(tmp_path: Path) -> Iterator[Perdure]:
    with open_sync(tmp_path / "agents.db") as perdure:
        yield perdure


@pytest.fixture
def agent(perdure: Perdure) -> Agent:
    return perdure.create_agent("helper")


def add(agent: Agent, text: str, relation: str, object_: str, *, subject: str = "", rating: float = 0.5) -> FactHit:
    hit = agent.facts.add(text, subject=subject, relation=relation, object=object_)
    return agent.facts.update(hit.fact.id, rating=rating, valid_at=MARCH)


def add_life(agent: Agent) -> None:
    """The user moves from Turin to Oslo, and knows Carol."""
    turin = add(agent, "The user lives in Turin.", "LIVES_IN", "Turin", rating=0.9)
    agent.facts.update(turin.fact.id, invalid_at=MAY)
    oslo = add(agent, "The user lives in Oslo.", "LIVES_IN", "Oslo", rating=0.9)
    agent.facts.update(oslo.fact.id, valid_at=MAY)
    add(agent, "The user likes tea.", "LIKES", "tea", rating=0.3)
    add(agent, "The user likes tea very much.", "LIKES", "Tea", rating=0.7)
    add(agent, "Carol manages the user.", "MANAGES", "User", subject="Carol", rating=0.4)
    add(agent, "Carol lives in Rome.", "LIVES_IN", "Rome", subject="Carol", rating=1.0)


def test_a_profile_has_what_is_true_of_the_user_now(agent: Agent) -> None:
    """In slots, each value once; others' facts have no place in it, and what ended has left it."""
    assert agent.profile().entries == ()
    add_life(agent)
    agent.facts.add("Call me after nine.")

    profile = agent.profile()
    assert profile.slots == {
        "basic_info.location": ["Oslo"],
        "interest.likes": ["tea"],
        "notes": ["Call me after nine."],
        "other.manages": ["Carol manages the user."],
    }
    assert profile.user is not None and profile.user.name == "User"
    assert profile.entries[0].fact is not None and profile.entries[0].fact.text == "The user lives in Oslo."
    (taste,) = (entry.fact for entry in profile.entries if entry.slot == "interest.likes")
    assert taste is not None and taste.text == "The user likes tea very much."
    assert agent.profile(user="Carol").slots["basic_info.location"] == ["Rome"]


def test_a_profile_has_the_newest_name_and_the_birthday_as_it_was_said(agent: Agent) -> None:
    """Said at once or one after the other; another birthday takes the place of the first."""
    for text in ("My name is Greta.", "My birthday is May 3rd."):
        agent.send(text)
    agent.facts.extract()
    assert agent.profile().slots == {"basic_info.name": ["Greta"], "basic_info.birthday": ["May 3rd"]}
    agent.send("My name is Bob now.")
    agent.facts.extract()
    agent.send("My birthday is May 4th.")
    agent.facts.extract()

    profile = agent.profile()
    assert profile.slots == {"basic_info.name": ["Bob"], "basic_info.birthday": ["May 4th"]}
    assert profile.user is not None and {*profile.user.aliases} == {"User", "Greta"}


def test_the_best_rated_entries_fit_the_budget(agent: Agent) -> None:
    add_life(agent)
    whole = agent.profile()
    part = agent.profile(budget_tokens=whole.tokens // 2)

    assert "basic_info.location" in part.slots
    assert "other.manages" not in part.slots
    assert 0 < part.tokens <= whole.tokens // 2
    assert part.left_out == len(whole.entries) - len(part.entries) > 0
    with pytest.raises(InvalidInput, match="budget_tokens is 0"):
        agent.profile(budget_tokens=0)


def test_untrusted_facts_need_a_setting(perdure: Perdure, agent: Agent) -> None:
    """Neither a profile nor a context has what a page or a tool said, unless the agent's setting allows it."""
    hit = add(agent, "The user likes spam.", "LIKES", "spam")
    agent.facts.update(hit.fact.id, trust="web")

    assert agent.profile().entries == ()
    assert agent.facts.context("spam").text == ""
    agent.update(settings={"facts": {"use_untrusted": True}})
    assert agent.profile().slots == {"interest.likes": ["spam"]}
    assert "likes spam" in agent.facts.context("spam").text


@pytest.mark.parametrize(("strict", "others"), [(True, set()), (False, {"other.lives_in", "other.manages"})])
def test_slots_are_configured(agent: Agent, strict: bool, others: set[str]) -> None:
    """A graph's own slots replace the built-in ones; strict ones leave out all other relations."""
    add_life(agent)
    agent.facts.update_settings(slots={"taste": ["LIKES"]}, strict_slots=strict)

    assert set(agent.profile().slots) == {"taste", *others}
    with pytest.raises(InvalidInput, match=r"slots\.taste is 'LIKES': give a list"):
        agent.facts.update_settings(slots={"taste": "LIKES"})


def test_a_named_user_is_the_user_of_the_profile(agent: Agent) -> None:
    """What was said before the name was known stays theirs."""
    add(agent, "The user likes tea.", "LIKES", "tea")
    agent.send("My name is Ada and I live in Turin.")
    agent.facts.extract()

    slots = agent.profile().slots
    assert slots["basic_info.name"] == ["Ada"]
    assert slots["interest.likes"] == ["tea"]
    assert slots["basic_info.location"] == ["Turin"]


def test_a_timeline_has_beginnings_and_ends_in_order(agent: Agent) -> None:
    add_life(agent)

    events = [(event.at, event.kind, event.fact.text) for event in agent.timeline(since=MAY, until=JULY)]
    assert events == [(MAY, "end", "The user lives in Turin."), (MAY, "begin", "The user lives in Oslo.")]
    assert agent.timeline(since=MAY)[0].tags == ("LIVES_IN",)
    assert [event.at for event in agent.timeline(until=MAY)] == [MARCH] * 5
    assert [event.fact.text for event in agent.facts.timeline(entity="Rome")] == ["Carol lives in Rome."]
    with pytest.raises(InvalidInput, match="since"):
        agent.timeline(since=datetime(2026, 5, 1))


def test_a_context_packs_profile_facts_and_events_with_sources(agent: Agent) -> None:
    assert agent.facts.context().text == ""
    add_life(agent)

    context = agent.facts.context("Who is Carol?", budget_tokens=400)
    profile, facts, events = context.text.split("\n\n")
    assert profile.startswith("# Profile\n- basic_info.location: Oslo")
    assert "- Carol manages the user. (since 2026-03-01) [" in facts
    assert "- 2026-05-01: no longer: The user lives in Turin. [" in events
    assert "Oslo" not in events  # it stands among the facts
    assert set(context.sources) == {fact.id for fact in (*context.facts, *(event.fact for event in context.events))}
    assert all(context.sources.values())


@pytest.mark.parametrize("budget", [1, 40, 80, 160])
def test_a_context_keeps_its_budget(agent: Agent, budget: int) -> None:
    add_life(agent)

    context = agent.facts.context("Carol", budget_tokens=budget)
    assert context.tokens <= budget
    assert bool(context.text) == (budget > 1)
