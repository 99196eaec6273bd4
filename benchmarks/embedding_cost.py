"""What the local embedder takes: a query, and short texts in a batch."""

from __future__ import annotations

import asyncio
import random
import statistics
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import numpy as np

from benchmarks.server_cost import Figure
from perdure.providers.embeddings.bert import one_blas_thread
from perdure.providers.embeddings.minilm import MiniLM
from perdure.providers.embeddings.weights import open_folder

__all__ = ["embedding_figures"]

QUERY = "what did Caroline say about her adoption plans?"
VOCABULARY = (
    "the a she you they went to group yesterday and was really powerful beach dog weekend painting think about kids"
    " love music concert summer remember last year camping mountains family support friend work new job"
)
TEXTS, TIMES = 300, 40
QUERY_PIECES = 12
SHAPES = ((1152, 384), (384, 384), (1536, 384), (384, 1536)) * 6


def embedding_figures(folder: Path) -> Iterator[Figure]:
    """CPU times over the weights in this folder. The floor of a query is its products of matrices alone, as numpy makes
    them."""
    yield from asyncio.run(_figures(MiniLM(open_folder(folder))))


async def _figures(minilm: MiniLM) -> list[Figure]:
    drawn, words = random.Random(1), VOCABULARY.split()
    texts = [" ".join(drawn.choices(words, k=drawn.randint(4, 30))) for _ in range(TEXTS)]
    load_ms = await _cpu_ms(lambda: minilm.embed([QUERY]), times=1)
    query_ms = await _cpu_ms(lambda: minilm.embed_with_words([QUERY], purpose="query"))
    batch_ms = await _cpu_ms(lambda: minilm.embed(texts), times=3)
    await minilm.close()
    return [
        Figure("the weights loaded, and one query (CPU)", load_ms, "ms"),
        Figure("a query and its words (CPU)", query_ms, "ms", floor=_floor_ms()),
        Figure("short texts in a batch, a second (CPU)", 1_000 * TEXTS / batch_ms, "/s"),
    ]


async def _cpu_ms(work: Callable[[], Awaitable[object]], *, times: int = TIMES) -> float:
    """The median of some runs, all threads together."""
    took = []
    for _ in range(times):
        began = time.process_time()
        await work()
        took.append(time.process_time() - began)
    return statistics.median(took) * 1_000


def _floor_ms() -> float:
    drawn = np.random.default_rng(1)
    weights = [drawn.random(shape, np.float32) for shape in SHAPES]
    pieces = {size: drawn.random((size, QUERY_PIECES), np.float32) for size in (384, 1536)}
    took = []
    with one_blas_thread():
        for _ in range(TIMES):
            began = time.process_time()
            for matrix in weights:
                matrix @ pieces[matrix.shape[1]]
            took.append(time.process_time() - began)
    return statistics.median(took) * 1_000
