"""Types of entities with attributes, as pydantic models or JSON schemas."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pydantic import BaseModel

from perdure import AsyncPerdure, InvalidInput
from perdure.settings import Settings
from perdure.testing import InlineStore, ScriptedModel, says
from tests.support.library import MODEL


class Person(BaseModel):
    """A person with an age."""

    age: int | None = None


ANSWER = {
    "entities": [
        {"name": "User", "type": "Person", "attributes": {"age": 34, "height": 180}},
        {"name": "Turin", "type": "Place"},
    ],
    "facts": [
        {"subject": "User", "relation": "LIVES_IN", "object": "Turin", "text": "User lives in Turin.", "turns": [1]}
    ],
}


def open_library() -> Any:
    models = {MODEL: ScriptedModel(extracts=says(json.dumps(ANSWER)))}
    settings = Settings(model=MODEL, embedding="none", facts="model")
    return AsyncPerdure.open(store=InlineStore(), models=models, settings=settings)


async def test_a_pydantic_model_is_a_type_with_attributes() -> None:
    async with await open_library() as perdure:
        agent = await perdure.create_agent("ada")
        types = {"Person": Person, "Place": {}}
        await agent.facts.change_settings({"entity_types": types})
        await agent.facts.ingest("I am 34 and live in Turin.")

        assert [(one.name, one.attributes) for one in await agent.facts.entities()] == [
            ("User", {"age": 34}),
            ("Turin", {}),
        ]


async def test_what_is_no_schema_is_refused() -> None:
    async with await open_library() as perdure:
        agent = await perdure.create_agent("ada")

        with pytest.raises(InvalidInput, match=r"entity_types\.Person is 'tall'"):
            await agent.facts.change_settings({"entity_types": {"Person": "tall"}})


@pytest.mark.parametrize(("kind", "stored"), [("Place", "Concept"), ("location", "Location"), ("Dragon", "Concept")])
async def test_a_type_that_is_not_listed_keeps_the_fact(kind: str, stored: str) -> None:
    answer = json.dumps(ANSWER).replace('"Place"', f'"{kind}"')
    models = {MODEL: ScriptedModel(extracts=says(answer))}
    settings = Settings(model=MODEL, embedding="none", facts="model")
    async with await AsyncPerdure.open(store=InlineStore(), models=models, settings=settings) as perdure:
        agent = await perdure.create_agent("ada")

        assert [hit.fact.text for hit in await agent.facts.ingest("I live in Turin.")] == ["User lives in Turin."]
        assert [one.type for one in await agent.facts.entities()] == ["Person", stored]
