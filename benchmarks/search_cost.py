"""What whole searches cost: `python -m benchmarks.search_cost [rows ...]`, by default 100,000; exit code 1 if a bar is
missed.

Passages with vectors in one archive, and as many messages (at most 100,000), are stored and searched as the library
does it: words, vectors, ranking and reading. Times are CPU of all threads, without making the query's vector. Each
is judged as it is; beside it stand the yardstick's row before and after some, and the time scaled by that. Texts are
made of words as frequent as those of dialogue: a word of a query stands in one text of twenty, on average.
"""

from __future__ import annotations

import asyncio
import functools
import itertools
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import numpy.typing as npt

from benchmarks.floor import Yardstick, as_of_design
from benchmarks.vector_search import DIMENSIONS, MODEL, Floats, Halves, mixture
from perdure import AsyncPerdure
from perdure.core.ids import ArchiveId, MessageId, PassageId, Uuids
from perdure.core.messages import Draft, Text
from perdure.core.passages import Archive, Passage
from perdure.core.ports import EmbedPurpose
from perdure.search.vectors.index import VectorIndexes
from perdure.settings import Settings
from perdure.storage.stores.sqlite_store import SqliteStore
from perdure.storage.tx import Tx
from perdure.testing import ScriptedEmbedder

__all__ = ["main"]

BATCH = 1_000
TOGETHER = 10
TAGGED_EACH = 100
ARCHIVES = 400
MESSAGES_MAX = 100_000
CLOCK = datetime(2020, 1, 1, tzinfo=UTC)
SYLLABLES = list(map("".join, itertools.product("bdfghklmnprstvwz", "aeiou")))
COMMON = tuple("the a and to of i in it was that for on with my we so is but be have at this are not he she".split())  # noqa: SIM905
WORDS = 6_000


@dataclass(frozen=True)
class _Time:
    """CPU time, the microseconds of the yardstick's row before and after it, and the time scaled by it."""

    cpu: float
    row_us: float
    scaled: float


@dataclass(frozen=True)
class _Clock:
    """Takes times, each beside the yardstick."""

    yardstick: Yardstick

    async def time(self, work: Callable[[], Awaitable[object]], *, unit_s: float = 0.001) -> _Time:
        return (await self._together([work], unit_s))[0]

    async def times(self, questions: Sequence[str], search: Callable[[str], Awaitable[object]]) -> list[_Time]:
        """Some searches between two looks at the yardstick, which leaves the processor's caches to itself."""
        found: list[_Time] = []
        for first in range(0, len(questions), TOGETHER):
            some = questions[first : first + TOGETHER]
            found += await self._together([functools.partial(search, text) for text in some], 0.001)
        return found

    async def _together(self, works: Sequence[Callable[[], Awaitable[object]]], unit_s: float) -> list[_Time]:
        spent: list[float] = []
        before = self.yardstick.row_us()
        for work in works:
            began = time.process_time()
            await work()
            spent.append((time.process_time() - began) / unit_s)
        row_us = (before + self.yardstick.row_us()) / 2
        return [_Time(one, row_us, as_of_design(one, row_us)) for one in spent]


@dataclass
class _Costs:
    """Prints figures; `missed`: whether one was above its bar."""

    missed: bool = False

    def tell(self, name: str, value: float, unit: str, *, bar: float | None = None, least: bool = False) -> None:
        """A figure that does not depend on the machine's speed."""
        self._print(f"{name:<46}{value:>10.4g} {unit:<3}", value, bar, least)

    def tell_time(self, name: str, times: Sequence[_Time], unit: str, *, bar: float | None = None) -> None:
        """The median of some times."""
        value, row_us = statistics.median(one.cpu for one in times), statistics.median(one.row_us for one in times)
        scaled = statistics.median(one.scaled for one in times)
        self._print(f"{name:<46}{value:>10.3f} {unit:<3}{row_us:>7.1f}{scaled:>9.3f}", value, bar, False)

    def _print(self, row: str, judged: float, bar: float | None, least: bool) -> None:
        if bar is not None:
            met = judged >= bar if least else judged <= bar
            self.missed |= not met
            row = f"{row:<80}{'>=' if least else ''}{bar:g}  {'ok' if met else 'MISSED'}"
        print(row, flush=True)


class _Known(ScriptedEmbedder):
    """Gives each query the next of some vectors."""

    def __init__(self, queries: Floats) -> None:
        super().__init__(handle=MODEL, dimensions=DIMENSIONS)
        self._queries = itertools.cycle(queries)

    async def embed(self, texts: Sequence[str], *, purpose: EmbedPurpose = "document") -> Floats:
        return np.stack([next(self._queries) for _ in texts])


@dataclass
class _Talk:
    """Makes texts and questions, the same ones each time."""

    random: random.Random = field(default_factory=lambda: random.Random(1))

    def __post_init__(self) -> None:
        made = ["".join(self.random.choices(SYLLABLES, k=self.random.choice((2, 2, 3)))) for _ in range(2 * WORDS)]
        self._words = list(dict.fromkeys(made))[:WORDS]
        self._shares = list(itertools.accumulate(1 / (rank + 10) for rank in range(1, len(self._words) + 1)))

    def text(self, *, words: int) -> str:
        said = self.random.choices(self._words, cum_weights=self._shares, k=words * 3 // 5)
        said += self.random.choices(COMMON, k=words - len(said))
        self.random.shuffle(said)
        return f"{' '.join(said).capitalize()}."

    def question(self) -> str:
        asked = self.random.choices(self._words, cum_weights=self._shares, k=self.random.choice((4, 5, 6, 6, 7)))
        return f"What did they {asked[0]} about the {' '.join(asked[1:])}?"


async def passages(folder: Path, rows: int, clock: _Clock, costs: _Costs) -> None:
    """Store so many passages and search them."""
    talk, path = _Talk(), folder / f"passages-{rows}.db"
    vectors, queries = mixture(rows)
    await _stored(path, talk, vectors, clock, costs)
    costs.tell("  file", path.stat().st_size / 1e6, "MB")
    async with await _opened(path, queries) as perdure:  # numpy and all modules are there already
        archive = (await perdure.archives.list())[0]
        large = rows > 100_000
        first = await clock.time(lambda: archive.search(talk.question(), limit=10), unit_s=1)
        costs.tell_time("  first search", [first], "s", bar=None if large else 0.5)
        questions = [talk.question() for _ in queries]
        whole = await clock.times(questions, lambda text: archive.search(text, limit=10))
        costs.tell_time("  search, p50", whole, "ms", bar=60 if large else 10)
        await archive.search(questions[0], tags=["some"])
        tagged = await clock.times(questions, lambda text: archive.search(text, limit=10, tags=["some"]))
        costs.tell_time("  search with a tag of 1 %, p50", tagged, "ms", bar=5)
        found, held = await perdure.app.store.read(_nearest, queries)
    costs.tell("  index in memory", held / 1e6, "MB", bar=100)
    exact = _exact(vectors, queries)
    met = sum(len(a & b) for a, b in zip(found, exact, strict=True)) / sum(map(len, exact))
    costs.tell("  recall@10 of the vectors", met, "", bar=0.99, least=True)


async def _stored(path: Path, talk: _Talk, vectors: Halves, clock: _Clock, costs: _Costs) -> None:
    store, ids, times = SqliteStore.open(path, at=CLOCK), Uuids(), list[_Time]()
    archive = await store.write(_open, ArchiveId(ids.new("archive")))
    rows = len(vectors)
    for first in range(0, rows, BATCH):
        batch = range(first, min(first + BATCH, rows))
        some = [
            Passage(
                id=PassageId(ids.new("passage")),
                archive_id=archive.id,
                text=talk.text(words=45),
                tags=("some",) if row % TAGGED_EACH == 0 else (),
                created_at=CLOCK,
                occurred_at=CLOCK + timedelta(minutes=row),
            )
            for row in batch
        ]
        blobs = [vectors[row].tobytes() for row in batch]
        times.append(await clock.time(lambda some=some, blobs=blobs: store.write(_put, archive.number, some, blobs)))  # type: ignore[misc]
    await store.close()
    row_us = statistics.mean(one.row_us for one in times)
    each = _Time(sum(one.cpu for one in times) / rows, row_us, sum(one.scaled for one in times) / rows)
    costs.tell_time(f"{rows:,} passages: insert and commit, each", [each], "ms", bar=0.3)


def _open(tx: Tx, archive_id: ArchiveId) -> Archive:
    archive = tx.archives.add(Archive(id=archive_id, org_id=tx.org_id, name="many", created_at=CLOCK, updated_at=CLOCK))
    tx.vectors.open(archive.number, "archive", archive.id, MODEL)
    return archive


def _put(tx: Tx, number: int, some: Sequence[Passage], blobs: Sequence[bytes]) -> None:
    added = [(passage.seq, blob) for passage, blob in zip(tx.passages.add(some), blobs, strict=True)]
    tx.vectors.put(number, added, model=MODEL, dimensions=DIMENSIONS)


async def _opened(path: Path, queries: Floats) -> AsyncPerdure:
    settings = Settings(home=str(path.parent), embedding="none")
    return await AsyncPerdure.open(path, settings=settings, embedder=_Known(queries))


def _nearest(tx: Tx, queries: Floats) -> tuple[list[set[int]], int]:
    """The best ten of each query among as many candidates as a search takes, and the index's size in bytes."""
    indexes, scope = VectorIndexes(), tx.vectors.counts()[0].scope
    found = [indexes.search(tx, scope, query, limit=80) for query in queries]
    return [set(dense.seqs[:10].tolist()) for dense in found], indexes.nbytes


def _exact(vectors: Halves, queries: Floats) -> list[set[int]]:
    cosines: npt.NDArray[np.float32] = np.concatenate(
        [vectors[first : first + 50_000].astype(np.float32) @ queries.T for first in range(0, len(vectors), 50_000)]
    )
    return [set(np.argpartition(-cosines[:, at], 10)[:10].tolist()) for at in range(len(queries))]


async def messages(folder: Path, rows: int, clock: _Clock, costs: _Costs) -> None:
    """Store so many messages of an agent and search them by their words."""
    talk, path, ids = _Talk(), folder / f"messages-{rows}.db", Uuids()
    async with await AsyncPerdure.open(path, settings=Settings(home=str(folder), embedding="none")) as perdure:
        agent = await perdure.create_agent("talker", model="perdure/extractive")
        for drafts in _drafts(talk, ids, rows):

            def append(tx: Tx, drafts: Sequence[Draft] = drafts) -> None:
                tx.messages.append((agent.id, 0), drafts, [40] * len(drafts), at=CLOCK)

            await perdure.app.store.write(append)
        first = await clock.time(lambda: agent.search(talk.question(), limit=5), unit_s=1)
        costs.tell_time(f"{rows:,} messages: first search", [first], "s")
        questions = [talk.question() for _ in range(80)]
        found = await clock.times(questions, lambda text: agent.search(text, limit=5))
        costs.tell_time("  conversation_search, p50", found, "ms", bar=10)
        second = await clock.times(questions, lambda text: agent.search(text, limit=5, offset=5))
        costs.tell_time("  its second page, p50", second, "ms")


def _drafts(talk: _Talk, ids: Uuids, rows: int) -> Iterator[list[Draft]]:
    for first in range(0, rows, BATCH):
        yield [
            Draft(
                id=MessageId(ids.new("message")),
                role="user" if row % 2 else "assistant",
                parts=(Text(talk.text(words=22)),),
                occurred_at=CLOCK + timedelta(minutes=20 * row),
            )
            for row in range(first, min(first + BATCH, rows))
        ]


async def archives(folder: Path, costs: _Costs) -> None:
    """Store archives of one passage each."""
    talk, path, ids = _Talk(), folder / "archives.db", Uuids()
    vectors, _ = mixture(ARCHIVES)
    store = SqliteStore.open(path, at=CLOCK)
    for vector in vectors:
        archive = await store.write(_open, ArchiveId(ids.new("archive")))
        passage = Passage(
            id=PassageId(ids.new("passage")), archive_id=archive.id, text=talk.text(words=45), created_at=CLOCK,
            occurred_at=CLOCK,
        )  # fmt: skip
        await store.write(_put, archive.number, [passage], [vector.tobytes()])
    await store.close()
    costs.tell(f"{ARCHIVES} archives of one passage", path.stat().st_size / 1e6, "MB", bar=5)


def main() -> int:
    """Measure each number of rows that is named; 1 if a bar was missed."""
    costs = _Costs()
    print(f"{'':<46}{'CPU':>10}    {'row us':>7}{'scaled':>9}     bar")
    with tempfile.TemporaryDirectory() as beside, Yardstick(Path(beside)) as yardstick:
        clock = _Clock(yardstick)
        for rows in [int(argument.replace(",", "")) for argument in sys.argv[1:]] or [100_000]:
            with tempfile.TemporaryDirectory() as folder:
                asyncio.run(passages(Path(folder), rows, clock, costs))
                if rows <= MESSAGES_MAX:
                    asyncio.run(messages(Path(folder), rows, clock, costs))
                    asyncio.run(archives(Path(folder), costs))
    return int(costs.missed)


if __name__ == "__main__":
    sys.exit(main())
