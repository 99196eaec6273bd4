"""What an agent has forgotten stands nowhere in an agent file of it, and is there again after `undo`."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from typing import Any

import pytest

from perdure import AsyncAgent, AsyncPerdure
from perdure.core.messages import Text
from perdure.core.text.forms import match_form
from perdure.engine.records.run_request import NewMessage, RunRequest
from perdure.features.agent_files.exporting import export_text
from perdure.features.facts.tables import Entities, Graphs
from perdure.settings import Settings
from perdure.storage.tx import Tx
from perdure.storage.upkeep.corrections import CORRECTIONS_MAX
from perdure.testing import InlineStore, ScriptedModel, calls, says
from tests.features.agent_files.test_agent_copies import go_round
from tests.support.library import MODEL

LONG = " ".join(f"xylocarp number {number}" for number in range(20))
"""Longer than the title of a correction."""


@pytest.fixture
async def perdure() -> AsyncIterator[AsyncPerdure]:
    notes = calls("update_working_checkpoint", key_info="The xylocarp is near.")
    model = ScriptedModel(notes, says("Noted."), otherwise=says("OK."))
    settings = Settings(model=MODEL, embedding="none", facts="patterns")
    async with await AsyncPerdure.open(store=InlineStore(), models={MODEL: model}, settings=settings) as opened:
        yield opened


def strings(value: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """Each text of a document, names of fields too, with its place."""
    if isinstance(value, dict):
        for name, one in value.items():
            yield path, name
            yield from strings(one, f"{path}.{name}")
    elif isinstance(value, list):
        for one in value:
            yield from strings(one, f"{path}[]")
    elif isinstance(value, str):
        yield path, value


async def file_of(perdure: AsyncPerdure, agent: AsyncAgent) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(await export_text(perdure, agent.id))
    return document


async def places(perdure: AsyncPerdure, agent: AsyncAgent, text: str) -> set[str]:
    """Where a text stands in the file of an agent."""
    found = strings(await file_of(perdure, agent))
    return {path for path, value in found if match_form(text) in match_form(value)}


async def live(perdure: AsyncPerdure, word: str) -> AsyncAgent:
    """An agent in each of whose parts a word stands, in what it is now and in what it was."""
    agent = await perdure.create_agent(
        "ada",
        human=f"Likes {word}s.\nIs tall.",
        tools=["update_working_checkpoint"],
        settings={"compaction": {"prompt": f"Always mention {word}."}},
        description=f"Knows {word}.",
        tags=[word, "work"],
        metadata={word: [f"a {word}"]},
        system=f"You know {word}. {{CORE_MEMORY}}",
    )
    named = NewMessage((Text("Hello."),), name=word, otid=f"{word}-1")
    await agent.send_request(RunRequest(agent_id=agent.id, messages=(named,)))
    for text in (f"I like {word}s.", f"I live in {word.title()}.", "I live in Oslo."):
        await agent.send(text)
        await agent.facts.extract()
    for hit in await agent.facts.list():
        if "likes" in hit.fact.text:
            await agent.facts.delete(hit.fact.id)
    await agent.facts.ingest(f"I work at {word.title()}.")
    await agent.facts.add_rule(text=word)
    await agent.facts.add_rule(relation=word.upper())
    await agent.blocks.delete_line("human", 1)
    await agent.blocks.create("notes", f"more {word}\nmore tea", description=f"about {word}")
    await agent.archive(f"A passage of {word}.")
    await agent.archive("Another one.", tags=[word])
    await agent.schedules.create(f"Talk of {word}.", cron="0 9 * * *", name=f"{word} 1")
    folder = await perdure.folders.create("docs", description=f"docs of {word}", metadata={"for": word})
    await folder.upload(f"Files tell of {word}.".encode(), name=f"{word}.txt")
    await folder.wait()
    await agent.files.attach("docs")

    def plant(tx: Tx) -> None:
        graph = tx.of(Graphs).find_by_agent(agent.id)
        assert graph is not None
        user, *_ = tx.of(Entities).list(graph.id)
        tx.of(Entities).put(replace(user, aliases=(word, f"{word} 2"), summary=f"Eats {word}.", attributes={"a": word}))
        tx.of(Graphs).put(replace(graph, settings={"entity_types": {"Fruit": {"description": f"As {word}."}}}))

    await perdure.app.store.write(plant)
    return agent


@pytest.mark.slow
@pytest.mark.parametrize("written", ["xylocarp", "XYLOCARP"])
async def test_what_is_forgotten_is_nowhere_in_the_file(perdure: AsyncPerdure, written: str) -> None:
    """Undone, all is in it as before; and the file makes an agent that says as much."""
    agent = await live(perdure, "xylocarp")
    before, planted = await file_of(perdure, agent), await places(perdure, agent, "xylocarp")
    assert len(planted) >= 30
    result = await agent.forget(written)
    copy = await go_round(perdure, agent)

    assert await places(perdure, agent, "xylocarp") == set()
    assert await places(perdure, copy, "xylocarp") == set()
    hits = [[hit.fact.text for hit in await one.facts.list()] for one in (agent, copy)]
    assert hits == [["User lives in Oslo."]] * 2
    assert result.correction is not None
    await agent.undo(result.correction.number)
    assert await places(perdure, agent, "xylocarp") >= planted
    after = await file_of(perdure, agent)
    assert [after["agents"][0][name] for name in ("system", "tags", "metadata")] == [
        before["agents"][0][name] for name in ("system", "tags", "metadata")
    ]


@pytest.mark.parametrize("text", [LONG, "xylocarp n\u00famero uno", "私の秘密の言葉"])
async def test_a_text_is_hidden_to_its_end(perdure: AsyncPerdure, text: str) -> None:
    """Also one that is longer than what lists of corrections show."""
    agent = await perdure.create_agent("ada", human=f"Wrote: {text}.")
    await agent.blocks.delete_line("human", 1)
    await agent.facts.ingest(f"{text}.")
    await agent.send(f"{text}.")
    await agent.schedules.create(f"Say {text}.", cron="0 9 * * *")
    await agent.forget(text)
    words = text.split()

    assert all(len(one.text) <= 120 for one in await agent.corrections())
    assert await places(perdure, agent, " ".join(words[-3:])) == set()
    assert await places(perdure, agent, " ".join(words[:3])) == set()


@pytest.mark.slow
@pytest.mark.parametrize("way", ["forget", "edit", "delete"])
async def test_what_was_derived_from_it_is_hidden_in_other_words(perdure: AsyncPerdure, way: str) -> None:
    """Of a message that is forgotten or edited, or a passage that is deleted; a deletion by a person stays."""
    agent = await perdure.create_agent("ada")
    for text in ("I like figs.", "I like rye."):
        await agent.send(text)
    passage = await agent.archive("I work at Norvik.")
    if way != "delete":
        await agent.delete_passage(passage.id)
        await agent.send("I work at Norvik.")
    await agent.facts.extract()
    hits = {hit.fact.text: hit.fact.id for hit in await agent.facts.list()}
    await agent.facts.delete(hits["User likes figs."])
    message = next((one for one in await agent.messages() if "Norvik" in one.text), None)
    if way == "delete":
        await agent.delete_passage(passage.id)
    elif way == "edit":
        await agent.update_message(message.id, "Never mind.")  # type: ignore[union-attr]
    else:
        await agent.forget(message.id)  # type: ignore[union-attr]
    copy = await go_round(perdure, agent)

    assert "User works at Norvik." in hits
    assert await places(perdure, agent, "norvik") == set()
    assert [hit.fact.text for hit in await copy.facts.list()] == ["User likes rye."]
    message = next(one for one in await copy.messages() if "figs" in one.text)
    await copy.update_message(message.id, "I like figs!")
    await copy.facts.extract()
    assert [hit.fact.text for hit in await copy.facts.list()] == ["User likes rye."]


async def test_a_file_is_read_after_a_relation_was_erased(perdure: AsyncPerdure) -> None:
    agent = await perdure.create_agent("ada")
    hit = await agent.facts.add("Eva is Ada's wife.", subject="Ada", relation="MARRIED_TO", object="Eva")
    await agent.facts.add_rule(relation="MARRIED_TO")
    await agent.forget("married_to", erase=True)
    copy = await go_round(perdure, agent)

    for one in (agent, copy):
        assert [(found.fact.text, found.fact.relation) for found in await one.facts.list()] == [
            (hit.fact.text, "REDACTED")
        ]


async def test_what_stands_out_of_view_only_is_hidden_too(perdure: AsyncPerdure) -> None:
    """Then nothing is taken out, and there is nothing to undo; the last correction stays the last."""
    agent = await perdure.create_agent("ada", human="Likes xylocarps.\nIs tall.")
    await agent.blocks.delete_line("human", 1)
    result = await agent.forget("xylocarp")

    assert (result.total, result.correction) == (0, None)
    assert await places(perdure, agent, "xylocarp") == set()
    await agent.undo()
    assert (await agent.blocks.get("human")).value == "Likes xylocarps.\nIs tall."


async def test_what_is_forgotten_stays_so_after_many_other_corrections(perdure: AsyncPerdure) -> None:
    """Then it can't be undone any more."""
    agent = await perdure.create_agent("ada", human="Likes xylocarps.\nIs tall.")
    await agent.forget("xylocarp")
    for number in range(CORRECTIONS_MAX):
        await agent.blocks.replace_line("human", 1, f"Is {number} m tall.")

    assert len(await agent.corrections(limit=200)) == CORRECTIONS_MAX
    assert await places(perdure, agent, "xylocarp") == set()


async def test_what_is_said_again_is_in_the_file_again(perdure: AsyncPerdure) -> None:
    """What it was before stays hidden."""
    agent = await perdure.create_agent("ada", human="Likes old xylocarps.")
    await agent.send("I live in Xylocarp.")
    await agent.facts.extract()
    await agent.forget("xylocarp")
    await agent.send("I live in Xylocarp.")
    await agent.facts.extract()
    await agent.blocks.append("human", "Likes new xylocarps.")
    document = await file_of(perdure, agent)
    copy = await go_round(perdure, agent)

    own = document["metadata"]["perdure"]["agents"]["agent-0"]
    assert "old" not in json.dumps(own["block_values"])
    assert (await copy.blocks.get("human")).value == "Likes new xylocarps."
    assert [message.text for message in await copy.messages()][-2:] == ["I live in Xylocarp.", "OK."]
    assert [hit.fact.text for hit in await copy.facts.list()] == ["User lives in Xylocarp."]
    assert "Xylocarp" in [entity.name for entity in await copy.facts.entities()]


async def test_what_another_agent_took_out_of_a_shared_block_is_hidden(perdure: AsyncPerdure) -> None:
    """What both know apart from it stays with who was not asked to forget it."""
    ann = await perdure.create_agent("ann", human="")
    bob = await perdure.create_agent("bob", human="")
    shared = await ann.blocks.create("team", "The word is xylocarp.\nTea at four.")
    await bob.blocks.attach(shared.id)
    await ann.send("Ann's figs.")
    await bob.schedules.create("Bob's figs.", cron="0 9 * * *")
    await ann.forget("xylocarp")
    await ann.forget("figs")

    assert await places(perdure, bob, "xylocarp") == set()
    assert await places(perdure, bob, "figs") != set()
