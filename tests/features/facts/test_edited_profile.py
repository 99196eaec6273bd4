"""The profile after a fact was edited: its slots and the user's name are what the sentence says now."""

from __future__ import annotations

from typing import Any

import pytest

from perdure import AsyncAgent
from perdure.features.facts.values.facts import FactHit
from tests.features.facts.test_edits import opened_with_patterns, tell
from tests.ui.browser import dashboard, text_of, undo


async def fact_of(agent: AsyncAgent, text: str) -> FactHit:
    return next(hit for hit in await agent.facts.list() if hit.fact.text == text)


@pytest.mark.parametrize(
    ("new", "place"),
    [
        ("Ada lives in Milan.", "Milan"),
        ("Ada lives in Milan", "Milan"),
        ("Ada lives in Reggio Emilia.", "Reggio Emilia"),
        ("Ada now lives in Milan.", "Milan"),
        ("Now I live in Milan.", "Milan"),
        ("Since May Ada has had a flat in Milan.", "Since May Ada has had a flat in Milan."),
        ("Ada now lives in Turin.", "Turin"),
        ("Ada lives in Turin, near the river.", "Turin, near the river"),
    ],
)
async def test_a_slot_has_the_new_value(new: str, place: str) -> None:
    """The name that stands in place of the former one, or the sentence if it is another one altogether."""
    async with opened_with_patterns() as perdure:
        agent = await perdure.create_agent("x")
        await tell(agent, "My name is Ada. I live in Turin. I work at Fiat.")
        edited = await agent.facts.update((await fact_of(agent, "Ada lives in Turin.")).fact.id, text=new)
        slots = (await agent.facts.profile()).slots
        await agent.facts.update(edited.fact.id, text="Ada lives in Turin.")
        back = (await agent.facts.profile()).slots

    assert slots == {"basic_info.name": ["Ada"], "basic_info.location": [place], "work.company": ["Fiat"]}
    assert back == {**slots, "basic_info.location": ["Turin"]}


@pytest.mark.parametrize("new", ["The name of the user is Eva.", "The name of the user is Eva", "My name is Eva."])
async def test_the_name_is_the_new_one(new: str) -> None:
    """On all later facts too; the former one still leads to the user."""
    async with opened_with_patterns() as perdure:
        agent = await perdure.create_agent("x")
        await tell(agent, "My name is Ada. I live in Turin.")
        name = await agent.facts.add("The name of the user is Ada.", relation="HAS_NAME", object="Name")
        await agent.facts.update(name.fact.id, text=new)
        await tell(agent, "I work at Fiat.")
        profile = await agent.facts.profile()

        assert profile.slots["basic_info.name"] == ["Eva"]
        assert [entry.fact is not None for entry in profile.entries if entry.slot == "basic_info.name"] == [True]
        assert profile.slots["work.company"] == ["Fiat"] and profile.slots["basic_info.location"] == ["Turin"]
        assert (await agent.facts.profile(user="Ada")).slots == profile.slots


async def test_a_fact_of_somebody_else_leaves_the_profile() -> None:
    """Somebody whom other facts name: the user is not called otherwise by that."""
    async with opened_with_patterns() as perdure:
        agent = await perdure.create_agent("x")
        await tell(agent, "My name is Ada. I live in Turin. I work at Fiat. My brother is Bob.")
        await agent.facts.update((await fact_of(agent, "Ada works at Fiat.")).fact.id, text="Bob works at Fiat.")
        slots = (await agent.facts.profile()).slots

        assert slots["basic_info.name"] == ["Ada"] and "work.company" not in slots
        assert (await agent.facts.profile(user="Bob")).slots["work.company"] == ["Fiat"]


async def test_the_page_corrects_name_and_place_and_undoes_it() -> None:
    """By any fact that says the name; its notice says what the user is called now."""
    async with dashboard(facts="patterns") as (client, library):
        agent = await library.create_agent("x")
        await tell(agent, "My name is Ada. I live in Turin.")
        path = f"/agents/{agent.id}/facts"
        fact_id = (await fact_of(agent, "Ada lives in Turin.")).fact.id
        page = await client.post(f"{path}/{fact_id}", data={"text": "Eva lives in Milan."})
        edited = (await client.get(f"{path}/profile?format=json")).json()
        await undo(client, page)
        undone = (await client.get(f"{path}/profile?format=json")).json()

    assert "Ada is now called Eva" in text_of(page.text) and edited["name"] == "Eva"
    assert [values_of(one) for one in (edited, undone)] == [["Eva", "Milan"], ["Ada", "Turin"]]


def values_of(profile: dict[str, Any]) -> list[str]:
    """The values of the first group of a profile's page, in order."""
    return [entry["value"] for slot in profile["groups"][0]["slots"] for entry in slot["entries"]]
