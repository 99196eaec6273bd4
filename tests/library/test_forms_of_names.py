"""What a person names is found however the letters and marks of its name are written."""

from __future__ import annotations

import unicodedata
from collections.abc import AsyncIterator

import pytest

from perdure import AlreadyExists, AsyncPerdure, NewBlock, NewPassage
from perdure.core.agents import AgentFilter
from perdure.core.ids import PassageId, derived_id
from perdure.domain.conversations.patterns import Pattern
from perdure.library.agents.identities import IdentityFields
from perdure.library.memory.passages import passage_filter
from perdure.library.parts.checks import Page
from perdure.settings import Settings
from perdure.testing import InlineStore, ScriptedModel, says

MODEL = "test/scripted"
NAME = "Việt-한글-café"
APART = unicodedata.normalize("NFD", NAME)
PAGE = Page(100, ascending=True)
FORMS = pytest.mark.parametrize(("name", "other"), [(NAME, APART), (APART, NAME)])


@pytest.fixture
async def perdure() -> AsyncIterator[AsyncPerdure]:
    """An open store whose facts are found by patterns."""
    settings = Settings(model=MODEL, embedding="none", facts="patterns")
    model = ScriptedModel(otherwise=says("OK."))
    async with await AsyncPerdure.open(store=InlineStore(), models={MODEL: model}, settings=settings) as opened:
        yield opened


@FORMS
async def test_agents_blocks_and_identities_are_found_in_every_form(
    perdure: AsyncPerdure, name: str, other: str
) -> None:
    """An agent by its name and tags, its blocks by their labels, identities by their keys."""
    agent = await perdure.create_agent(name, blocks=[NewBlock(label=name, value=name)])
    await agent.update(tags=[name])
    identity = await perdure.identities.create(IdentityFields(identifier_key=name, name=name, identity_type="user"))
    same = await perdure.identities.upsert(IdentityFields(identifier_key=other, name=name, identity_type="user"))

    assert (await perdure.get_or_create_agent(other)).id == agent.id
    assert (await agent.blocks.get(other)).value == name
    assert await perdure.all_agents.count(AgentFilter(tags=(other,))) == 1
    assert await perdure.all_agents.tags(PAGE, text=other.upper()) == [NAME]
    assert same.identity.id == identity.identity.id
    with pytest.raises(AlreadyExists):
        await perdure.create_agent(other)
    with pytest.raises(AlreadyExists):
        await agent.blocks.create(other, "x")
    assert (await agent.blocks.update(other, value="y")).value == "y"


@pytest.mark.uses("files")
@FORMS
async def test_archives_folders_and_passages_are_found_in_every_form(
    perdure: AsyncPerdure, name: str, other: str
) -> None:
    """By their names and tags; a passage that has a name changes when it is put again."""
    archive = await perdure.archives.open(name)
    folder = await perdure.folders.add({"name": name})
    await perdure.folders.by_id(folder.id).upload(b"one", name=f"{name}.txt")
    await perdure.archive_of(archive.id).insert_many([NewPassage(text=name, tags=[name])])
    first = await perdure.archive_of(archive.id).put_named(["x", name], NewPassage(text="one"))
    second = await perdure.archive_of(archive.id).put_named(["x", other], NewPassage(text="two"))

    assert (await perdure.archives.open(other)).id == archive.id
    assert (await perdure.folders.get(other)).id == folder.id
    with pytest.raises(AlreadyExists):
        await perdure.folders.add({"name": other})
    await perdure.folders.by_id(folder.id).upload(b"two", name=f"{other}.txt")
    assert [one.file.name for one in await perdure.folders.by_id(folder.id).list_files(PAGE)] == [f"{NAME}.txt"]
    found = await perdure.archive_of(archive.id).list_passages(PAGE, where=passage_filter(tags=[other]))
    assert [one.text for one in found] == [name]
    assert first.id == second.id
    await perdure.archive_of(archive.id).delete_named(["x", other])
    assert await perdure.archive_of(archive.id).find_named(["x", name]) is None


async def test_a_passage_that_an_older_version_named_is_found_and_changed(perdure: AsyncPerdure) -> None:
    """Its id was made of the name as it was written then."""
    archive = await perdure.archives.open("notes")
    (made,) = await perdure.archive_of(archive.id).insert_many([NewPassage(text="one")])
    old = PassageId(derived_id("passage", archive.id, "x", APART))
    await perdure.app.ports.store.write(
        lambda tx: tx._db.run("UPDATE ids SET id = :old WHERE id = :id", {"old": old, "id": made.id})
    )
    await perdure.app.ports.store.write(
        lambda tx: tx._db.run("UPDATE passages SET id = :old WHERE id = :id", {"old": old, "id": made.id})
    )

    assert (await perdure.archive_of(archive.id).put_named(["x", NAME], NewPassage(text="two"))).id == old
    found = await perdure.archive_of(archive.id).find_named(["x", APART])
    assert found is not None and found.text == "two"


@FORMS
async def test_a_pattern_meets_texts_in_every_form(name: str, other: str) -> None:
    """A line of a file or a message is found by a regular expression in the other form, also by a set of letters."""
    search = Pattern(f"^{name}|[éệ]t")

    assert [one.line for one in search.matches(f"x\n{other} y\nviet\nx{other}")] == [2, 4]
    assert search.has(other) and not search.has("viet-cafe")
