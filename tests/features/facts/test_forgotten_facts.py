"""Forgetting a text that facts hold, or that facts come from."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from perdure import Agent, Perdure
from perdure.core.ids import EpisodeId, GraphId
from perdure.core.sources import MemoryWrite, Source, WriteSource
from perdure.domain.conversations.agent_copies import FileRows
from perdure.features.facts.copies import copy_facts
from perdure.features.facts.tables import Entities, Episodes, Graphs
from perdure.storage.tx import Tx
from perdure.testing.clock import START
from tests.features.origins.test_forgetting import bytes_left
from tests.support.library import open_sync

SECRET = "Zorblatt Quintessa"
SAID = f"My name is Ada. I live in Turin. I like {SECRET}."


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[tuple[Agent, Perdure, Path]]:
    path = tmp_path / "agents.db"
    with open_sync(path) as perdure:
        agent = perdure.create_agent("ada")
        agent.send(SAID)
        agent.send("I work at Acme.")
        agent.facts.extract()
        agent.facts.add(f"{SECRET} is a cheese.")
        agent.facts.ingest(f"{SECRET} is in the cellar.")
        agent.facts.add_rule(f"the price of {SECRET}")
        yield agent, perdure, path


def known(agent: Agent) -> set[str]:
    return {hit.fact.text for hit in agent.facts.list()}


def test_forgotten_facts_come_back_with_their_sources(agent: tuple[Agent, Perdure, Path]) -> None:
    """Those that hold the text, and those that only its messages support."""
    ada, _, _ = agent
    before, found = known(ada), [hit.fact.text for hit in ada.facts.search("cheese")]
    sources = {hit.fact.id: [one.ref for one in ada.facts.history(hit.fact.id).sources] for hit in ada.facts.list()}
    assert any(SECRET in text for text in before)
    assert any("Turin" in text for text in before)

    result = ada.forget(SECRET)

    assert result.counts["fact"] >= 2
    assert all("Acme" in text for text in known(ada))
    assert "fact" not in ada.find_mentions(SECRET).counts

    undone = ada.undo()

    assert undone.conflicts == []
    assert known(ada) == before
    assert [hit.fact.text for hit in ada.facts.search("cheese")] == found
    after = {hit.fact.id: [one.ref for one in ada.facts.history(hit.fact.id).sources] for hit in ada.facts.list()}
    assert after == sources


def test_an_erased_text_is_in_no_fact_and_entity(agent: tuple[Agent, Perdure, Path]) -> None:
    """Nor in rules, texts that were given and names; what only its message supports is not known any more."""
    ada, perdure, path = agent
    assert bytes_left(path)
    store = perdure._inner.app.store

    def tell_more(tx: Tx) -> tuple[GraphId, list[EpisodeId]]:
        """Call somebody by the text too, and note where what holds it came from."""
        graph = tx.of(Graphs).find_by_agent(ada.id)
        assert graph is not None
        entity = next(one for one in tx.of(Entities).list(graph.id, limit=99) if SECRET not in one.name)
        tx.of(Entities).put(replace(entity, aliases=(SECRET, "Addie")))
        found = tx.of(Episodes).list(graph.id, limit=99)
        episodes = [one.id for one in found if one.message_seq == 0 or SECRET in (one.text or "")]
        page = (WriteSource(Source("web", "https://one.example")),)
        tx.sources.add(
            [MemoryWrite(kind="fact", owner_id=graph.id, ref=ref, sources=page, created_at=START) for ref in episodes]
        )
        return graph.id, episodes

    graph_id, episodes = perdure._portal.run(store.write(tell_more))

    ada.forget(SECRET, erase=True)

    names = perdure._portal.run(
        store.read(lambda tx: [one.aliases for one in tx.of(Entities).list(graph_id, limit=99)])
    )
    assert ("[redacted]", "Addie") in names
    assert perdure._portal.run(store.read(lambda tx: tx.sources.list_by_refs(graph_id, episodes))) == []
    assert ada.find_mentions(SECRET).counts == {}
    assert bytes_left(path) == []
    assert all("Acme" in text for text in known(ada))
    assert ada.facts.search("cheese") == []
    assert ada.facts.rules()[0].text == "the price of [redacted]"
    again = ada.facts.add(f"{SECRET} is a cheese.")
    assert ada.facts.get(again.fact.id).fact.text == f"{SECRET} is a cheese."


def test_facts_that_were_forgotten_are_in_no_copy_of_the_graph(agent: tuple[Agent, Perdure, Path]) -> None:
    """Nor the names that only they have; what a person deleted is, as deleted."""
    ada, perdure, _ = agent
    tea = ada.facts.add("Ada likes tea.", subject="Ada", relation="LIKES", object="tea")
    ada.facts.delete(tea.fact.id)
    ada.forget(SECRET)
    copy = perdure._portal.run(perdure._inner.app.store.read(copy_facts, ada.id, FileRows({}, {})))

    assert "Ada likes tea." in [one.text for one in copy.facts]
    assert not any(SECRET in one.text for one in copy.facts)
    assert not any(SECRET in one.name for one in copy.entities)
