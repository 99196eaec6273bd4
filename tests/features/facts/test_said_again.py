"""What becomes of a fact that is said again, or denied: without a model, and with one."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from perdure import AsyncAgent, AsyncPerdure
from perdure.core.blocks import Author
from perdure.core.messages import Text
from perdure.core.models import ModelReply, ModelRequest
from perdure.features.facts.values.extraction import Extraction, ReadBatch
from perdure.settings import Settings
from perdure.testing import InlineStore, ScriptedModel, says
from tests.features.facts.test_background import Scribe, opened
from tests.features.facts.test_meanwhile import held
from tests.support.library import MODEL

PERSON = Author(kind="user", id="user")


async def open_library(facts: str) -> AsyncPerdure:
    """A library that extracts by patterns, or by a model that hears each user say they live in Turin."""
    model = ScriptedModel(extracts=answer)
    settings = Settings(model=MODEL, embedding="none", facts=facts)
    return await AsyncPerdure.open(store=InlineStore(), models={MODEL: model}, settings=settings)


def answer(request: ModelRequest) -> ModelReply:
    lines = request.messages[0].text.partition("<turns>")[2].splitlines()
    turns = [int(line.partition(".")[0]) for line in lines if "Turin" in line]
    fact = {"subject": "User", "relation": "LIVES_IN", "object": "Turin", "text": "User lives in Turin."}
    entities = [{"name": "User", "type": "Person"}, {"name": "Turin", "type": "Location"}]
    facts = [fact | {"turns": [turn], "decision": "ADD"} for turn in turns]
    return says(json.dumps({"entities": entities, "facts": facts, "certain": True}))


async def states(agent: AsyncAgent) -> list[str]:
    """Each fact's text, with `ended` if it has ceased to be true."""
    return [hit.fact.text + " ended" * (hit.fact.invalid_at is not None) for hit in await agent.facts.list()]


@pytest.mark.parametrize("facts", ["patterns", "model"])
@pytest.mark.parametrize("batches", [1, 2])
async def test_a_fact_that_is_said_twice_outlives_each_of_its_messages(facts: str, batches: int) -> None:
    """Of one batch or of two; it goes when the last of them says something else."""
    async with await open_library(facts) as perdure:
        agent = await perdure.create_agent()
        for text in ("I live in Turin.", "I live in Turin!"):
            await agent.send(text)
            if batches == 2:
                await agent.facts.extract()
        await agent.facts.extract()
        found = []
        for message in [message for message in await agent.messages() if message.role == "user"]:
            found.append(await states(agent))
            await agent.edit_message(message.id, "user", [Text("Hm.")], author=PERSON)

        assert found == [["User lives in Turin."]] * 2
        assert await states(agent) == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("said", "denial", "left"),
    [
        ("I live in Turin.", "I don't live in Turin.", ["User used to live in Turin. ended"]),
        ("I live in Turin.", "I don't live in Turin any more.", ["User used to live in Turin. ended"]),
        ("I work at Fiat.", "I'm not working at Fiat.", ["User used to work at Fiat. ended"]),
        ("I live in Turin.", "I never lived in Turin.", []),
        ("I work at Fiat.", "I didn't work at Fiat.", []),
        ("I live in Turin.", "I don't live in Oslo.", ["User lives in Turin."]),
        ("我住在北京。", "我不住在北京。", ["User以前住在北京。 ended"]),
        ("我住在北京。", "我已经不住在北京了。", ["User以前住在北京。 ended"]),
        ("我在华为工作。", "我不在华为工作。", ["User以前在华为工作。 ended"]),
        ("我住在北京。", "我从来没住过北京。", []),
    ],
)
@pytest.mark.parametrize("batches", [1, 2])
async def test_a_denial_ends_a_fact_unless_it_never_was(batches: int, said: str, denial: str, left: list[str]) -> None:
    """What is not so now may have been so; what never was so is believed no longer."""
    async with await open_library("patterns") as perdure:
        agent = await perdure.create_agent()
        for text in (said, denial):
            await agent.send(text)
            if batches == 2:
                await agent.facts.extract()
        await agent.facts.extract()

        assert await states(agent) == left


async def test_a_denial_of_what_nobody_said_is_no_fact() -> None:
    async with await open_library("patterns") as perdure:
        agent = await perdure.create_agent()
        await agent.send("I don't live in Turin. 我不住在北京。")
        await agent.facts.extract()

        assert await states(agent) == []


async def test_a_document_gives_facts_without_a_model() -> None:
    """Their episode is of the kind `json`, and a later document changes what an earlier one said."""
    async with await open_library("patterns") as perdure:
        agent = await perdure.create_agent()
        for city in ("Turin", "Milan"):
            await agent.facts.ingest(json.dumps({"user": {"name": "Ada", "city": city}}), kind="json")
        (history,) = [await agent.facts.history(hit.fact.id) for hit in await agent.facts.list(entity="Milan")]

        assert sorted(await states(agent)) == ["Ada lives in Milan.", "Ada lives in Turin. ended"]
        assert {episode.kind for episode in history.sources} == {"json"}


class Dated(Scribe):
    """A scribe whose facts begin and end at these times."""

    def __init__(self, valid_at: str | None, invalid_at: str | None) -> None:
        super().__init__()
        self.times = {"valid_at": valid_at, "invalid_at": invalid_at}

    async def extract(self, batch: ReadBatch) -> Extraction:
        found = await super().extract(batch)
        return replace(found, facts=[replace(fact, **self.times) for fact in found.facts])  # type: ignore[arg-type]


IN_2020, IN_2022 = "2020-01-01T00:00:00Z", "2022-01-01T00:00:00Z"


@pytest.mark.parametrize(
    ("times", "scope", "other", "is_same"),
    [
        ((None, None), {}, {}, True),
        ((None, None), {}, {"trust": "web"}, False),
        ((None, None), {"user_id": "bea"}, {"scope": {"user_id": "bea", "run_id": "1"}}, True),
        ((None, None), {"user_id": "bea"}, {}, False),
        ((IN_2022, None), {}, {"valid_at": datetime(2020, 1, 1, tzinfo=UTC)}, True),
        ((IN_2020, None), {}, {"valid_at": datetime(2022, 1, 1, tzinfo=UTC)}, False),
        ((IN_2020, IN_2022), {}, {"valid_at": datetime(2020, 1, 1, tzinfo=UTC)}, False),
    ],
)
async def test_the_same_that_came_meanwhile_is_supported_and_not_said_twice(
    times: tuple[str | None, str | None], scope: dict[str, str], other: dict[str, Any], is_same: bool
) -> None:
    """What comes from elsewhere, is of somebody else, or was true at other times, is another fact."""
    async with opened(scribe := Dated(*times)) as perdure:
        agent = await perdure.create_agent()
        await agent.facts.ingest("figs")
        scribe.batches.clear()

        async def add() -> None:
            known = {"subject": "Ada", "relation": "SAID", "object_": "tea in 2020 and 2022", **other}
            await agent.facts.add_fact("She said it.", **known)

        await held(scribe, agent.facts.ingest("tea in 2020 and 2022", scope=scope), add)

        found = [hit.fact for hit in await agent.facts.list() if hit.fact.text != "Ada said figs."]
        sources = [len((await agent.facts.history(fact.id)).sources) for fact in found]
        assert sources == ([2] if is_same else [1, 1])


@pytest.mark.parametrize(
    ("again", "is_same"),
    [
        ({}, True),
        ({"valid_at": datetime(2020, 1, 1, tzinfo=UTC)}, False),
        ({"invalid_at": datetime(2100, 1, 1, tzinfo=UTC)}, False),
        ({"subject": "Bea"}, False),
        ({"relation": "LOVES"}, False),
    ],
)
async def test_a_sentence_that_is_added_twice_is_one_fact(again: dict[str, Any], is_same: bool) -> None:
    """Unless it is about another one, or another time; what was deleted is another fact, too."""
    async with await open_library("off") as perdure:
        agent = await perdure.create_agent()
        first = await agent.facts.add("Likes tea.")
        second = await agent.facts.add("Likes tea. ", **again)
        sources = (await agent.facts.history(first.fact.id)).sources

        assert (second.fact.id == first.fact.id) is is_same and len(sources) == 1 + is_same
        assert len(await agent.facts.list()) == 2 - is_same
        await agent.facts.delete(first.fact.id)
        assert (await agent.facts.add("Likes tea.")).fact.id != first.fact.id


async def test_a_sentence_that_a_person_adds_is_the_known_fact_made_current_again() -> None:
    """Faded, or from an extraction; it stays then when the message goes. What has ended is true anew as another one."""
    async with await open_library("patterns") as perdure:
        agent = await perdure.create_agent()
        await agent.send("I live in Turin.")
        (said,) = await agent.facts.extract()
        again = await agent.facts.add(said.fact.text)
        sources = (await agent.facts.history(said.fact.id)).sources
        await agent.edit_message((await agent.messages())[0].id, "user", [Text("Hm.")], author=PERSON)
        tea = await agent.facts.add("Likes tea.")
        await agent.facts.edit(tea.fact.id, {"state": "faded"}, origin={"type": "system"})
        revived = await agent.facts.add("Likes tea.")

        assert (again.fact.id, len(sources)) == (said.fact.id, 2)
        assert (revived.fact.id, revived.fact.state) == (tea.fact.id, "active")
        assert {hit.fact.id for hit in await agent.facts.list()} == {said.fact.id, tea.fact.id}
        await agent.facts.ingest("I moved to Bergen.")
        assert (await agent.facts.add(said.fact.text)).fact.id != said.fact.id
