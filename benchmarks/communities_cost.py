"""The cost of one new fact's communities in graphs of 1,000 and 100,000 facts: `python -m benchmarks.communities_cost`.

Facts connect entities at random within groups of 50, twenty facts for each entity. Prints the median of three rounds.
"""

from __future__ import annotations

import asyncio
import random
import statistics
import tempfile
import time
from pathlib import Path

from perdure.core.ids import Uuids
from perdure.features.facts.units.communities import update_communities
from perdure.features.facts.units.graphs import FactFields, NewEntity, add_facts, create_graph, store_entities
from perdure.features.facts.values.facts import Fact, Graph
from perdure.storage.tx import Tx
from perdure.testing.clock import START
from perdure.testing.inline_store import InlineStore

SIZES = (1_000, 100_000)
FACTS_OF_ENTITY, GROUP, ROUNDS, SAMPLES, PORTION = 20, 50, 3, 200, 1_000
LIMIT = 2.0
IDS = Uuids()


async def measure(folder: Path, size: int) -> tuple[float, float]:
    """Fill a graph; return the milliseconds of one fact's communities, and of adding the fact with all its parts."""
    store, draw = InlineStore(folder / f"{size}.db"), random.Random(7)
    count = max(GROUP, size // FACTS_OF_ENTITY)

    def new(number: int) -> FactFields:
        one = draw.randrange(count)
        group = one // GROUP * GROUP
        two = group + (one - group + 1 + draw.randrange(min(GROUP, count - group) - 1)) % min(GROUP, count - group)
        return FactFields(text=f"{one} knows {two} ({number}).", subject=one + 1, relation="KNOWS", object=two + 1)

    def start(tx: Tx) -> Graph:
        graph = create_graph(tx, "people", ids=IDS, at=START)
        names = [NewEntity(name=f"person {number}", type="Person") for number in range(count)]
        for first in range(0, count, PORTION):
            store_entities(tx, graph, names[first : first + PORTION], ids=IDS, at=START)
        return graph

    graph = await store.write(start)
    for first in range(0, size, PORTION):
        facts = [new(number) for number in range(first, first + PORTION)]
        await store.write(add_facts, graph, facts, origin={}, ids=IDS, at=START)

    def add(tx: Tx) -> tuple[list[float], list[float]]:
        moves: list[float] = []
        wholes: list[float] = []
        for number in range(SAMPLES):
            begin = time.perf_counter()
            added: list[Fact] = list(add_facts(tx, graph, [new(size + number)], origin={}, ids=IDS, at=START))
            wholes.append(time.perf_counter() - begin)
            begin = time.perf_counter()
            update_communities(tx, graph, added, at=START)
            moves.append(time.perf_counter() - begin)
        return moves, wholes

    rounds = [await store.write(add) for _ in range(ROUNDS)]
    await store.close()
    moves, wholes = ([1000 * statistics.median(one[part]) for one in rounds] for part in (0, 1))
    return statistics.median(moves), statistics.median(wholes)


async def run() -> int:
    """Print the costs; return 1 if the larger graph costs more than `LIMIT` times the smaller."""
    with tempfile.TemporaryDirectory() as folder:
        results = [await measure(Path(folder), size) for size in SIZES]
    for size, (moves, whole) in zip(SIZES, results, strict=True):
        print(f"{size:>7,} facts: communities {moves:.2f} ms, the whole fact {whole:.2f} ms")
    ratio = results[1][0] / results[0][0]
    print(f"communities {ratio:.2f} times (limit {LIMIT:g}), the whole fact {results[1][1] / results[0][1]:.2f} times")
    return int(ratio > LIMIT)


if __name__ == "__main__":
    raise SystemExit(asyncio.run(run()))
