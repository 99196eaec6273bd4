"""What an extractor is shown of what is known: what a text may concern, however long ago it was said, and no more."""

from __future__ import annotations

import json

import pytest

from perdure import AsyncAgent, AsyncPerdure
from perdure.core.messages import text_of
from perdure.core.models import ModelReply, ModelRequest
from perdure.features.facts.units.graphs import ALIASES_MAX
from perdure.features.facts.units.known import ENTITY_FACTS
from perdure.settings import Settings
from perdure.testing import InlineStore, ScriptedModel, says
from tests.support.library import MODEL

THINGS = [f"{kind} {sort}" for kind in ("green", "black", "white") for sort in ("tea", "rice", "pepper", "bread")] * 4


async def where_lived(agent: AsyncAgent) -> dict[str, bool]:
    """Where the user lives, or has lived -> whether that is over."""
    found = await agent.facts.list(relations=["LIVES_IN"])
    return {hit.object.name: hit.fact.invalid_at is not None for hit in found}


@pytest.mark.parametrize("text", ["I live in Bergen now.", "I moved to Bergen."])
@pytest.mark.parametrize("relations", [1, 3, 30])
async def test_what_was_said_long_ago_is_ended_by_what_is_said_now(text: str, relations: int) -> None:
    """Also behind many newer facts, of one relation or of many."""
    settings = Settings(model=MODEL, embedding="none")
    async with await AsyncPerdure.open(
        store=InlineStore(), models={MODEL: ScriptedModel()}, settings=settings
    ) as perdure:
        agent = await perdure.create_agent("x")
        await agent.facts.ingest("I live in Oslo.")
        for number, thing in enumerate(THINGS):
            relation = f"LIKES_{number % relations}"
            await agent.facts.add(f"User likes {thing}.", subject="User", relation=relation, object=thing)
        if relations == 30 and "live" not in text:
            return  # nothing of the text says that it concerns that fact
        await agent.facts.ingest(text)

        assert await where_lived(agent) == {"Oslo": True, "Bergen": False}


async def test_the_names_of_an_entity_are_bounded() -> None:
    """What it was called itself is among them."""
    count = 0

    def extracts(request: ModelRequest) -> ModelReply:
        nonlocal count
        count += 1
        names = [f"alias {count} {number}" for number in range(8)]
        entities = [{"name": "User", "type": "Person"}, {"name": "Turin", "type": "Location", "aliases": names}]
        fact = {"subject": "User", "relation": f"SAW_{count}", "object": "Turin", "text": f"User saw Turin {count}."}
        return says(json.dumps({"entities": entities, "facts": [{**fact, "turns": [1], "decision": "ADD"}]}))

    model = ScriptedModel(extracts=extracts)
    settings = Settings(model=MODEL, embedding="none", facts="model")
    async with await AsyncPerdure.open(store=InlineStore(), models={MODEL: model}, settings=settings) as perdure:
        agent = await perdure.create_agent("x")
        for number in range(10):
            await agent.facts.ingest(f"I saw Turin, {number}.")

        turin = next(one for one in await agent.facts.entities() if one.name == "Turin")
        assert len(turin.aliases) == ALIASES_MAX
        assert text_of(model.extraction_requests[-1].messages[0].parts).count("alias ") == ALIASES_MAX


async def test_no_more_is_shown_of_an_entity_than_fits() -> None:
    model = ScriptedModel(extracts=says(json.dumps({"entities": [], "facts": [], "certain": True})))
    settings = Settings(model=MODEL, embedding="none", facts="model")
    async with await AsyncPerdure.open(store=InlineStore(), models={MODEL: model}, settings=settings) as perdure:
        agent = await perdure.create_agent("x")
        for number, thing in enumerate(THINGS):
            await agent.facts.add(f"User likes {thing} {number}.", subject="User", relation="LIKES", object=thing)
        await agent.facts.ingest("I am here.")

        assert text_of(model.extraction_requests[-1].messages[0].parts).count("User LIKES") == ENTITY_FACTS


async def learn(texts: dict[str, list[dict[str, object]]]) -> tuple[AsyncPerdure, AsyncAgent]:
    """An agent whose model says these facts of these messages: about the user and tea."""

    def extracts(request: ModelRequest) -> ModelReply:
        turns = text_of(request.messages[0].parts).rpartition("<turns>")[2]
        facts = [
            {"subject": "User", "relation": "LIKES", "object": "tea", "text": "User likes tea.", "turns": [1], **one}
            for text, all_ in texts.items()
            if text in turns
            for one in all_
        ]
        entities = [{"name": "User", "type": "Person"}, {"name": "tea", "type": "Object"}]
        return says(json.dumps({"entities": entities, "facts": facts}))

    settings = Settings(model=MODEL, embedding="none", facts="model")
    models = {MODEL: ScriptedModel(extracts=extracts)}
    perdure = await AsyncPerdure.open(store=InlineStore(), models=models, settings=settings)
    return perdure, await perdure.create_agent("x")


@pytest.mark.parametrize(
    ("first", "second", "trust"), [("user", "agent", "user"), ("agent", "user", "agent"), ("web", "user", "user")]
)
async def test_what_is_said_better_keeps_the_trust_of_a_known_fact(first: str, second: str, trust: str) -> None:
    """And gains it, if only an untrusted source said it before."""
    better: dict[str, object] = {"text": "User likes green tea.", "decision": "UPDATE", "known": 1}
    perdure, agent = await learn({"one tea": [{"decision": "ADD"}], "two tea": [better]})
    async with perdure:
        await agent.facts.ingest("one tea", trust=first)  # type: ignore[arg-type]
        await agent.facts.ingest("two tea", trust=second)  # type: ignore[arg-type]
        (hit,) = await agent.facts.list()

        assert (hit.fact.text, hit.fact.trust) == ("User likes green tea.", trust)


@pytest.mark.parametrize("decision", ["UPDATE", "NONE", "DELETE"])
async def test_a_fact_that_an_answer_deletes_does_not_come_back(decision: str) -> None:
    """What the same answer says better of it stands by itself."""
    gone: dict[str, object] = {"decision": "DELETE", "known": 1}
    more: dict[str, object] = {"text": "User likes green tea.", "decision": decision, "known": 1}
    perdure, agent = await learn({"one tea": [{"decision": "ADD"}], "two tea": [gone, more]})
    async with perdure:
        (first,) = await agent.facts.ingest("one tea")
        await agent.facts.ingest("two tea")
        history = await agent.facts.history(first.fact.id)

        assert [version.change for version in history.versions] == ["add", "delete"]
        assert [hit.fact.text for hit in await agent.facts.list()] == ["User likes green tea."] * (decision == "UPDATE")


async def test_what_follows_a_fact_that_an_answer_deletes_is_stored() -> None:
    """It can't be ended twice; what is true instead stands by itself."""
    gone: dict[str, object] = {"decision": "DELETE", "known": 1}
    instead: dict[str, object] = {"relation": "SELLS", "text": "User sells tea.", "decision": "SUPERSEDE", "known": 1}
    perdure, agent = await learn({"one tea": [{"decision": "ADD"}], "two tea": [gone, instead]})
    async with perdure:
        (first,) = await agent.facts.ingest("one tea")
        await agent.facts.ingest("two tea")
        history = await agent.facts.history(first.fact.id)

        assert [version.change for version in history.versions] == ["add", "delete"]
        assert [hit.fact.text for hit in await agent.facts.list()] == ["User sells tea."]
        assert (await agent.facts.counts()).dropped == {}
