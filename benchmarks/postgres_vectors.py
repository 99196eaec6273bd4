"""Who finds the nearest vectors over PostgreSQL sooner: `python -m benchmarks.postgres_vectors [rows ...]`.

Three ways over the same rows of one archive, on a server of its own: today's matrix in the process, cold and warm;
pgvector's `halfvec` exactly, by the index of the archive; pgvector's HNSW with `iterative_scan`, also within an archive
that is a tenth of the table. Times are wall-clock medians of one query at a time. By default 1,000, 10,000 and 100,000.
"""

from __future__ import annotations

import asyncio
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any

import numpy as np
import psycopg

from benchmarks.vector_search import BATCH, DIMENSIONS, Floats, Halves, _open, _put, mixture
from perdure.search.vectors.index import VectorIndexes
from perdure.storage.stores.postgres_store import PostgresStore
from perdure.storage.tx import Tx
from tests.support.own_postgres import own_postgres

LIMIT = 10
OTHER_SHARE = 9
"""Of the second table, so many rows belong to other archives for each of the one that is searched."""
_NEAREST = (
    f"SELECT seq FROM nearest WHERE number = %s ORDER BY vector <=> CAST(%s AS halfvec({DIMENSIONS})) LIMIT {LIMIT}"
)


def main() -> None:
    """Measure each number of rows that is named."""
    for rows in [int(argument.replace(",", "")) for argument in sys.argv[1:]] or [1_000, 10_000, 100_000]:
        with own_postgres() as server:
            vectors, queries = mixture(rows)
            print(f"{rows:,} vectors of {DIMENSIONS} dimensions", flush=True)
            asyncio.run(_measure_matrix(server.address, vectors, queries))
            _measure_pgvector(server.address, vectors, queries)


async def _measure_matrix(address: str, vectors: Halves, queries: Floats) -> None:
    store = await PostgresStore.open(address, at=datetime.now(UTC))
    number = await store.write(_open)
    for first in range(0, len(vectors), BATCH):
        await store.write(_put, number, first, vectors[first : first + BATCH])
    indexes = VectorIndexes()

    def search(tx: Tx, query: Floats) -> list[int]:
        scope = tx.vectors.scope(number)
        assert scope is not None
        return [int(seq) for seq in indexes.search(tx, scope, query, limit=LIMIT).seqs]

    began = time.perf_counter()
    await store.read(search, queries[0])
    print(f"  matrix, cold            {(time.perf_counter() - began) * 1_000:9.2f} ms", flush=True)
    found, times = [], []
    for query in queries:
        began = time.perf_counter()
        found.append(await store.read(search, query))
        times.append(time.perf_counter() - began)
    _print("matrix, warm", times, found, vectors, queries, np.arange(len(vectors)))
    await store.close()


def _measure_pgvector(address: str, vectors: Halves, queries: Floats) -> None:
    with psycopg.connect(address, autocommit=True) as connection:
        connection.execute("CREATE EXTENSION IF NOT EXISTS vector")
        connection.execute(
            f"CREATE TABLE nearest (number BIGINT, seq BIGINT, vector halfvec({DIMENSIONS}), PRIMARY KEY (number, seq))"
        )
        everything = np.arange(len(vectors))
        _copy(connection, np.ones(len(vectors), np.int64), vectors)
        connection.execute("ANALYZE nearest")
        ask = _asker(connection, queries)
        _print("halfvec, exact", *ask(1), vectors, queries, everything)
        began = time.perf_counter()
        connection.execute("SET maintenance_work_mem = '512MB'")
        connection.execute("CREATE INDEX by_nearness ON nearest USING hnsw (vector halfvec_cosine_ops)")
        size = connection.execute("SELECT pg_relation_size('by_nearness')").fetchall()[0][0]
        print(f"  hnsw: made in {time.perf_counter() - began:.0f} s, {size / 1e6:.0f} MB", flush=True)
        connection.execute("SET hnsw.iterative_scan = strict_order")
        connection.execute("SET enable_sort = off")  # else the planner may sort the archive
        _print("hnsw", *ask(1), vectors, queries, everything)
        mine = everything[:: OTHER_SHARE + 1]
        connection.execute(f"UPDATE nearest SET number = 2 WHERE seq % {OTHER_SHARE + 1} <> 0")
        _print("hnsw, a tenth of it", *ask(1), vectors, queries, mine)
        connection.execute("SET enable_sort = on")
        connection.execute("SET enable_indexscan = on")
        connection.execute("DROP INDEX by_nearness")
        _print("halfvec, a tenth of it", *ask(1), vectors, queries, mine)


def _copy(connection: psycopg.Connection[Any], numbers: np.ndarray[Any, Any], vectors: Halves) -> None:
    """Write the rows in PostgreSQL's binary format, without a text of each number."""
    head = [("fields", ">i2"), ("a", ">i4"), ("number", ">i8"), ("b", ">i4"), ("seq", ">i8"), ("c", ">i4")]
    row = np.dtype([*head, ("dim", ">i2"), ("unused", ">i2"), ("vector", ">f2", (DIMENSIONS,))])
    rows = np.zeros(len(vectors), row)
    rows["fields"], rows["a"], rows["b"], rows["c"], rows["dim"] = 3, 8, 8, 4 + 2 * DIMENSIONS, DIMENSIONS
    rows["number"], rows["seq"], rows["vector"] = numbers, np.arange(len(vectors)), vectors
    with connection.cursor().copy("COPY nearest FROM STDIN (FORMAT BINARY)") as copy:
        copy.write(b"PGCOPY\n\xff\r\n\0" + bytes(8))
        copy.write(rows.tobytes())
        copy.write(b"\xff\xff")


def _asker(
    connection: psycopg.Connection[Any], queries: Floats
) -> Callable[[int], tuple[list[float], list[list[int]]]]:
    texts = [str(query.tolist()) for query in queries]

    def ask(number: int) -> tuple[list[float], list[list[int]]]:
        connection.execute(_NEAREST, (number, texts[0]))
        times, found = [], []
        for text in texts:
            began = time.perf_counter()
            found.append([row[0] for row in connection.execute(_NEAREST, (number, text)).fetchall()])
            times.append(time.perf_counter() - began)
        return times, found

    return ask


def _print(
    name: str,
    times: Sequence[float],
    found: Sequence[Sequence[int]],
    vectors: Halves,
    queries: Floats,
    rows: np.ndarray[Any, Any],
) -> None:
    exact = vectors[rows].astype(np.float32) @ queries.T
    best = [set(rows[np.argpartition(-exact[:, at], LIMIT)[:LIMIT]].tolist()) for at in range(len(queries))]
    recall = statistics.mean(len(best[at] & set(seqs)) / LIMIT for at, seqs in enumerate(found))
    print(f"  {name:<23} {statistics.median(times) * 1_000:9.2f} ms, recall {recall:.3f}", flush=True)


if __name__ == "__main__":
    main()
