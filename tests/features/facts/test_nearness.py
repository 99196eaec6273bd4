"""Which known entity a new name means, by vectors: after exact names, before the model, and never of people."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pytest

from perdure import AsyncAgent, AsyncPerdure
from perdure.core.models import ModelReply, ModelRequest
from perdure.core.ports import EmbedPurpose
from perdure.settings import Settings
from perdure.testing import InlineStore, ScriptedEmbedder, ScriptedModel, says
from tests.support.library import MODEL

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

SAME = {"university of oslo": "oslo university", "ada rose": "ada rossi", "room 13": "room 12", "uni": "college"}
"""What the embedder takes for one meaning."""


class _Meanings(ScriptedEmbedder):
    """An embedder of the first name in a text, for which some names are one."""

    async def embed(self, texts: Sequence[str], *, purpose: EmbedPurpose = "document") -> npt.NDArray[np.float32]:
        names = [text.split(". ")[0].split(", ")[0].casefold() for text in texts]
        return await super().embed([SAME.get(name, name) for name in names], purpose=purpose)


def fact(name: str, kind: str, known: int | None = None, relation: str = "KNOWS") -> str:
    """A model's answer: the user knows something of this name."""
    text = f"User knows {name}."
    facts = [{"subject": "User", "relation": relation, "object": name, "text": text, "turns": [1], "decision": "ADD"}]
    entities = [{"name": "User", "type": "Person"}, {"name": name, "type": kind, "known": known}]
    return json.dumps({"entities": entities, "facts": facts, "certain": True})


async def know(perdure: AsyncPerdure, agent: AsyncAgent, text: str) -> None:
    """Say something, have it extracted, and wait for the vectors of the entities."""
    await agent.send(text)
    await agent.facts.extract()
    async with asyncio.timeout(10):
        while any(one.waiting for one in await perdure.app.store.read(lambda tx: tx.vectors.counts())):  # noqa: ASYNC110
            await asyncio.sleep(0.01)


async def open_library(
    answers: Sequence[Any], embedder: ScriptedEmbedder | None = None, *, facts: str = "model"
) -> AsyncPerdure:
    """A library whose model gives these answers to extractions."""
    left = iter(answers)

    def extracts(request: ModelRequest) -> ModelReply:
        answer = next(left)
        return says(answer(request.messages[0].text) if callable(answer) else answer)

    settings = Settings(model=MODEL, facts=facts, embedding="" if embedder else "none")
    models = {MODEL: ScriptedModel(extracts=extracts)}
    return await AsyncPerdure.open(store=InlineStore(), models=models, settings=settings, embedder=embedder)


@pytest.mark.parametrize(
    ("sentence", "first", "second", "is_one"),
    [
        ("I work at {}.", "Oslo University", "University of Oslo", True),
        ("I work at {}.", "Oslo University", "Bergen Museum", False),
        ("My best friend is {}.", "Ada Rossi", "Ada Rose", False),
        ("I live in {}.", "Room 12", "Room 13", False),
    ],
)
@pytest.mark.parametrize("has_vectors", [True, False])
async def test_nearly_equal_names_are_one_entity_unless_they_are_people(
    has_vectors: bool, sentence: str, first: str, second: str, is_one: bool
) -> None:
    """Without a model; the new name becomes an alias. Numbers tell apart, and without vectors all stay apart."""
    async with await open_library((), _Meanings() if has_vectors else None, facts="patterns") as perdure:
        agent = await perdure.create_agent()
        await know(perdure, agent, sentence.format(first))
        await know(perdure, agent, sentence.format(second))
        entities = {one.name: one.aliases for one in await agent.facts.entities()}
        is_one = is_one and has_vectors

        assert (first in entities, second in entities) == (True, not is_one)
        assert (second in entities[first]) == is_one
        assert len(await agent.facts.list()) == 2 - is_one


async def test_nothing_is_embedded_before_an_entity_has_a_vector() -> None:
    """A first short program needs no model of vectors for its facts."""
    async with await open_library((), embedder := _Meanings(), facts="patterns") as perdure:
        agent = await perdure.create_agent()
        embedder.hang()
        async with asyncio.timeout(10):
            for text in ("I live in Turin.", "I live in Oslo."):
                await agent.send(text)
                await agent.facts.extract()
        embedder.recover()

        assert len(await agent.facts.list()) == 2


async def test_a_name_that_two_entities_have_nearly_stays_apart() -> None:
    """Also of one name: vectors never choose between them."""
    answers = [fact("college", "Organization"), fact("college", "Organization", 0), fact("uni", "Organization")]
    async with await open_library(answers, _Meanings()) as perdure:
        agent = await perdure.create_agent()
        for text in ("Look. There is college", "Look. Another college", "Look. There is uni"):
            await know(perdure, agent, text)

        assert sorted(one.name for one in await agent.facts.entities()) == ["User", "college", "college", "uni"]


async def test_the_model_is_shown_what_is_near_and_decides() -> None:
    """It sees the known entity although the turn doesn't name it; what it calls new stays apart."""
    seen: list[bool] = []

    def decide(text: str) -> str:
        seen.append("Oslo University (Organization)" in text)
        return fact("University of Oslo", "Organization")

    async with await open_library([fact("Oslo University", "Organization"), decide], _Meanings()) as perdure:
        agent = await perdure.create_agent()
        await know(perdure, agent, "There is Oslo University")
        await know(perdure, agent, "University of Oslo")

        assert seen == [True]
        assert len(await agent.facts.entities()) == 3
