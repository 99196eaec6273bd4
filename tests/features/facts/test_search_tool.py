"""The tool by which an agent searches its facts."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from perdure import AsyncAgent, AsyncPerdure
from perdure.core.tools.engine_specs import DEFAULT_TOOLS
from perdure.settings import Settings
from perdure.testing import FakeClock, ScriptedModel, calls, says

NOW = datetime(2024, 6, 1, tzinfo=UTC)
MODEL = "test/scripted"


@pytest.fixture
async def agent(tmp_path: Path) -> AsyncIterator[AsyncAgent]:
    """Whose user moved, and whose tool read something about a friend."""
    model = ScriptedModel(says("Hello!"), calls("search_facts", query="Ada's home"), says("In Oslo."))
    settings = Settings(model=MODEL, embedding="none", facts="patterns")
    async with await AsyncPerdure.open(
        tmp_path / "a.db", models={MODEL: model}, settings=settings, clock=FakeClock(NOW)
    ) as perdure:
        agent = await perdure.create_agent("a", tools=["search_facts"], timezone="Europe/Rome")
        add = agent.facts.add_fact
        old: dict[str, Any] = {
            "valid_at": datetime(2019, 1, 1, tzinfo=UTC),
            "invalid_at": datetime(2023, 1, 1, tzinfo=UTC),
        }
        await add("Ada lives in Turin.", subject="Ada", object_="Turin", **old)
        await add("Ada lives in Oslo.", subject="Ada", object_="Oslo", valid_at=datetime(2023, 1, 1, tzinfo=UTC))
        await add("Bea is a spy.", subject="Bea", object_="spy", trust="web", valid_at=None)
        yield agent


async def search(agent: AsyncAgent, **arguments: Any) -> list[dict[str, Any]]:
    """The results of a call by hand."""
    found = await agent.tools.run("search_facts", arguments)
    results: list[dict[str, Any]] = json.loads(found.text)["results"]
    return results


async def test_results_have_times_source_and_id(agent: AsyncAgent) -> None:
    """Times are the agent's; what an untrusted source says is labelled."""
    oslo, turin = await search(agent, query="where does Ada live")

    hits = {hit.fact.text: hit.fact for hit in await agent.facts.list()}
    (source,) = (await agent.facts.history(hits["Ada lives in Turin."].id)).sources
    assert turin == {
        "fact": "Ada lives in Turin.",
        "since": "2019-01-01T01:00:00+01:00",
        "until": "2023-01-01T01:00:00+01:00",
        "source": source.ref,
        "id": hits["Ada lives in Turin."].id,
    }
    assert (oslo["fact"], "until" in oslo) == ("Ada lives in Oslo.", False)
    (spy,) = await search(agent, query="Bea")
    assert spy["untrusted"] == "from web"
    assert "since" not in spy


async def test_entity_time_and_limit_narrow_it_down(agent: AsyncAgent) -> None:
    assert [one["fact"] for one in await search(agent, query="home", at="2021-05-01")] == []
    assert [one["fact"] for one in await search(agent, query="lives", at="2021-05-01")] == ["Ada lives in Turin."]
    assert [one["fact"] for one in await search(agent, query="", entity="oslo")] == ["Ada lives in Oslo."]
    assert len(await search(agent, query="", limit=2)) == 2


async def test_an_unknown_name_and_an_empty_graph_are_said(agent: AsyncAgent, tmp_path: Path) -> None:
    unknown = await agent.tools.run("search_facts", {"query": "x", "entity": "Zoë"})
    assert "'Zoë'" in unknown.text
    async with await AsyncPerdure.open(tmp_path / "b.db", models={MODEL: ScriptedModel()}) as perdure:
        other = await perdure.create_agent("b", model=MODEL, tools=["search_facts"])
        assert "No facts are known yet." in (await other.tools.run("search_facts", {"query": "x"})).text


async def test_a_message_is_named_as_the_source(agent: AsyncAgent) -> None:
    await agent.send("I live in Lisbon.")
    await agent.facts.extract()

    (found,) = await search(agent, query="", entity="Lisbon")

    said = [message for message in await agent.messages() if message.text == "I live in Lisbon."]
    assert found["source"] == said[0].id


async def test_a_shown_fact_counts_as_used(agent: AsyncAgent) -> None:
    """Once for each call of a run; a search by a person does not count."""
    await agent.send("hello")
    await agent.facts.search("Ada's home")
    await agent.send("Where is Ada's home?")

    graph = await agent.facts.find_graph()
    assert graph is not None
    texts = await agent._ports.store.read(lambda tx: tx.passages.texts(graph.fact_archive_id, range(9)))
    assert dict(zip(texts.texts, texts.uses, strict=True)) == {
        "Ada lives in Turin.": 1,
        "Ada lives in Oslo.": 1,
        "Bea is a spy.": 0,
    }


def test_no_agent_has_the_tool_unless_it_is_named() -> None:
    """Clients of Letta expect the tools that they know."""
    assert not any("search_facts" in tools for tools in DEFAULT_TOOLS.values())
