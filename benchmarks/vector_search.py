"""What vectors cost: `python -m benchmarks.vector_search [rows ...]`, by default 100,000.

The vectors are mixtures of three levels (topics, subjects in them, texts), as dense as those of a sentence model are:
the tenth best cosine of 100,000 is about 0.55. Times are CPU of all threads, medians, of the dense arm alone.
"""

from __future__ import annotations

import asyncio
import resource
import statistics
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import numpy.typing as npt

from perdure.core.ids import ArchiveId, Uuids
from perdure.core.passages import Archive
from perdure.search.vectors.index import NearestRows, VectorIndexes
from perdure.storage.stores.sqlite_store import SqliteStore
from perdure.storage.tx import Tx

__all__ = ["main", "mixture"]

DIMENSIONS = 384
QUERIES = 60
MODEL = "test/mixture"
BATCH = 256
BLOCK = 50_000

Halves = npt.NDArray[np.float16]
Floats = npt.NDArray[np.float32]


def mixture(rows: int, *, topics: int = 70, subjects: int = 70, seed: int = 0) -> tuple[Halves, Floats]:
    """Vectors and queries, of length 1."""
    random = np.random.default_rng(seed)
    spectrum = (np.arange(1, DIMENSIONS + 1) ** -0.25).astype(np.float32)
    turn = np.linalg.qr(random.standard_normal((DIMENSIONS, DIMENSIONS)))[0].astype(np.float32)

    def some(count: int) -> Floats:
        made = random.standard_normal((count, DIMENSIONS), dtype=np.float32) * spectrum
        unit: Floats = made / np.linalg.norm(made, axis=1, keepdims=True)
        return unit

    common, of_topic, of_subject = 0.15 * some(1), 0.6 * some(topics), 0.5 * some(topics * subjects)
    sizes = 1 / np.sqrt(np.arange(1, topics * subjects + 1))
    label = random.choice(topics * subjects, rows, p=random.permutation(sizes / sizes.sum()))
    vectors = np.empty((rows, DIMENSIONS), np.float16)
    for first in range(0, rows, BLOCK):
        of = label[first : first + BLOCK]
        made = (of_topic[of // subjects] + of_subject[of] + 0.65 * some(len(of)) + common) @ turn
        vectors[first : first + BLOCK] = made / np.linalg.norm(made, axis=1, keepdims=True)
    queries = vectors[random.choice(rows, QUERIES)].astype(np.float32) + 0.6 * some(QUERIES) @ turn
    return vectors, (queries / np.linalg.norm(queries, axis=1, keepdims=True)).astype(np.float32)


async def measure(rows: int, folder: Path) -> None:
    """Print what storing and searching so many vectors costs."""
    vectors, queries = mixture(rows)
    store = SqliteStore.open(folder / "perdure.db", at=datetime.now(UTC))
    number = await store.write(_open)
    began = time.process_time()
    for first in range(0, rows, BATCH):
        await store.write(_put, number, first, vectors[first : first + BATCH])
    stored_us = (time.process_time() - began) / rows * 1e6
    print(f"{rows:,} vectors: {stored_us:.0f} us to store one in batches, {_size(folder) / rows:.0f} bytes in the file")
    indexes, before = VectorIndexes(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    began = time.process_time()
    await _timed(store, indexes, number, queries[0], 10, None)
    cold_s = time.process_time() - began
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1_000
    print(f"  cold {cold_s:.2f} s, index {indexes.nbytes / 1e6:.0f} MB (peak of the process {grown:+.0f} MB)")
    exact = np.concatenate(
        [vectors[first : first + BLOCK].astype(np.float32) @ queries.T for first in range(0, rows, BLOCK)]
    )
    random = np.random.default_rng(1)
    within = {share: np.sort(random.choice(rows, int(rows * share), replace=False)) for share in (0.01, 0.1, 0.5)}
    for name, limit, only in (
        ("all, best 10", 10, None),
        ("all, best 150", 150, None),
        *((f"filter of {share:.0%}", 10, only) for share, only in within.items()),
    ):
        found = [await _timed(store, indexes, number, query, limit, only) for query in queries]
        times = sorted(seconds * 1_000 for seconds, _ in found)
        met = sum(
            len(_best(exact[:, at], limit, only) & set(dense.seqs.tolist())) for at, (_, dense) in enumerate(found)
        )
        recall = met / limit / QUERIES
        print(
            f"  {name:<15} {statistics.median(times):6.2f} ms (least {times[0]:.2f}), recall {recall:.4f}", flush=True
        )
    await store.close()


async def _timed(
    store: SqliteStore,
    indexes: VectorIndexes,
    number: int,
    query: Floats,
    limit: int,
    only: npt.NDArray[np.int64] | None,
) -> tuple[float, NearestRows]:
    def search(tx: Tx) -> tuple[float, NearestRows]:
        began = time.process_time()
        scope = tx.vectors.scope(number)
        assert scope is not None
        dense = indexes.search(tx, scope, query, limit=limit, only=only)
        return time.process_time() - began, dense

    return await store.read(search)


def _best(cosines: Floats, limit: int, only: npt.NDArray[np.int64] | None) -> set[int]:
    at = np.argpartition(-(cosines if only is None else cosines[only]), limit)[:limit]
    return set((at if only is None else only[at]).tolist())


def _open(tx: Tx) -> int:
    now = datetime.now(UTC)
    archive = tx.archives.add(
        Archive(id=ArchiveId(Uuids().new("archive")), org_id=tx.org_id, name="many", created_at=now, updated_at=now)
    )
    tx.vectors.open(archive.number, "archive", archive.id, MODEL)
    return archive.number


def _put(tx: Tx, number: int, first: int, vectors: Halves) -> None:
    rows = [(first + index, vector.tobytes()) for index, vector in enumerate(vectors)]
    tx.vectors.put(number, rows, model=MODEL, dimensions=DIMENSIONS)


def _size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.iterdir())


def main() -> None:
    """Measure each number of rows that is named."""
    for rows in [int(argument.replace(",", "")) for argument in sys.argv[1:]] or [100_000]:
        with tempfile.TemporaryDirectory() as folder:
            asyncio.run(measure(rows, Path(folder)))


if __name__ == "__main__":
    main()
