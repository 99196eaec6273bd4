"""Changes of what a graph knows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from perdure.core.errors import VersionConflict
from perdure.features.facts.tables import Episodes, Facts
from perdure.features.facts.units.graphs import (
    FactFields,
    add_facts,
    change_fact,
    delete_episodes,
    delete_facts,
    restore_fact,
)
from perdure.features.facts.values.facts import Fact, Graph
from perdure.storage.tx import Tx
from perdure.testing import InlineStore
from tests.contracts.base import AT, LATER, Contract

PERSON = {"type": "person"}


def add_world(tx: Tx, units: Contract) -> tuple[Graph, Fact]:
    """A graph with a fact that one episode supports."""
    graph = units.add_graph(tx)
    units.add_entities(tx, graph.id, "Ada", "Turin")
    episodes = tx.of(Episodes).add([units.new_episode(graph.id, "x")])
    new = FactFields(text="Ada lives in Turin.", subject=1, relation="LIVES_IN", object=2)
    (fact,) = add_facts(tx, graph, [new], origin={}, ids=units.ids, at=AT, episodes=[episodes])
    return graph, fact


def nothing(tx: Tx, graph: Graph, fact: Fact) -> None:
    """Nobody says anything."""


def restore(tx: Tx, graph: Graph, fact: Fact) -> None:
    delete_facts(tx, graph, [fact], origin=PERSON, at=AT)
    restore_fact(tx, graph, fact.id, origin=PERSON, at=AT)


def edit(tx: Tx, graph: Graph, fact: Fact) -> None:
    change_fact(tx, graph, fact, {"rating": 0.9}, change="edit", origin=PERSON, at=AT)


def edit_and_extract(tx: Tx, graph: Graph, fact: Fact) -> None:
    edited = change_fact(tx, graph, fact, {"rating": 0.9}, change="edit", origin=PERSON, at=AT)
    change_fact(tx, graph, edited, {"rating": 0.8}, change="update", origin={}, at=AT)


@pytest.mark.parametrize(
    ("unit", "is_kept"), [(nothing, False), (restore, True), (edit, True), (edit_and_extract, True)]
)
async def test_a_fact_goes_with_its_last_episode(unit: Callable[[Tx, Graph, Fact], Any], is_kept: bool) -> None:
    """Not if a person stands by it, whatever was extracted since."""

    def run(tx: Tx) -> None:
        graph, fact = add_world(tx, Contract())
        unit(tx, graph, fact)

        retracted = delete_episodes(tx, graph, tx.of(Episodes).list(graph.id), at=LATER)

        assert [one.id for one in retracted.lost] == ([] if is_kept else [fact.id])
        assert (tx.of(Facts).get(fact.id).expired_at is None) is is_kept

    await InlineStore().write(run)


async def test_an_earlier_version_is_not_changed() -> None:
    """Somebody else wrote first: nothing happens."""

    def run(tx: Tx) -> None:
        graph, fact = add_world(tx, Contract())
        second = change_fact(tx, graph, fact, {"rating": 0.9}, change="edit", origin=PERSON, at=LATER)

        with pytest.raises(VersionConflict):
            change_fact(tx, graph, fact, {"rating": 0.1}, change="edit", origin=PERSON, at=LATER)
        assert tx.of(Facts).get(fact.id) == second

    await InlineStore().write(run)
