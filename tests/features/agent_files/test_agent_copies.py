"""An agent that goes through an agent file is the same agent: settings, facts, passages, schedules, versions."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Mapping
from dataclasses import asdict
from typing import Any

import pytest

from perdure import AsyncAgent, AsyncPerdure, InvalidInput
from perdure.core.messages import Text
from perdure.engine.records.run_request import NewMessage, RunRequest
from perdure.features.agent_files.exporting import export_text
from perdure.features.agent_files.importing import Import, ImportOptions
from perdure.features.agent_files.reading import parse_own_metadata, read_agent_file
from perdure.features.facts.tables import Entities, Episodes, Facts, Graphs
from perdure.features.facts.values.facts import FactFilter
from perdure.server.wire.errors import AgentFileInvalid
from perdure.settings import Settings
from perdure.testing import InlineStore, ScriptedModel, calls, says
from tests.support.library import MODEL


@pytest.fixture
async def perdure() -> AsyncIterator[AsyncPerdure]:
    script = calls("memory_insert", label="human", new_string="Lives in Oslo."), says("Noted.")
    settings = Settings(model=MODEL, embedding="none", facts="patterns")
    models = {MODEL: ScriptedModel(*script, otherwise=says("OK."))}
    async with await AsyncPerdure.open(store=InlineStore(), models=models, settings=settings) as opened:
        yield opened


FRESH = dict.fromkeys(("id", "graph_id", "seq", "first_seq", "text_seq", "origin"))
"""What is another one of a version in the copy."""


async def live(perdure: AsyncPerdure, **settings: Any) -> AsyncAgent:
    """An agent with a life: facts of all kinds, a passage, a schedule, and versions of a block."""
    agent = await perdure.create_agent("ada", human="Likes tea.", settings=settings)
    for text in ("I live in Oslo.", "I like figs.", "I have gout.", "I live in Bergen."):
        await agent.send(text)
        await agent.facts.extract()
    await agent.archive("I work at Norvik.", tags=["work"])
    await agent.facts.extract()
    for hit in await agent.facts.list():
        if "figs" in hit.fact.text:
            await agent.facts.delete(hit.fact.id)
        elif "Norvik" in hit.fact.text:
            await agent.facts.update(hit.fact.id, text="User works at Norvik in Bergen.")
    await agent.facts.add_rule(text="gout")
    await agent.schedules.create("Good morning", cron="0 9 * * *", name="morning")
    return agent


async def go_round(perdure: AsyncPerdure, agent: AsyncAgent, change: Any = lambda document: None) -> AsyncAgent:
    document = json.loads(await export_text(perdure, agent.id))
    change(document)
    (agent_id,) = await Import(perdure, read_agent_file(json.dumps(document).encode()), ImportOptions()).run()
    return await perdure.agent(agent_id)


async def life(perdure: AsyncPerdure, agent: AsyncAgent) -> Mapping[str, Any]:
    """All of an agent that a copy has too, without ids."""

    def read(tx: Any) -> Mapping[str, Any]:
        graph = tx.of(Graphs).find_by_agent(agent.id)
        facts = tx.of(Facts).page(graph.id, where=FactFilter())
        entities = {one.seq: one.name for one in tx.of(Entities).list(graph.id)}
        said = tx.of(Facts).sources(graph.id, [one.first_seq for one in facts])
        texts = {one.seq: one.kind for one in tx.of(Episodes).list(graph.id)}
        return {
            "settings": tx.agents.get(agent.id).settings,
            "entities": sorted(
                (one.name, one.type, one.aliases, one.fact_count) for one in tx.of(Entities).list(graph.id)
            ),
            "versions": sorted(
                [
                    {**asdict(one), "subject": entities[one.subject], "object": entities[one.object]} | FRESH
                    for one in tx.of(Facts).list_by_seqs(graph.id, [row[0] for row in tx.of(Facts).columns(graph.id)])
                ],
                key=str,
            ),
            "sources": sorted((one.text, [texts[seq] for seq in said[one.first_seq]]) for one in facts),
            "rules": [one.text for one in tx.of(Graphs).list_rules(graph.id)],
            "blocks": {
                block.label: [(one.value, one.author.kind, one.created_at) for one in tx.blocks.versions(block.id)][:-1]
                for block in tx.blocks.list_by_agent(agent.id)
            },
        }

    schedules = [(one.name, one.timing, one.messages, one.made_by) for one in await agent.schedules.list()]
    passages = [(one.text, one.tags, one.occurred_at, one.state) for one in await agent.passages()]
    return {**await perdure.app.store.read(read), "schedules": schedules, "passages": passages}


@pytest.mark.slow
@pytest.mark.parametrize(
    "settings",
    [{}, {"temperature": 0.3, "max_output_tokens": 777, "context_window_tokens": 9_000, "facts": {"recall": 3}}],
)
async def test_a_copy_is_the_same_agent(perdure: AsyncPerdure, settings: dict[str, Any]) -> None:
    """Also the copy of a copy; nothing is read anew, and the model is asked with the same options."""
    agent = await live(perdure, **settings)
    one = await go_round(perdure, agent)
    other = await go_round(perdure, one)
    assert await one.facts.extract() == []

    assert await life(perdure, one) == await life(perdure, agent)
    assert await life(perdure, other) == await life(perdure, agent)
    model = perdure.app.models.find(MODEL)
    asked = []
    for each in (agent, one):
        await each.send("Hello again.")
        asked.append(model.requests[-1].options)  # type: ignore[union-attr]
    assert asked[0] == asked[1]


async def test_what_was_deleted_stays_deleted_in_the_copy(perdure: AsyncPerdure) -> None:
    """When its message is edited, and when it is read again; what it ended is true again after the edit."""
    copy = await go_round(perdure, await live(perdure))
    for old, new in (("I like figs.", "I like figs!"), ("I live in Bergen.", "Never mind.")):
        message = next(one for one in await copy.messages() if one.text == old)
        await copy.update_message(message.id, new)
        await copy.facts.extract()
    texts = [(hit.fact.text, hit.fact.invalid_at is None) for hit in await copy.facts.list()]

    assert not any("figs" in text for text, _ in texts)
    assert ("User lives in Oslo.", True) in texts
    assert not any("lives in Bergen" in text for text, _ in texts)


async def test_other_readers_ignore_the_part(perdure: AsyncPerdure) -> None:
    """It stands in the metadata of the document; without it the agent is made all the same."""
    agent = await live(perdure)
    document = json.loads(await export_text(perdure, agent.id))
    copy = await go_round(perdure, agent, lambda document: document.update(metadata={}))

    assert set(document["metadata"]) == {"perdure"}
    assert [one.text for one in await copy.messages()] == [one.text for one in await agent.messages()]
    assert (await copy.blocks.get("human")).value == (await agent.blocks.get("human")).value


def _set(*path: Any, to: Any) -> Any:
    def change(document: Any) -> None:
        place = document["metadata"]["perdure"]
        for name in path[:-1]:
            place = place[name]
        place[path[-1]] = to

    return change


@pytest.mark.slow
@pytest.mark.parametrize(
    "change",
    [
        _set("version", to=99),
        _set("agents", to=[]),
        _set("agents", "agent-0", to=3),
        _set("agents", "agent-0", "settings", to={"temperature": "hot"}),
        _set("agents", "agent-0", "facts", "facts", 0, "rating", to=7),
        _set("agents", "agent-0", "facts", "facts", 0, "subject", to=99),
        _set("agents", "agent-0", "facts", "facts", 0, "expired_at", to=None),
        _set("agents", "agent-0", "facts", "facts", 0, "created_at", to="then"),
        _set("agents", "agent-0", "facts", "facts", 0, "invalid_at", to="2026-11-20T10:00:00"),
        _set("agents", "agent-0", "facts", "facts", 0, "origin", to={"episode_id": [], "ended_ids": [[]]}),
        _set("agents", "agent-0", "facts", "settings", to={"a": 1}),
        _set("agents", "agent-0", "facts", "passages_read", to=-3),
        _set("agents", "agent-0", "conversations", to=[]),
        _set("agents", "agent-0", "conversations", to=[{}, {"model": "x", "options": {"context_window_tokens": "x"}}]),
        _set("agents", "agent-0", "conversations", 0, "turns_read", to=-3),
        _set("agents", "agent-0", "conversations", 0, "open_calls", to={"x": {"awaits": "nobody"}}),
        _set("agents", "agent-0", "conversations", to=[{}, {"messages": [{"role": "user", "content": "x"}]}]),
        _set("agents", "agent-0", "conversations", to=[{}, {"summary": "x" * 50_000}]),
        _set("agents", "agent-0", "conversations", to=[{}, {"blocks": {"human": "x" * 200_000, "y": None}}]),
        _set("agents", "agent-0", "schedules", 0, "timing", "starts_at", to="2026-11-20T10:00:00"),
        _set("agents", "agent-0", "schedules", 0, "timing", "ends_at", to="2030-11-20T10:00:00"),
        _set("agents", "agent-0", "passages", 0, "text", to=""),
        _set("agents", "agent-0", "block_values", "human", 1, "by", to="nobody"),
        _set("agents", "agent-0", "block_values", "human", 1, "value", to="x" * 200_000),
    ],
)
async def test_a_part_that_is_wrong_makes_nothing(perdure: AsyncPerdure, change: Any) -> None:
    """It is a typed error, or what is wrong can be left out; never half an agent."""
    agent = await live(perdure)
    try:
        await go_round(perdure, agent, change)
    except Exception as error:
        assert type(error).__module__.startswith("perdure"), error
        assert len(await perdure.agents()) == 1


def test_a_file_of_others_has_no_part() -> None:
    assert parse_own_metadata({"metadata": {"revision_id": "x"}}) == parse_own_metadata({"metadata": None}) == {}
    with pytest.raises(AgentFileInvalid):
        parse_own_metadata({"metadata": {"perdure": 3}})


async def test_what_a_missing_feature_had_of_an_agent_is_said_to_be_left_out(perdure: AsyncPerdure) -> None:
    """Of a file of another program, which had the feature."""
    agent = await live(perdure)
    document = json.loads(await export_text(perdure, agent.id))
    document["metadata"]["perdure"]["agents"]["agent-0"]["dreams"] = []

    warnings = read_agent_file(json.dumps(document).encode()).warnings

    assert "dreams of agents are left out: this program lacks the features that have them" in warnings


async def test_a_message_of_a_group_moves_no_source(perdure: AsyncPerdure) -> None:
    """Its sender is not in the file; the facts hang on the messages that say them all the same."""
    agent = await perdure.create_agent("ada")
    sender = "group-123e4567-e89b-42d3-a456-426614174000"
    asked = NewMessage((Text("What does the team think?"),), sender_id=sender)
    await agent.send_request(RunRequest(agent_id=agent.id, messages=(asked,)))
    await agent.send("I live in Oslo.")
    await agent.facts.extract()
    copy = await go_round(perdure, agent)
    said = next(one for one in await copy.messages() if one.text == "I live in Oslo.")
    await copy.update_message(said.id, "I like tea.")
    await copy.facts.extract()

    assert [hit.fact.text for hit in await copy.facts.list()] == ["User likes tea."]


async def test_what_others_keep_in_a_shared_archive_is_in_no_file(perdure: AsyncPerdure) -> None:
    archive = await perdure.archives.create("shared")
    agents = [await perdure.create_agent(name) for name in ("ann", "bob")]
    for agent in agents:
        await archive.attach_to(agent.id)
    await archive.insert("Bob earns 4,200.")

    assert "4,200" not in await export_text(perdure, agents[0].id)


def _believe_all(document: Any) -> None:
    for fact in document["metadata"]["perdure"]["agents"]["agent-0"]["facts"]["facts"]:
        fact["expired_at"] = None


def _rule_about_nobody(document: Any) -> None:
    document["metadata"]["perdure"]["agents"]["agent-0"]["facts"]["rules"][0]["entity"] = 999


def _odd_settings(document: Any) -> None:
    document["metadata"]["perdure"]["agents"]["agent-0"]["facts"]["settings"] = {"entity_types": {"": 3}}


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (_believe_all, "two versions of one fact are believed at once"),
        (_rule_about_nobody, "an entity of number 999, which it does not hold"),
        (_odd_settings, "entity_types"),
    ],
)
async def test_facts_that_do_not_fit_together_are_refused(perdure: AsyncPerdure, change: Any, problem: str) -> None:
    with pytest.raises(InvalidInput, match=problem):
        await go_round(perdure, await live(perdure), change)

    assert len(await perdure.agents()) == 1


async def test_the_facts_of_a_copy_name_nothing_of_another_agent(perdure: AsyncPerdure) -> None:
    """Of the agent in the file they would be messages and runs that are not there, or are somebody else's."""
    agent = await live(perdure)
    copy = await go_round(perdure, agent)

    def ids(tx: Any, agent_id: str) -> set[str]:
        graph = tx.of(Graphs).find_by_agent(agent_id)
        versions = tx.of(Facts).list_by_seqs(graph.id, [row[0] for row in tx.of(Facts).columns(graph.id)])
        named = json.dumps([dict(one.origin) for one in versions])
        return set(re.findall(r"[a-z]+-[0-9a-f]{8}-[0-9a-f-]{27}", named))

    old, new = [await perdure.app.store.read(ids, one.id) for one in (agent, copy)]
    assert new and old and not old & new
