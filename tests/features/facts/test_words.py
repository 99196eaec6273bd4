"""Messages are found by the words of the facts that they say."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

import pytest

from perdure import AsyncAgent, AsyncPerdure
from perdure.settings import Settings
from perdure.testing import InlineStore, ScriptedModel, says
from tests.support.library import MODEL

SAID, FACT = "Carlo moved there in spring, for the sea.", "Carlo moved to Lisbon in spring."


def answer(**fields: Any) -> Any:
    """A model's answer that finds the fact in the first turn."""
    fact = {"subject": "Carlo", "relation": "MOVED_FOR", "object": "sea", "text": FACT, "turns": [1]}
    entities = [{"name": "Carlo", "type": "Person"}, {"name": "sea", "type": "Concept"}]
    return says(json.dumps({"entities": entities, "facts": [{**fact, "decision": "ADD", **fields}], "certain": True}))


@pytest.fixture
async def agent() -> AsyncIterator[AsyncAgent]:
    settings = Settings(model=MODEL, embedding="none", facts="model")
    models = {MODEL: ScriptedModel(otherwise=says("I see."), extracts=answer())}
    async with await AsyncPerdure.open(store=InlineStore(), models=models, settings=settings) as perdure:
        agent = await perdure.create_agent("helper")
        for text in (SAID, "I had soup for lunch.", "My bicycle is at the repair shop."):
            await agent.send(text)
        yield agent


async def found(agent: AsyncAgent, query: str) -> list[str]:
    """The texts of the messages that are found."""
    return [hit.message.text for hit in await agent.search(query)]


async def test_a_message_is_found_by_what_a_fact_names_in_full(agent: AsyncAgent) -> None:
    """The reason names the fact; one that is deleted counts no more."""
    assert await found(agent, "Lisbon") == []
    (fact,) = (hit.fact for hit in await agent.facts.extract())

    (hit, *_) = await agent.search("Who lives in Lisbon?", explain=True)
    assert (hit.message.text, hit.why and hit.why.facts) == (SAID, (fact.id,))
    assert hit.why is not None
    assert hit.why.words > 0
    assert (await found(agent, "Lisbon"))[0] == SAID

    await agent.facts.delete(fact.id)
    assert await found(agent, "Lisbon") == []


async def test_words_of_the_message_itself_count_once(agent: AsyncAgent) -> None:
    """A fact that repeats them lifts nothing."""
    before = (await agent.search("spring", explain=True))[0]
    await agent.facts.extract()
    after = (await agent.search("spring", explain=True))[0]

    assert (before.message.text, after.message.text) == (SAID, SAID)
    assert before.score == after.score


async def test_a_name_alone_is_a_fact_where_no_run_notes_it() -> None:
    """Of an imported message; in a run the agent itself puts the name into a block."""
    settings = Settings(model="", embedding="none")
    async with await AsyncPerdure.open(store=InlineStore(), settings=settings) as perdure:
        agent = await perdure.create_agent()
        await agent.import_messages([("user", None, "My name is Ada.", datetime(2026, 11, 29, tzinfo=UTC))])
        imported = [hit.fact.text for hit in await agent.facts.extract()]
        other = await perdure.create_agent()
        await other.send("My name is Ada.")
        said = [hit.fact.text for hit in await other.facts.extract()]
        block = await other.blocks.get("human")

    assert imported == ["The name of the user is Ada."]
    assert (said, "Ada" in block.value) == ([], True)
