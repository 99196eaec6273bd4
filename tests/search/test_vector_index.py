"""The matrices in memory: how good many rows' signs are, what is kept, who may look at once, what is refused."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from perdure.search.vectors import rows as vector_rows
from perdure.search.vectors.arithmetic import IntArray
from perdure.search.vectors.index import NearestRows, VectorIndexes
from perdure.storage.store import Store
from perdure.storage.stores.sqlite_store import SqliteStore
from perdure.storage.tx import Tx
from perdure.testing.clock import START
from tests.contracts.base import Contract

Floats = npt.NDArray[np.float32]

units = Contract()
MODEL = "test/model"
DIMENSIONS = 128


def mixture(rows: int, *, seed: int = 0, spread: float = 0.7) -> Floats:
    """Unit vectors in groups, as texts on the same subjects are."""
    random = np.random.default_rng(seed)
    centres = random.standard_normal((max(1, rows // 40), DIMENSIONS))
    noise = random.standard_normal((rows, DIMENSIONS)) * spread
    made = centres[random.integers(0, len(centres), rows)] + noise
    unit: Floats = (made / np.linalg.norm(made, axis=1, keepdims=True)).astype(np.float32)
    return unit


def nearest(
    tx: Tx, indexes: VectorIndexes, number: int, query: Floats, *, limit: int, only: IntArray | None = None
) -> NearestRows:
    """Search a scope by its number."""
    scope = tx.vectors.scope(number)
    assert scope is not None
    return indexes.search(tx, scope, query, limit=limit, only=only)


def put(tx: Tx, number: int, vectors: Floats, seqs: Sequence[int] | None = None) -> None:
    numbers = range(len(vectors)) if seqs is None else seqs
    rows = [(seq, row.astype(np.float16).tobytes()) for seq, row in zip(numbers, vectors, strict=True)]
    tx.vectors.put(number, rows, model=MODEL, dimensions=vectors.shape[1])


def remove(tx: Tx, number: int, seqs: list[int]) -> None:
    tx.vectors.remove(number, seqs)


def add_scope(tx: Tx, vectors: Floats) -> int:
    archive = units.add_archive(tx)
    tx.vectors.open(archive.number, "archive", archive.id, MODEL)
    put(tx, archive.number, vectors)
    return archive.number


@asynccontextmanager
async def open_store(folder: Path) -> AsyncIterator[Store]:
    store = SqliteStore.open(folder / "perdure.db", at=START)
    try:
        yield store
    finally:
        await store.close()


@pytest.mark.slow
@pytest.mark.parametrize(("exact_bytes", "halves_bytes"), [(1 << 30, 1 << 30), (0, 1 << 30), (0, 0)])
async def test_many_rows_are_found_by_their_signs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, exact_bytes: int, halves_bytes: int
) -> None:
    """99 of the best hundred tens, whichever form is kept, also within a filter; mean and deviation are about right."""
    monkeypatch.setattr(vector_rows, "EXACT_BYTES", exact_bytes)
    monkeypatch.setattr(vector_rows, "HALVES_BYTES", halves_bytes)
    vectors = mixture(12_000)
    queries = vectors[::240] + 0.5 * mixture(50, seed=1)
    queries /= np.linalg.norm(queries, axis=1, keepdims=True)
    only = np.arange(0, 12_000, 3)
    exact = vectors.astype(np.float16).astype(np.float32) @ queries.T
    indexes, met, met_within = VectorIndexes(), 0, 0
    async with open_store(tmp_path) as store:
        number = await store.write(add_scope, vectors)
        for query, cosines in zip(queries, exact.T, strict=True):
            dense = await store.read(nearest, indexes, number, query, limit=10)
            within = await store.read(nearest, indexes, number, query, limit=10, only=only)
            met += len({*dense.seqs.tolist()} & {*np.argsort(-cosines)[:10].tolist()})
            met_within += len({*within.seqs.tolist()} & {*only[np.argsort(-cosines[only])[:10]].tolist()})
            assert np.allclose(dense.scores, cosines[dense.seqs], atol=1e-3)
            assert (dense.rows, within.rows) == (12_000, len(only))
            assert abs(dense.mean - cosines.mean()) < 0.1 * cosines.std()
            assert 0.85 < dense.std / cosines.std() < 1.15
            assert abs(within.mean - cosines[only].mean()) < 0.15 * cosines.std()

    assert met >= 495 and met_within >= 495


async def test_an_empty_scope_has_no_best(tmp_path: Path) -> None:
    """Before its first vector any query may be asked, and after its last one is gone."""
    async with open_store(tmp_path) as store:
        archive = await store.write(units.add_archive)
        await store.write(lambda tx: tx.vectors.open(archive.number, "archive", archive.id, MODEL))
        indexes, query = VectorIndexes(), mixture(1)[0]
        for change in (lambda tx: None, lambda tx: put(tx, archive.number, mixture(2)), lambda tx: None):
            dense = await store.read(nearest, indexes, archive.number, query, limit=5)
            assert (len(dense.seqs), dense.rows, dense.mean) == (0, 0, 0.0)
            assert np.isnan(dense.scores_of([0, 1])).all()
            await store.write(change)
            await store.write(lambda tx: tx.vectors.remove(archive.number, [0, 1]))


async def test_matrices_used_last_are_kept(tmp_path: Path) -> None:
    """Together they stay within the bound, if one alone does; what was let go of is found again all the same."""
    async with open_store(tmp_path) as store:
        numbers = [await store.write(add_scope, mixture(200, seed=seed)) for seed in range(6)]
        indexes, query = VectorIndexes(max_bytes=500_000), mixture(1)[0]
        first = [await store.read(nearest, indexes, number, query, limit=3) for number in numbers]
        assert 150_000 < indexes.nbytes <= 500_000
        again = [await store.read(nearest, indexes, number, query, limit=3) for number in numbers]
        assert [found.seqs.tolist() for found in first] == [found.seqs.tolist() for found in again]

        tiny = VectorIndexes(max_bytes=1)
        for number in numbers[:2]:
            await store.read(nearest, tiny, number, query, limit=3)
            assert 100_000 < tiny.nbytes < 300_000


async def test_many_may_search_while_others_write(tmp_path: Path) -> None:
    """Readers in several threads, appends, replacements and removals at once: each sees the rows of one version."""
    vectors = mixture(600, seed=5)
    async with open_store(tmp_path) as store:
        number = await store.write(add_scope, vectors[:100])
        indexes = VectorIndexes()

        def look(tx: Tx) -> int:
            scope = tx.vectors.scope(number)
            dense = nearest(tx, indexes, number, vectors[0], limit=1_000)
            assert scope is not None
            assert dense.rows == len(dense.seqs) == scope.row_count
            there = tx.vectors.list_changes(scope, after_version=-1)
            assert sorted(dense.seqs.tolist()) == sorted(row[0] for row in there if row[2] is not None)
            return dense.rows

        seen: list[int] = []
        looked, written = asyncio.Event(), asyncio.Event()

        async def read() -> None:
            while not written.is_set():
                seen.append(await store.read(look))
                looked.set()

        async def write() -> None:
            for first in range(100, 600, 10):
                seqs = [*range(first, first + 9), first - 50]
                await store.write(put, number, vectors[seqs], seqs)
                await store.write(remove, number, [first - 3, first - 90])
                looked.clear()
                await looked.wait()  # however slow the machine, somebody looks in between
            written.set()

        await asyncio.gather(*(read() for _ in range(4)), write())
        assert len(set(seen)) > 10
