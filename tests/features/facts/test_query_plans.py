"""What statements about facts read: a few rows by their index, whatever else the graph holds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from perdure.core.ids import AgentId
from perdure.features.facts.tables import Entities, Episodes, Facts
from perdure.features.facts.values.facts import FactFilter, Graph
from perdure.storage.tx import Tx
from perdure.testing import InlineStore
from tests.contracts.base import AT, Contract

TABLES = ("facts", "fact_sources", "entities", "entity_names", "episodes", "communities", "f", "s")
UNITS: dict[str, Callable[[Tx, Graph], Any]] = {
    "entities": lambda tx, graph: tx.of(Facts).page(graph.id, where=FactFilter(entities=(1,), as_of=AT), above=1),
    "versions": lambda tx, graph: tx.of(Facts).get(tx.of(Facts).list_by_firsts(graph.id, [1, 2])[0].id),
    "several facts": lambda tx, graph: tx.of(Facts).list_by_ids([tx.of(Facts).list_by_seqs(graph.id, [1])[0].id]),
    "texts": lambda tx, graph: tx.of(Facts).list_by_texts(graph.id, [0, 1], where=FactFilter(at=AT)),
    "neighbours": lambda tx, graph: tx.of(Facts).neighbours(graph.id, [1, 2], limit=9),
    "same": lambda tx, graph: tx.of(Facts).list_between(graph.id, 1, 2, "LIKES"),
    "communities": lambda tx, graph: tx.of(Entities).communities_of(graph.id, [1, 2]),
    "episodes": lambda tx, graph: tx.of(Facts).list_by_episodes(graph.id, [1, 2]),
    "sources": lambda tx, graph: tx.of(Facts).sources(graph.id, [1, 2]),
    "lost sources": lambda tx, graph: tx.of(Facts).remove_sources(graph.id, [1, 2]),
    "expiry": lambda tx, graph: tx.of(Facts).expire(graph.id, [1], at=AT),
    "another text": lambda tx, graph: tx.of(Facts).put_text(graph, 1, "another"),
    "names": lambda tx, graph: tx.of(Entities).find_by_names(graph.id, ["Ada", "Turin"]),
    "an entity": lambda tx, graph: tx.of(Entities).put(tx.of(Entities).list_by_seqs(graph.id, [1])[0]),
    "members": lambda tx, graph: tx.of(Entities).list_members(graph.id, 1),
    "references": lambda tx, graph: tx.of(Episodes).list_by_refs(graph.id, ["x", "y"]),
    "messages": lambda tx, graph: tx.of(Episodes).list_by_messages(AgentId("agent-1"), [1, 2]),
}


@pytest.mark.parametrize("unit", UNITS.values(), ids=UNITS)
async def test_rows_are_found_by_an_index(unit: Callable[[Tx, Graph], Any]) -> None:
    """No step reads all rows of a graph, as SQLite would choose without statistics."""
    contract, store, statements = Contract(), InlineStore(), list[str]()

    def fill(tx: Tx) -> Graph:
        graph = contract.add_graph(tx)
        contract.add_entities(tx, graph.id, "Ada", "Turin")
        tx.of(Facts).add(graph, [contract.new_fact(graph.id, text) for text in ("a", "b")])
        return graph

    graph = await store.write(fill)
    store._connection.set_trace_callback(statements.append)
    await store.write(unit, graph)

    steps = [step for sql in dict.fromkeys(statements) for step in _plan(store, sql)]
    assert any(step.startswith("SEARCH") for step in steps)
    assert [step for step in steps if _reads_a_graph(step)] == []


async def test_a_page_of_an_entity_sorts_no_more_than_the_page() -> None:
    """What an entity of many facts has is read in the order of the index, and only a page of it is sorted."""
    store, statements = InlineStore(), list[str]()
    graph = await store.write(lambda tx: Contract().add_graph(tx))
    store._connection.set_trace_callback(statements.append)
    where = FactFilter(entities=(1,))
    await store.read(lambda tx: tx.of(Facts).page(graph.id, where=where, newest_first=True))

    steps = [step for sql in statements for step in _plan(store, sql)]
    assert [step for step in steps if "facts_by_" in step] == [
        "SEARCH f USING INDEX facts_by_subject (graph_id=? AND subject=?)",
        "SEARCH f USING INDEX facts_by_object (graph_id=? AND object=?)",
    ]
    assert "SEARCH f USING PRIMARY KEY (graph_id=? AND seq=?)" in steps
    assert steps.count("USE TEMP B-TREE FOR ORDER BY") == 1


def _plan(store: InlineStore, sql: str) -> list[str]:
    if not sql.lstrip().startswith(("SELECT", "UPDATE", "DELETE")):
        return []
    return [row[3] for row in store._connection.execute(f"EXPLAIN QUERY PLAN {sql}")]


def _reads_a_graph(step: str) -> bool:
    words = step.split(" ")
    return len(words) > 1 and words[1] in TABLES and (step.startswith("SCAN ") or step.endswith("(graph_id=?)"))
