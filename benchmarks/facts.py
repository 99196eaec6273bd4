"""What searches of facts cost: `python -m benchmarks.facts [facts]`, by default 100,000; exit code 1 above a bar.

So many facts of a twentieth as many entities, a tenth of them corrected once, and an archive of passages with the same
texts and vectors. The searches take turns, each with another time, and name two entities. Figures are CPU milliseconds:
the median of the searches of one of three rounds; judged is the median of the rounds' ratios. Then one fact is added
before each search, and the search is made twice.
"""

from __future__ import annotations

import asyncio
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path

from benchmarks.search_cost import BATCH, CLOCK, SYLLABLES, _Known, _Talk
from benchmarks.vector_search import DIMENSIONS, MODEL, Floats, mixture
from perdure import AsyncPerdure
from perdure.core.ids import ArchiveId, FactId, PassageId, Uuids
from perdure.core.passages import Archive, Passage
from perdure.features.facts.search.plan import find_facts
from perdure.features.facts.tables import Facts
from perdure.features.facts.units.graphs import NewEntity, create_graph, store_entities
from perdure.features.facts.values.facts import Fact, FactFilter, Graph
from perdure.settings import Settings
from perdure.storage.tx import Tx

__all__ = ["main"]

ROUNDS, SEARCHES = 3, 40
ENTITY_FACTS, CORRECTED_EACH = 20, 10
TIME_BAR, AS_OF_BAR, CHANGE_BAR = 2.0, 1.5, 3.0
YEARS = 8 * 365


def _names(count: int) -> list[str]:
    """So many different names."""
    rng = random.Random(2)
    names: dict[str, None] = {}
    while len(names) < count:
        names["".join(rng.choices(SYLLABLES, k=4)).capitalize()] = None
    return list(names)


def _facts(talk: _Talk, graph: Graph, names: Sequence[str], numbers: range, ids: Uuids) -> list[Fact]:
    """Facts with these numbers, each true for a year from some day on, or still."""
    facts = []
    for number in numbers:
        one, other = talk.random.sample(range(len(names)), 2)
        valid_at = CLOCK - timedelta(days=talk.random.randrange(YEARS))
        facts.append(
            Fact(
                id=FactId(ids.new("fact")),
                graph_id=graph.id,
                text=f"{names[one]} {talk.text(words=12)} {names[other]}. {number}",
                subject=one + 1,
                object=other + 1,
                relation=f"RELATION_{number % 50}",
                rating=talk.random.random(),
                valid_at=valid_at,
                invalid_at=valid_at + timedelta(days=365) if number % 2 else None,
                created_at=CLOCK,
            )
        )
    return facts


async def _store(perdure: AsyncPerdure, rows: int, names: Sequence[str]) -> tuple[Graph, ArchiveId, Floats]:
    """Store the facts and the passages with their vectors."""
    talk, ids, store = _Talk(), Uuids(), perdure.app.store
    vectors, queries = mixture(rows)

    def create(tx: Tx) -> tuple[Graph, Archive]:
        graph = create_graph(tx, "facts", ids=ids, at=CLOCK)
        store_entities(tx, graph, [NewEntity(name=name, type="Person") for name in names], ids=ids, at=CLOCK)
        archive = Archive(
            id=ArchiveId(ids.new("archive")), org_id=tx.org_id, name="texts", created_at=CLOCK, updated_at=CLOCK
        )
        archive = tx.archives.add(archive)
        for each in (tx.archives.get(graph.fact_archive_id), archive):
            tx.vectors.open(each.number, "archive", each.id, MODEL)
        return graph, archive

    graph, archive = await store.write(create)

    def put(tx: Tx, facts: Sequence[Fact], blobs: Sequence[bytes]) -> None:
        added = tx.of(Facts).add(graph, facts)
        passages = tx.passages.add(
            [
                Passage(
                    id=PassageId(ids.new("passage")),
                    archive_id=archive.id,
                    text=fact.text,
                    created_at=CLOCK,
                    occurred_at=fact.valid_at or CLOCK,
                )
                for fact in facts
            ]
        )
        number = tx.archives.get(graph.fact_archive_id).number
        for scope, seqs in (
            (number, [fact.text_seq for fact in added]),
            (archive.number, [one.seq for one in passages]),
        ):
            tx.vectors.put(scope, list(zip(seqs, blobs, strict=True)), model=MODEL, dimensions=DIMENSIONS)
        corrected = [fact for fact in added if fact.seq % CORRECTED_EACH == 0]
        later = CLOCK + timedelta(days=30)
        tx.of(Facts).expire(graph.id, [fact.seq for fact in corrected], at=later)
        tx.of(Facts).add(graph, [replace(fact, rating=fact.rating / 2, created_at=later) for fact in corrected])

    for first in range(0, rows, BATCH):
        numbers = range(first, min(first + BATCH, rows))
        facts = _facts(talk, graph, names, numbers, ids)
        await store.write(put, facts, [vectors[number].tobytes() for number in numbers])
    return graph, archive.id, queries


async def _spent(search: Callable[[], Awaitable[object]]) -> float:
    """The CPU time of a search, in milliseconds."""
    began = time.process_time()
    await search()
    return (time.process_time() - began) * 1e3


async def measure(folder: Path, rows: int) -> bool:
    """Print the figures; return whether all bars are met."""
    names = _names(max(2, rows // ENTITY_FACTS))
    settings = Settings(home=str(folder), embedding="none")
    async with await AsyncPerdure.open(folder / "facts.db", settings=settings) as perdure:
        graph, archive_id, queries = await _store(perdure, rows, names)
    async with await AsyncPerdure.open(folder / "facts.db", settings=settings, embedder=_Known(queries)) as perdure:
        find = perdure.app.ports.search
        talk = _Talk(random.Random(3))

        def moment() -> datetime:
            return CLOCK - timedelta(seconds=talk.random.randrange(YEARS * 86_400))

        def searches() -> dict[str, Callable[[], Awaitable[object]]]:
            text = f"{talk.question()} {' and '.join(talk.random.sample(names, 2))}"
            now = FactFilter(as_of=CLOCK + timedelta(days=15, seconds=talk.random.randrange(86_400)))
            return {
                "passages": partial(find.passages, [archive_id], text),
                "facts, current view": partial(find_facts, find, graph.id, text, where=FactFilter()),
                "facts, true at a time": partial(find_facts, find, graph.id, text, where=FactFilter(at=moment())),
                "facts, as of a day": partial(find_facts, find, graph.id, text, where=now),
            }

        for name, search in searches().items():
            print(f"{name:<30}first search {await _spent(search):>8.1f} ms", flush=True)
        rounds: list[dict[str, float]] = []
        for _ in range(ROUNDS):
            spent: dict[str, list[float]] = {}
            for _ in range(SEARCHES):
                for name, search in searches().items():
                    spent.setdefault(name, []).append(await _spent(search))
            rounds.append({name: statistics.median(times) for name, times in spent.items()})
        first: list[float] = []
        again: list[float] = []
        for number in range(rows, rows + SEARCHES):
            new = _facts(talk, graph, names, range(number, number + 1), Uuids())
            await perdure.app.store.write(lambda tx, facts: tx.of(Facts).add(graph, facts), new)
            search = searches()["facts, current view"]
            first.append(await _spent(search))
            again.append(await _spent(search))
    for name in rounds[0]:
        print(f"{name:<30}{'  '.join(f'{times[name]:8.2f}' for times in rounds)} ms")
    change = statistics.median(first) / statistics.median(again)
    met = change <= CHANGE_BAR
    print(f"{'facts, after a new one':<30}{statistics.median(first):8.2f} ms, again {statistics.median(again):.2f} ms")
    print(f"after a new fact / again: {change:.2f}  bar {CHANGE_BAR:g}  {'ok' if met else 'MISSED'}")
    for above, below, bar in (
        ("facts, true at a time", "passages", TIME_BAR),
        ("facts, as of a day", "facts, current view", AS_OF_BAR),
    ):
        ratio = statistics.median(times[above] / times[below] for times in rounds)
        met &= ratio <= bar
        print(f"{above} / {below}: {ratio:.2f}  bar {bar:g}  {'ok' if ratio <= bar else 'MISSED'}")
    return met


def main() -> int:
    """Measure; 1 if a bar was missed."""
    rows = int(sys.argv[1].replace(",", "")) if len(sys.argv) > 1 else 100_000
    with tempfile.TemporaryDirectory() as folder:
        return int(not asyncio.run(measure(Path(folder), rows)))


if __name__ == "__main__":
    sys.exit(main())
