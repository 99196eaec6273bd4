"""Two entities that are one: merged, with all that leads to them, and split again as they were."""

from __future__ import annotations

from dataclasses import replace

import pytest

from perdure import AsyncAgent, AsyncPerdure
from perdure.core.errors import Conflict, InvalidInput
from perdure.core.ids import EntityId
from perdure.features.agent_files.exporting import export_text
from perdure.features.agent_files.importing import Import, ImportOptions
from perdure.features.agent_files.reading import read_agent_file
from perdure.features.facts.tables import Entities
from perdure.settings import Settings
from perdure.storage.tx import Tx
from perdure.testing import InlineStore, ScriptedModel


async def _open() -> AsyncPerdure:
    settings = Settings(model="test/scripted", secret_key="for tests, this one")
    return await AsyncPerdure.open(store=InlineStore(), models={"test/scripted": ScriptedModel()}, settings=settings)


async def _fill(agent: AsyncAgent) -> dict[str, EntityId]:
    """Facts of Ada under two names, one of which connects these."""
    for text, subject, relation, object_ in (
        ("Ada lives in Turin.", "Ada", "LIVES_IN", "Turin"),
        ("Ada Lovelace likes tea.", "Ada Lovelace", "LIKES", "tea"),
        ("Luca knows Ada Lovelace.", "Luca", "KNOWS", "Ada Lovelace"),
        ("Ada Lovelace is called Ada.", "Ada Lovelace", "CALLED", "Ada"),
    ):
        await agent.facts.add(text, subject=subject, relation=relation, object=object_)
    return {entity.name: entity.id for entity in await agent.facts.entities()}


async def test_a_merged_entity_gives_its_facts_and_names_to_the_other() -> None:
    async with await _open() as library:
        agent = await library.create_agent("Ada")
        ids = await _fill(agent)
        kept = await agent.facts.merge_entities(ids["Ada Lovelace"], ids["Ada"])
        by_name = await agent.facts.list(entity="Ada Lovelace")
        names = {entity.name: entity.fact_count for entity in await agent.facts.entities()}

        assert kept.aliases == ("Ada Lovelace",)
        assert {hit.fact.text for hit in by_name} == {
            "Ada lives in Turin.",
            "Ada Lovelace likes tea.",
            "Luca knows Ada Lovelace.",
        }
        assert names == {"Ada": 3, "Turin": 1, "tea": 1, "Luca": 1}
        assert (await agent.facts.counts()).entities == 4


async def test_what_is_said_later_of_either_name_is_about_the_one() -> None:
    async with await _open() as library:
        agent = await library.create_agent("Ada")
        ids = await _fill(agent)
        await agent.facts.merge_entities(ids["Ada Lovelace"], ids["Ada"])
        hit = await agent.facts.add("Ada Lovelace has a cat.", subject="Ada Lovelace", relation="HAS", object="a cat")
        old = (await agent.facts.list(entity="Luca"))[0]
        history = await agent.facts.history(old.fact.id)

        assert hit.subject.id == ids["Ada"]
        assert [one.change for one in history.versions] == ["add", "join"]


async def test_a_split_gives_back_names_and_facts() -> None:
    """Also those that connected the two, and those that were corrected meanwhile; what is new stays where it was."""
    async with await _open() as library:
        agent = await library.create_agent("Ada")
        ids = await _fill(agent)
        await agent.facts.merge_entities(ids["Ada Lovelace"], ids["Ada"])
        (tea,) = [hit for hit in await agent.facts.list() if "tea" in hit.fact.text]
        await agent.facts.update(tea.fact.id, rating=0.9)
        await agent.facts.add("Ada has a dog.", subject="Ada", relation="HAS", object="a dog")
        await agent.facts.split_entity(ids["Ada Lovelace"])
        found = {hit.fact.text: (hit.subject.name, hit.object.name) for hit in await agent.facts.list()}
        kept = next(one for one in await agent.facts.entities() if one.name == "Ada")

        assert found == {
            "Ada lives in Turin.": ("Ada", "Turin"),
            "Ada Lovelace likes tea.": ("Ada Lovelace", "tea"),
            "Luca knows Ada Lovelace.": ("Luca", "Ada Lovelace"),
            "Ada Lovelace is called Ada.": ("Ada Lovelace", "Ada"),
            "Ada has a dog.": ("Ada", "a dog"),
        }
        assert kept.aliases == ()
        with pytest.raises(Conflict):
            await agent.facts.split_entity(ids["Ada Lovelace"])


async def test_a_split_leaves_the_other_what_it_had_before() -> None:
    """A name that both had, and its own attributes; what came with the merge goes."""
    async with await _open() as library:
        agent = await library.create_agent("Ada")
        ids = await _fill(agent)
        await agent.facts.change_entity(ids["Ada"], aliases=["Countess"])
        await agent.facts.change_entity(ids["Ada Lovelace"], aliases=["Countess", "AAL"])

        def describe(tx: Tx) -> None:
            for name, more in (("Ada", {"born": 1815}), ("Ada Lovelace", {"born": 1815, "died": 1852})):
                summary = "" if name == "Ada" else "A mathematician."
                entity = tx.of(Entities).get(ids[name])
                tx.of(Entities).put(replace(entity, attributes=more, summary=summary))

        await library.app.ports.store.write(describe)
        merged = await agent.facts.merge_entities(ids["Ada Lovelace"], ids["Ada"])
        gone = await agent.facts.split_entity(ids["Ada Lovelace"])
        kept = await agent.facts.get_entity(ids["Ada"])

    assert merged.summary == "A mathematician." and {*merged.aliases} == {"Ada Lovelace", "Countess", "AAL"}
    assert (kept.aliases, kept.summary, kept.attributes) == (("Countess",), "", {"born": 1815})
    assert gone.attributes == {"born": 1815, "died": 1852}


async def test_merges_follow_one_another_and_a_deleted_fact_comes_back_to_the_last() -> None:
    async with await _open() as library:
        agent = await library.create_agent("Ada")
        ids = await _fill(agent)
        (tea,) = [hit for hit in await agent.facts.list() if "tea" in hit.fact.text]
        await agent.facts.delete(tea.fact.id)
        await agent.facts.merge_entities(ids["Ada Lovelace"], ids["Ada"])
        await agent.facts.merge_entities(ids["Ada"], ids["Luca"])
        back = await agent.facts.restore(tea.fact.id)

        assert back.subject.id == ids["Luca"]
        with pytest.raises(InvalidInput):
            await agent.facts.merge_entities(ids["Ada"], ids["Luca"])


async def test_a_rule_about_a_merged_entity_holds_for_the_other() -> None:
    async with await _open() as library:
        agent = await library.create_agent("Ada")
        ids = await _fill(agent)
        await agent.facts.add_rule("salary", entity="Ada Lovelace")
        await agent.facts.merge_entities(ids["Ada Lovelace"], ids["Ada"])
        (rule,) = await agent.facts.rules()

        entities = {one.id: one.seq for one in await agent.facts.entities()}
        assert rule.entity == entities[ids["Ada"]]


@pytest.mark.uses("agent_files")
async def test_a_copy_of_an_agent_keeps_what_was_merged() -> None:
    async with await _open() as library:
        agent = await library.create_agent("Ada")
        ids = await _fill(agent)
        await agent.facts.merge_entities(ids["Ada Lovelace"], ids["Ada"])
        file = read_agent_file((await export_text(library, agent.id)).encode())
        (agent_id,) = await Import(library, file, ImportOptions()).run()
        copy = await library.agent(agent_id)
        names = {entity.name: entity.id for entity in await copy.facts.entities()}

        assert set(names) == {"Ada", "Turin", "tea", "Luca"}
        assert len(await copy.facts.list(entity="Ada Lovelace")) == 3


async def test_a_renamed_entity_keeps_its_old_name_as_another() -> None:
    async with await _open() as library:
        agent = await library.create_agent("Ada")
        ids = await _fill(agent)
        renamed = await agent.facts.change_entity("Turin", name=" Torino ", type="Location")
        back = await agent.facts.change_entity("Torino", name="Turin", type="Concept", aliases=())

        assert (renamed.name, renamed.type, renamed.aliases) == ("Torino", "Location", ("Turin",))
        assert (back.name, back.aliases) == ("Turin", ())
        with pytest.raises(InvalidInput):
            await agent.facts.change_entity(ids["Turin"], name=" ")
