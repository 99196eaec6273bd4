"""What a person deleted or corrected stays so, until the user says it anew."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from perdure import AsyncAgent, AsyncPerdure
from perdure.adapters.mem0 import AsyncMemory
from perdure.core.errors import ModelUnreachable
from perdure.core.models import ModelReply, ModelRequest
from perdure.features.facts.values.extraction import ExtractedEntity, ExtractedFact, Extraction, ReadBatch
from perdure.settings import Settings
from perdure.testing import InlineStore, ScriptedModel, says
from tests.features.facts.test_background import Scribe, opened
from tests.support.library import MODEL


async def open_library(facts: str, *script: str) -> AsyncPerdure:
    """A library that extracts by patterns, or by a model that hears each turn with "Oslo" say that the user lives
    there."""
    model = ScriptedModel(*map(says, script), extracts=hear)
    settings = Settings(model=MODEL, embedding="none", facts=facts)
    return await AsyncPerdure.open(store=InlineStore(), models={MODEL: model}, settings=settings)


def hear(request: ModelRequest) -> ModelReply:
    lines = request.messages[0].text.partition("<turns>")[2].splitlines()
    facts = [
        {"subject": "User", "relation": "LIVES_IN", "object": "Oslo", "text": "User lives in Oslo."}
        | {"turns": [int(line.partition(".")[0])], "decision": "ADD"}
        for line in lines
        if "Oslo" in line
    ]
    entities = [{"name": "User", "type": "Person"}, {"name": "Oslo", "type": "Location"}]
    return says(json.dumps({"entities": entities if facts else [], "facts": facts, "certain": True}))


async def texts(agent: AsyncAgent) -> list[str]:
    return sorted(hit.fact.text for hit in await agent.facts.list())


async def delete(agent: AsyncAgent, text: str) -> None:
    await agent.facts.extract()
    (fact,) = [hit.fact for hit in await agent.facts.list() if text in hit.fact.text]
    await agent.facts.delete(fact.id)


@pytest.mark.parametrize("facts", ["patterns", "model"])
async def test_a_deleted_fact_stays_deleted(facts: str) -> None:
    """When a typo of its message is mended, when the agent repeats it, and when old messages are imported; not when
    the user says it anew."""
    async with await open_library(facts, "Hm.", "You live in Oslo.") as perdure:
        agent = await perdure.create_agent("x")
        await agent.send("I live in Oslo and I like teaa.")
        await delete(agent, "Oslo")
        message = next(one for one in await agent.messages() if one.role == "user")
        await agent.update_message(message.id, "I live in Oslo and I like tea.")
        await agent.send("What about me?")
        await agent.import_messages([("user", None, "I live in Oslo.", datetime(2026, 1, 1, tzinfo=UTC))])
        await agent.facts.extract()

        assert not any("Oslo" in text for text in await texts(agent))
        assert (await agent.facts.counts()).dropped["deleted by a person"] >= 2
        await agent.send("I live in Oslo.")
        await agent.facts.extract()

        assert "User lives in Oslo." in await texts(agent)


class Reviser(Scribe):
    """Says each turn anew about Oslo, better than what is known."""

    async def extract(self, batch: ReadBatch) -> Extraction:
        fact = ExtractedFact(
            subject="User",
            relation="LIVES_IN",
            object="Oslo",
            text=batch.turns[0].text,
            turns=(1,),
            decision="UPDATE" if batch.facts else "ADD",
            known=1 if batch.facts else None,
        )
        entities = [ExtractedEntity(name="User", type="Person"), ExtractedEntity(name="Oslo", type="Location")]
        return Extraction(entities=[replace(one, known=None) for one in entities], facts=[fact], model="test/reviser")


async def test_a_corrected_fact_stays_corrected() -> None:
    """When its message is read again, until the user says something later."""
    async with opened(Reviser()) as perdure:
        agent = await perdure.create_agent("x")
        await agent.import_messages([("user", None, "In Oslo.", datetime(2026, 1, 1, tzinfo=UTC))])
        await agent.facts.extract()
        (hit,) = await agent.facts.list()
        await agent.facts.update(hit.fact.id, text="In Oslo as a child.")
        (message,) = await agent.messages()
        await agent.update_message(message.id, "In Oslo!")
        await agent.facts.extract()

        assert await texts(agent) == ["In Oslo as a child."]
        await agent.import_messages([("user", None, "In Oslo again.", datetime(2036, 1, 1, tzinfo=UTC))])
        await agent.facts.extract()

        assert await texts(agent) == ["In Oslo again."]


@pytest.mark.parametrize("way", ["delete_all", "reset"])
async def test_waiting_texts_go_with_the_memories(way: str) -> None:
    """What a failed call left is not extracted by a later one; of other users it is."""
    failure = ModelUnreachable("down")
    async with opened(scribe := Scribe(failure, failure)) as perdure:
        memory = AsyncMemory(perdure)
        for user in ("ada", "bob"):
            with pytest.raises(ModelUnreachable):
                await memory.add(f"{user} has gout", user_id=user)
        await (memory.delete_all(user_id="ada") if way == "delete_all" else memory.reset())
        await memory.add("swims", user_id="carl")
        await memory.add("rows", user_id="carl")

        assert "ada has gout" not in [text for batch in scribe.texts[2:] for text in batch]
        assert (await memory.get_all(filters={"user_id": "ada"}))["results"] == []
