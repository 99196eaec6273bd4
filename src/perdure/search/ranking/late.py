"""Late interaction: the first rows of a ranking, compared with the query word by word.

The embedding worker stores the signs of a text's words with its vector, so a search embeds no row. Rows without signs
keep their place.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from perdure.search.ranking.fuse import Ranking, add_late
from perdure.search.ranking.hits import SearchReport, SearchRequest
from perdure.search.ranking.pool import Column
from perdure.storage.tx import Tx

LATE_ROWS = 60
"""So many rows are compared. 30 and 90 find as much on LoCoMo, within 0.1 R@10."""
PRODUCTS_AT_ONCE = 400_000
"""So many products are made at once: with more, OpenBLAS wakes its other threads, and takes 6 to 22 ms for 0.2 ms."""


def compare_words(
    tx: Tx, ranked: Ranking, ran: SearchReport, request: SearchRequest, numbers: Column
) -> tuple[Ranking, SearchReport]:
    """Return the ranking with its first `LATE_ROWS` rows in a new order, and the report with what was left out.

    Args:
        numbers: (n) of the scope of each row of the pool.
    """
    rows = ranked.order[:LATE_ROWS]
    texts = list(zip(numbers[rows].tolist(), ranked.pool.seq[rows].tolist(), strict=True))
    for model, query in request.words.items() if "vectors" in ran.arms else ():
        signs = tx.vectors.words(model, texts)
        without = sum(sign is None for sign in signs.values())
        if without:
            reason = f"{without} of {len(texts)} texts have no signs of words yet: type `perdure store reindex --again`"
            ran = replace(ran, left_out={**ran.left_out, "late": reason})
        if len(signs) > without:
            ranked = add_late(ranked, rows, late_scores(query, [signs.get(text) for text in texts]))
            ran = replace(ran, arms=(*ran.arms, "late"))
    return ranked, ran


def pack_signs(words: Column) -> bytes:
    """Return the signs of word vectors (w, d) as w · d/8 bytes: a bit for each number.

    Enough for late interaction as long as the query's vectors stay whole: on LoCoMo it finds as much as with 32-bit
    numbers, and a message takes 640 bytes.
    """
    return np.packbits(np.asarray(words) > 0, axis=1).tobytes()


def late_scores(query_words: Column, signs: Sequence[bytes | None]) -> Column:
    """Return (n) one score per row; nan for rows without words.

    Args:
        query_words: (q, d) unit vectors, one for each word piece of the query.
        signs: of the words of each row, by `pack_signs`.

    The mean of each query word over the rows is subtracted, so that words which suit every row count little. A query
    word weighs as much as its best match.

    Source: Khattab and Zaharia, ColBERT, SIGIR 2020, here with the vectors of a plain sentence model.
    """
    scores = np.full(len(signs), np.nan)
    size = query_words.shape[1]
    width = -(-size // 8)
    whole = {at: one for at, one in enumerate(signs) if one and len(one) % width == 0}
    if not len(query_words) or not whole:
        return scores
    packed = np.frombuffer(b"".join(whole.values()), np.uint8).reshape(-1, width)
    # A product with 0 and 1 is half of that with -1 and 1, plus a constant that the mean takes away.
    query = query_words.T.astype(np.float32) * np.float32(2.0 / np.sqrt(size))  # (d, q)
    products = np.empty((len(packed), query.shape[1]), np.float32)
    step = max(1, PRODUCTS_AT_ONCE // query.size)
    for start in range(0, len(packed), step):
        batch = slice(start, start + step)
        np.matmul(np.unpackbits(packed[batch], axis=1, count=size).astype(np.float32), query, out=products[batch])
    begins = [0, *itertools.accumulate(len(one) // width for one in whole.values())][:-1]
    best = np.maximum.reduceat(products, begins)  # (rows, q)
    best -= best.mean(axis=0)
    weight = np.maximum(best.max(axis=0), 0.0)
    scores[list(whole)] = best @ (weight / max(float(weight.sum()), 1e-6))
    return scores
