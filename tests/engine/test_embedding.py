"""The worker: every text gets its vector, whatever the endpoint, the process or the text does meanwhile."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, closing
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from perdure.core.errors import ModelAuthenticationFailed, ModelOverloaded, ModelRequestRefused
from perdure.core.passages import Archive
from perdure.core.ports import Clock, Embedder, EmbedPurpose
from perdure.core.vectors import ScopeCounts
from perdure.domain.archives.embedding import reindex
from perdure.engine.ports import SystemClock
from perdure.engine.workers import embedding
from perdure.engine.workers.embedding import EmbeddingWorker, WatchedStore
from perdure.storage.store import Store
from perdure.storage.stores.sqlite_store import SqliteStore
from perdure.storage.tx import Tx
from perdure.testing import InlineStore, ScriptedEmbedder
from perdure.testing.clock import START
from tests.contracts.base import AWKWARD, Contract
from tests.support.passing_time import time_passes

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

units = Contract()


class Fixed:
    """`Randomness` without any."""

    def random(self) -> float:
        return 0.5


class Picky(ScriptedEmbedder):
    """Refuses every batch that holds a text with `bad` in it."""

    async def embed(self, texts: Sequence[str], *, purpose: EmbedPurpose = "document") -> npt.NDArray[np.float32]:
        found = await super().embed(texts, purpose=purpose)
        if any("bad" in text for text in texts):
            raise ModelRequestRefused("this text is refused")
        return found


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pauses of hundredths, so that a test takes as long as the work."""
    for name, seconds in {
        "POLL_S": 0.05,
        "DOWN_S": 0.01,
        "DOWN_MAX_S": 0.05,
        "REFUSED_S": 0.05,
        "TRY_AGAIN_S": 0.01,
    }.items():
        monkeypatch.setattr(embedding, name, seconds)


class LoopClock:
    """`Clock` that goes as the running loop's does."""

    def now(self) -> datetime:
        return START + timedelta(seconds=asyncio.get_running_loop().time())


@asynccontextmanager
async def open_store(path: Path, embedder: Embedder, *, clock: Clock | None = None) -> AsyncIterator[Store]:
    """A store with a worker."""
    store = SqliteStore.open(path, at=START)
    worker = EmbeddingWorker(store, embedder, clock=clock or SystemClock(), randomness=Fixed())
    await worker.start()
    try:
        yield WatchedStore(store, embedder.handle, worker.wake)
    finally:
        await worker.close()
        await store.close()


async def find_counts(store: Store, condition: Callable[[ScopeCounts], bool], *, number: int) -> ScopeCounts:
    """The counts of a scope, once the condition holds for them."""
    while True:
        for counts in await store.read(lambda tx: tx.vectors.counts()):
            if counts.scope.number == number and condition(counts):
                return counts
        await asyncio.sleep(0.01)


async def wait_until(condition: Callable[[], bool]) -> None:
    """Wait until the condition holds."""
    while not condition():  # noqa: ASYNC110 - what changes it knows nothing of events
        await asyncio.sleep(0.01)


def is_complete(counts: ScopeCounts) -> bool:
    """Whether every text of a scope has its vector."""
    return counts.waiting == 0 and counts.scope.fill_from is None


def words_of(tx: Tx, archive: Archive) -> dict[int, bytes | None]:
    """Number -> signs of the words of each passage that has a vector."""
    found = tx.vectors.words("test/words", [(archive.number, seq) for seq in range(10)])
    return {seq: words for (_, seq), words in found.items()}


def fill(tx: Tx, archive: Archive, texts: Sequence[str]) -> None:
    """Add these passages to an archive."""
    for text in texts:
        units.add_passage(tx, archive.id, text)


async def test_what_is_written_gets_its_vector_at_once(tmp_path: Path) -> None:
    """Messages and passages of agents and archives made here, also texts that are hard to store."""
    embedder = ScriptedEmbedder()
    async with open_store(tmp_path / "p.db", embedder) as store:
        archive = await store.write(units.add_archive)
        agent = await store.write(units.add_agent)
        await store.write(fill, archive, AWKWARD)
        await store.write(units.say, agent.id, "hello", "a \ud800 walrus")
        passages = await find_counts(
            store, lambda counts: counts.scope.row_count == len(AWKWARD), number=archive.number
        )
        messages = await find_counts(store, lambda counts: counts.scope.row_count == 2, number=agent.number)

    assert (passages.failed, messages.failed) == (0, 0)
    assert {text for asked in embedder.requests for text in asked} == {*AWKWARD, "hello", "a \ud800 walrus"}


class Wordless:
    """`Embedder` that makes no vectors of words, as one behind a network."""

    def __init__(self) -> None:
        self._inner = ScriptedEmbedder()
        self.handle, self.dimensions, self.local = self._inner.handle, 64, False

    async def embed(self, texts: Sequence[str], *, purpose: EmbedPurpose = "document") -> npt.NDArray[np.float32]:
        return await self._inner.embed(texts, purpose=purpose)

    async def close(self) -> None: ...


async def test_the_signs_of_a_texts_words_are_kept_with_its_vector(tmp_path: Path) -> None:
    """Eight bytes for each word of 64 numbers, at most 64 words; also of equal texts. One without words keeps none."""
    texts = ["red wine", "red wine", "blue " * 200]
    async with open_store(tmp_path / "p.db", ScriptedEmbedder()) as store:
        archive = await store.write(units.add_archive)
        await store.write(fill, archive, texts)
        await find_counts(store, lambda counts: counts.scope.row_count == 3, number=archive.number)
        await store.write(fill, archive, ["red wine"])
        await find_counts(store, lambda counts: counts.scope.row_count == 4, number=archive.number)
        words = await store.read(words_of, archive)
        assert [len(words[seq] or b"") for seq in range(4)] == [16, 16, 512, 16]
        assert words[0] == words[1] == words[3]
    async with open_store(tmp_path / "other.db", Wordless()) as store:
        archive = await store.write(units.add_archive)
        await store.write(fill, archive, texts)
        await find_counts(store, lambda counts: counts.scope.row_count == 3, number=archive.number)
        assert await store.read(words_of, archive) == dict.fromkeys(range(3))


async def test_what_is_removed_leaves_no_signs_of_its_words(tmp_path: Path) -> None:
    """Of a deleted passage, a changed one that waits for its vector, and an archive that is gone."""
    embedder = ScriptedEmbedder()
    async with open_store(tmp_path / "p.db", embedder) as store:
        archive, gone = await store.write(units.add_archive), await store.write(units.add_archive)
        for one in (archive, gone):
            await store.write(fill, one, ["red wine", "blue sky"])
            await find_counts(store, lambda counts: counts.scope.row_count == 2, number=one.number)
        embedder.fail()

        def remove(tx: Tx) -> None:
            first, second = tx.passages.page(archive.id)
            tx.passages.delete(archive.id, [first.seq])
            tx.passages.put(replace(second, text="changed"))
            tx.vectors.close(gone.number)

        await store.write(remove)
    with closing(sqlite3.connect(tmp_path / "p.db")) as file:
        assert file.execute("SELECT COUNT(*), COUNT(vector), COUNT(words) FROM vectors").fetchall() == [(2, 0, 0)]


async def test_equal_texts_are_embedded_once(tmp_path: Path) -> None:
    """Also after a restart of the process, and for another archive; a changed text is embedded again."""
    path = tmp_path / "p.db"
    first = ScriptedEmbedder()
    async with open_store(path, first) as store:
        archive = await store.write(units.add_archive)
        await store.write(fill, archive, ["same", "same", "other"])
        await find_counts(store, lambda counts: counts.scope.row_count == 3, number=archive.number)
    second = ScriptedEmbedder()
    async with open_store(path, second) as store:
        other = await store.write(units.add_archive)
        await store.write(fill, other, ["other", "new", "same"])
        await find_counts(store, lambda counts: counts.scope.row_count == 3, number=other.number)
        passage = (await store.read(lambda tx: tx.passages.page(other.id)))[0]
        await store.write(lambda tx: tx.passages.put(replace(passage, text="changed")))
        await find_counts(store, lambda counts: counts.scope.version >= 3 and is_complete(counts), number=other.number)

    assert sorted(text for asked in first.requests for text in asked) == ["other", "same"]
    assert sorted(text for asked in second.requests for text in asked) == ["changed", "new"]


@pytest.mark.parametrize("local", [True, False])
async def test_an_endpoint_that_is_down_loses_nothing(tmp_path: Path, local: bool) -> None:
    """Writes go on; it is asked with little until it is back, and then everything is done."""
    embedder = ScriptedEmbedder(ModelOverloaded("busy"), local=local)
    async with open_store(tmp_path / "p.db", embedder) as store:
        archive = await store.write(units.add_archive)
        await store.write(fill, archive, [f"early {number}" for number in range(100)])
        await find_counts(store, lambda counts: counts.scope.row_count == 100, number=archive.number)
        embedder.fail(ModelAuthenticationFailed("no such key"))
        for first in range(0, 200, 20):
            await store.write(fill, archive, [f"late {first + number}" for number in range(20)])
        await wait_until(lambda: len(embedder.requests[-1]) == 1)
        embedder.recover()
        counts = await find_counts(store, lambda counts: counts.scope.row_count == 300, number=archive.number)

    assert (counts.waiting, counts.failed) == (0, 0)


async def test_a_text_that_is_refused_holds_up_no_other(tmp_path: Path) -> None:
    """It is found by halves, tried a few times, and told with its reason; changing it helps."""
    embedder = Picky(local=False)
    async with open_store(tmp_path / "p.db", embedder) as store:
        archive = await store.write(units.add_archive)
        await store.write(fill, archive, [f"text {number}" if number != 37 else "a bad one" for number in range(64)])
        counts = await find_counts(
            store, lambda counts: counts.failed == 1 and not counts.waiting, number=archive.number
        )
        assert (counts.scope.row_count, counts.failure) == (63, "this text is refused")
        assert sum(asked == ("a bad one",) for asked in embedder.requests) == embedding.TRIES

        bad = (await store.read(lambda tx: tx.passages.list_by_seqs(archive.id, [37])))[0]
        await store.write(lambda tx: tx.passages.put(replace(bad, text="a good one")))
        await find_counts(store, lambda counts: counts.scope.row_count == 64, number=archive.number)


async def test_closing_gives_back_what_was_taken(tmp_path: Path) -> None:
    """A worker that hangs is closed at once, and the next one does its work without waiting for a lease."""
    path, embedder = tmp_path / "p.db", ScriptedEmbedder(local=False)
    embedder.hang()
    async with open_store(path, embedder) as store:
        archive = await store.write(units.add_archive)
        await store.write(fill, archive, ["one", "two"])
        await wait_until(lambda: bool(embedder.requests))
    async with open_store(path, ScriptedEmbedder()) as store:
        await find_counts(store, lambda counts: counts.scope.row_count == 2, number=archive.number)


async def test_a_slow_answer_keeps_its_texts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Texts are not taken a second time, by this worker or another one, while the first is still waiting for them."""
    path, embedder, other = tmp_path / "p.db", ScriptedEmbedder(local=False), ScriptedEmbedder()
    embedder.hang()
    clock, renewed = LoopClock(), list[datetime]()

    def renew(tx: Tx, batch: embedding._TextBatch, *, until: datetime) -> None:
        original(tx, batch, until=until)
        renewed.append(until)

    original = embedding._renew
    monkeypatch.setattr(embedding, "_renew", renew)
    async with open_store(path, embedder, clock=clock) as store:
        archive = await store.write(units.add_archive)
        await store.write(fill, archive, ["one", "two"])
        await wait_until(lambda: bool(embedder.requests))
        async with open_store(path, other, clock=clock):
            for times in range(1, 6):  # longer than a lease
                time_passes(embedding.LEASE_S / 3)
                await wait_until(lambda times=times: len(renewed) >= times)  # type: ignore[misc]
                await store.write(lambda tx: None)  # behind the one that renewed: its task goes on before this one
                for _ in range(20):
                    await asyncio.sleep(0)
            embedder.recover()
            await find_counts(store, lambda counts: counts.scope.row_count == 2, number=archive.number)

    assert (len(embedder.requests), other.requests) == (1, [])


async def test_what_was_there_before_is_embedded_by_reindex(tmp_path: Path) -> None:
    """Texts from before there was an embedder; again by another model, in bounded steps; and once more if asked to."""
    path = tmp_path / "p.db"
    plain = SqliteStore.open(path, at=START)
    archive = await plain.write(units.add_archive)
    await plain.write(fill, archive, [f"text {number}" for number in range(40)])
    await plain.close()
    scopes = [(archive.number, "archive", archive.id)]
    for handle, dimensions in (("test/one", 8), ("test/two", 16)):
        async with open_store(path, ScriptedEmbedder(handle=handle, dimensions=dimensions)) as store:
            await store.write(reindex, scopes, handle)
            counts = await find_counts(store, lambda counts: counts.scope.row_count == 40, number=archive.number)
            assert (counts.scope.model, counts.scope.dimensions) == (handle, dimensions)
    version = counts.scope.version
    async with open_store(path, ScriptedEmbedder(handle="test/two", dimensions=16)) as store:
        assert await store.write(reindex, scopes, "test/two") == 0
        counts = await find_counts(store, is_complete, number=archive.number)
        assert counts.scope.version == version
        assert await store.write(lambda tx: reindex(tx, scopes, "test/two", force=True)) == 1
        await find_counts(store, lambda counts: counts.scope.row_count == 40, number=archive.number)


@pytest.mark.parametrize("steps", range(6))
async def test_a_close_that_comes_together_with_a_nudge_is_not_lost(steps: int) -> None:
    """So many steps of the loop after texts were queued, the worker is told to stop: it does."""
    worker = EmbeddingWorker(InlineStore(), ScriptedEmbedder(), clock=SystemClock(), randomness=Fixed())
    await worker.start()
    (task,) = worker.tasks
    for _ in range(20):  # by then it waits
        await asyncio.sleep(0)
    worker.wake()
    for _ in range(steps):
        await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait({task}, timeout=2)  # a lost cancellation would never end it
    ended = task.done()
    await worker.close()

    assert ended
