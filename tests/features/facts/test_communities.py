"""Communities: how entities move, and the summaries of what connects them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from perdure import Agent, Perdure
from perdure.core.ids import Uuids
from perdure.features.facts.tables import Entities, Facts
from perdure.features.facts.units.communities import NEIGHBOURS_MAX, choose_label
from perdure.features.facts.units.graphs import (
    FactFields,
    NewEntity,
    add_facts,
    change_fact,
    create_graph,
    delete_facts,
    restore_fact,
    store_entities,
)
from perdure.features.facts.values.facts import Fact, Graph
from perdure.settings import Settings
from perdure.storage.tx import Tx
from perdure.testing import ScriptedModel, says
from perdure.testing.clock import START
from perdure.testing.inline_store import InlineStore
from tests.support.library import open_sync

IDS = Uuids()
NAMES = ("Ada", "Bob", "Carol", "Dan", "Eve", "Fay")


def start(tx: Tx, count: int = len(NAMES)) -> Graph:
    graph = create_graph(tx, "people", ids=IDS, at=START)
    names = [*NAMES, *map(str, range(count))][:count]
    store_entities(tx, graph, [NewEntity(name=name, type="Person") for name in names], ids=IDS, at=START)
    return graph


def add(tx: Tx, graph: Graph, *pairs: tuple[int, int]) -> Sequence[Fact]:
    """Facts one after the other, as they come in."""
    facts: list[Fact] = []
    for one, two in pairs:
        new = FactFields(text=f"{one} knows {two}.", subject=one, relation="KNOWS", object=two)
        facts += add_facts(tx, graph, [new], origin={}, ids=IDS, at=START)
    return facts


def labels(tx: Tx, graph: Graph) -> list[int | None]:
    return [entity.community_seq for entity in tx.of(Entities).list(graph.id)]


def check(tx: Tx, graph: Graph) -> None:
    """Sizes are the numbers of members, and no community is empty."""
    there = {one.seq: one.size for one in tx.of(Entities).list_communities(graph.id)}
    members = [label for label in labels(tx, graph) if label is not None]
    assert there == {label: members.count(label) for label in members}


async def test_entities_that_facts_connect_are_together() -> None:
    """Two groups stay two, also when one fact connects them."""

    def unit(tx: Tx) -> None:
        graph = start(tx)
        add(tx, graph, (1, 2), (2, 3), (1, 3), (4, 5), (5, 6), (4, 6))
        assert labels(tx, graph) == [1, 1, 1, 4, 4, 4]
        add(tx, graph, (3, 4))
        assert labels(tx, graph) == [1, 1, 1, 4, 4, 4]
        check(tx, graph)

    await InlineStore().write(unit)


async def test_an_entity_moves_with_its_facts() -> None:
    """It goes to where most of them lead when they are added or expire; one without any is in no community."""

    def unit(tx: Tx) -> None:
        graph = start(tx)
        first, *_ = add(tx, graph, (1, 2), (4, 5), (4, 6), (5, 6))
        (moving,) = add(tx, graph, (3, 1))
        assert labels(tx, graph)[2] == 1
        others = add(tx, graph, (3, 4), (3, 5))
        assert labels(tx, graph)[2] == 4
        check(tx, graph)
        delete_facts(tx, graph, others, origin={}, at=START)
        assert labels(tx, graph)[2] == 1
        delete_facts(tx, graph, [first, moving], origin={}, at=START)
        assert labels(tx, graph)[:3] == [None, None, None]
        check(tx, graph)
        restore_fact(tx, graph, first.id, origin={}, at=START)
        assert labels(tx, graph)[:3] == [1, 1, None]
        changed = change_fact(tx, graph, tx.of(Facts).get(first.id), {"object": 3}, change="edit", origin={}, at=START)
        assert changed.object == 3
        assert labels(tx, graph)[:3] == [1, None, 1]
        check(tx, graph)

    await InlineStore().write(unit)


async def test_a_fact_looks_at_a_bounded_number_of_neighbours(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where an entity has many."""
    reads: list[int] = []

    def unit(tx: Tx) -> None:
        graph = start(tx, count=3 * NEIGHBOURS_MAX)
        add(tx, graph, *((1, other) for other in range(2, 3 * NEIGHBOURS_MAX)))
        find = tx.of(Facts).neighbours

        def count(self: object, *args: Any, **how: Any) -> Sequence[tuple[int, int]]:
            found = find(*args, **how)
            reads.append(len(found))
            return found

        monkeypatch.setattr(type(tx.of(Facts)), "neighbours", count)
        add(tx, graph, (1, 3 * NEIGHBOURS_MAX))
        check(tx, graph)

    await InlineStore().write(unit)
    assert max(reads) == NEIGHBOURS_MAX
    assert len(reads) <= 4


@pytest.mark.parametrize(
    ("label", "neighbours", "expected"),
    [
        (None, [], None),
        (5, [], None),
        (None, [(3, None)], 3),
        (None, [(9, None)], 7),
        (None, [(9, 2), (8, None)], 2),
        (4, [(1, 1), (2, 4)], 4),
        (4, [(1, 1), (2, 1), (3, 4)], 1),
        (6, [(1, 2), (2, 1)], 1),
    ],
)
def test_the_label_of_most_facts_wins(
    label: int | None, neighbours: list[tuple[int, int | None]], expected: int | None
) -> None:
    """Of several the present one, then the oldest; two new entities begin one together."""
    assert choose_label(7, label, neighbours) == expected


def know(agent: Agent) -> None:
    agent.facts.add("Ada rows with Bob.", subject="Ada", relation="ROWS_WITH", object="Bob")
    agent.facts.add("Carol bakes with Dan.", subject="Carol", relation="BAKES_WITH", object="Dan")
    agent.facts.extract()


def test_a_community_has_a_summary_of_its_best_facts(tmp_path: Path) -> None:
    """Made in the background without a model, and found by search; what is forgotten leaves it at once."""
    with open_sync(tmp_path / "agents.db") as perdure:
        agent = perdure.create_agent()
        assert agent.facts.communities() == ()
        know(agent)

        (found,) = agent.facts.communities("who is rowing?")
        assert (found.community.name, found.community.summary) == ("Ada", "Ada rows with Bob.")
        assert [entity.name for entity in found.members] == ["Ada", "Bob"]
        assert [one.community.name for one in agent.facts.communities()] == ["Ada", "Carol"]
        hit = agent.facts.add("Ada writes to Bob.", subject="Ada", relation="WRITES_TO", object="Bob")
        agent.facts.update(hit.fact.id, trust="web")
        agent.facts.extract()
        assert agent.facts.communities("rows")[0].community.summary == "Ada rows with Bob."
        agent.facts.delete(agent.facts.list(entity="Ada", relations=["ROWS_WITH"])[0].fact.id)
        assert agent.facts.communities("rows") == []
        assert "" in [one.community.summary for one in agent.facts.communities()]


def test_a_model_summarizes_several_communities_in_one_call(tmp_path: Path) -> None:
    """What it leaves out, or can't, is summarized from its facts."""
    answer = {"summaries": [{"number": 2, "summary": "Two bakers."}, {"number": 9, "summary": "None."}, "broken"]}
    model = ScriptedModel(summarises=says(json.dumps(answer)))
    with Perdure(
        tmp_path / "agents.db",
        models={"test/scripted": model},
        settings=Settings(model="test/scripted", embedding="none", facts="model"),
    ) as perdure:
        agent = perdure.create_agent()
        know(agent)

        assert {one.community.summary for one in agent.facts.communities()} == {"Ada rows with Bob.", "Two bakers."}
        assert len(model.summary_requests) == 1
        agent.facts.extract()
        assert len(model.summary_requests) == 1
