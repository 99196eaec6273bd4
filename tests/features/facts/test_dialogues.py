"""Dialogues from the first word to the facts: what is stored, and what was true and believed on any day.

Each dialogue has batches of turns (time and text of the user; the agent answers `OK.`, so that turns count by two) with
the model's answer, and the facts that are known after them, as
`subject RELATION object: text [from - until] why the newest version was written`.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from perdure import AsyncAgent, AsyncPerdure
from perdure.core.models import ModelReply, ModelRequest
from perdure.features.facts.values.facts import FactHit
from perdure.settings import Settings
from perdure.testing import FakeClock, InlineStore, ScriptedModel, says
from tests.support.library import MODEL

DIALOGUES = [
    pytest.param(dialogue, id=f"{path.stem}: {dialogue['title']}")
    for path in sorted(Path(__file__).with_name("dialogues").glob("*.toml"))
    for dialogue in tomllib.loads(path.read_text(encoding="utf-8"))["dialogue"]
]


def test_there_are_as_many_in_both_languages() -> None:
    assert [sum(str(one.id).startswith(name) for one in DIALOGUES) for name in ("english", "chinese")] == [15, 15]


@pytest.mark.slow
@pytest.mark.parametrize("dialogue", DIALOGUES)
async def test_a_model_and_its_answers_make_the_facts_of_a_dialogue(dialogue: Mapping[str, Any]) -> None:
    expect = dialogue["expect"]
    async with await open_library(dialogue, "model") as perdure:
        agent = await hold(perdure, dialogue)

        assert await table(agent) == expect["model"]
        assert (await agent.facts.counts()).dropped == expect.get("dropped", {})
        if "entities" in expect:
            assert [one.name for one in await agent.facts.entities()] == expect["entities"]
        subjects = {hit.fact.text: hit.fact.subject for hit in await agent.facts.list(limit=100)}
        assert all(subjects[one] == subjects[other] for one, other in expect.get("same_subject", []))
        assert all(subjects[one] != subjects[other] for one, other in expect.get("other_subject", []))
        for question in dialogue.get("questions", []):
            assert await answer(agent, question) == question["objects"], question


@pytest.mark.slow
@pytest.mark.parametrize("dialogue", [one for one in DIALOGUES if "patterns" in one.values[0]["expect"]])  # type: ignore[index]
async def test_the_built_in_patterns_make_the_facts_of_a_dialogue(dialogue: Mapping[str, Any]) -> None:
    async with await open_library(dialogue, "patterns") as perdure:
        agent = await hold(perdure, dialogue)

        assert await table(agent) == dialogue["expect"]["patterns"]
        for question in dialogue.get("questions", []):
            assert await answer(agent, question) == question["objects"], question


async def open_library(dialogue: Mapping[str, Any], facts: str) -> AsyncPerdure:
    """A library whose model answers each extraction as the dialogue says."""
    batches = iter(dialogue["batches"])
    model = ScriptedModel(extracts=lambda request: extraction(request, next(batches)))
    return await AsyncPerdure.open(
        store=InlineStore(),
        models={MODEL: model},
        settings=Settings(model=MODEL, embedding="none", facts=facts),
        clock=FakeClock(time(dialogue["batches"][0]["turns"][0][0])),
    )


async def hold(perdure: AsyncPerdure, dialogue: Mapping[str, Any]) -> AsyncAgent:
    """Hold the dialogue with a new agent, extracting after each batch; return the agent."""
    agent = await perdure.create_agent("ada")
    clock = perdure.app.ports.clock
    assert isinstance(clock, FakeClock)
    for batch in dialogue["batches"]:
        for at, text in batch["turns"]:
            clock.advance((time(at) - clock.now()).total_seconds())
            await agent.send(text)
        await agent.facts.extract()
    return agent


def extraction(request: ModelRequest, batch: Mapping[str, Any]) -> ModelReply:
    """The model's answer for a batch: it reads the numbers of known entities and facts from the request."""
    text = request.messages[0].text
    for turn in batch["turns"]:
        assert turn[1] in text
    entities = {
        name: number for number, name in listed(text, "known_entities", r"(\d+)\. (.*?) \([^()]*\)(?:, also|$)")
    }
    facts = {fact: number for number, fact in listed(text, "known_facts", r"(\d+)\. .*?: (.*) \[[^\]]*\]$")}
    answer = {
        "entities": [numbered(one, entities) for one in batch["entities"]],
        "facts": [numbered(one, facts) for one in batch["facts"]],
        "certain": True,
    }
    return says(json.dumps(answer))


def listed(text: str, section: str, pattern: str) -> list[tuple[int, str]]:
    """Number and name of the lines of a section."""
    found = re.search(rf"<{section}>\n(.*?)\n</{section}>", text, re.DOTALL)
    matches = [re.match(pattern, line) for line in (found[1] if found else "").splitlines()]
    return [(int(match[1]), match[2]) for match in reversed(matches) if match]


def numbered(item: Mapping[str, Any], numbers: Mapping[str, int]) -> Mapping[str, Any]:
    """An item of an answer with the number of what it names as known."""
    known = item.get("known")
    return {**item, "known": numbers[known]} if isinstance(known, str) else item


async def table(agent: AsyncAgent) -> list[str]:
    """What is known, in the order in which it was learned."""
    hits = await agent.facts.list(limit=100)
    return [line(hit) for hit in sorted(hits, key=lambda hit: hit.fact.first_seq)]


def line(hit: FactHit) -> str:
    """One fact as dialogues write it."""
    fact = hit.fact
    times = f"[{moment(fact.valid_at)} - {moment(fact.invalid_at)}]"
    return f"{hit.subject.name} {fact.relation} {hit.object.name}: {fact.text} {times} {fact.change}"


async def answer(agent: AsyncAgent, question: Mapping[str, Any]) -> list[str]:
    """The names of the other ends of the facts that answer a question."""
    conditions: Any = {name: time(question[name]) for name in ("at", "as_of") if name in question}
    if "relation" in question:
        conditions["relations"] = [question["relation"]]
    entity = question.get("entity")
    hits = await agent.facts.list(limit=100, entity=entity, **conditions)
    return sorted(hit.object.name for hit in hits)


def time(text: str) -> datetime:
    """A time in UTC."""
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def moment(at: datetime | None) -> str:
    """A time as dialogues write it: the day alone, if it is midnight."""
    return "" if at is None else at.isoformat(timespec="minutes").removesuffix("+00:00").removesuffix("T00:00")
