"""The search of one long text, such as a tool's output: its parts, ranked as passages are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from perdure.core.documents import Chunk
from perdure.core.text.words import parse_query
from perdure.search.ranking.fuse import rank
from perdure.search.ranking.matching import clause_counts
from perdure.search.ranking.pool import Column, Pool, PoolScope, QueryHints
from perdure.search.ranking.weights import PASSAGES

EMBEDDED = 48
"""How many parts get a vector: those that words rank first. More would take a local model a second."""


@dataclass(frozen=True, slots=True, eq=False)
class OutputParts:
    """The parts of a text that a query looks at, and how often each clause of the query stands in each.

    Args:
        counts: (clauses, parts).
    """

    parts: Sequence[Chunk]
    counts: Column

    def rank(self, dense: NDArray[np.float64] | None = None) -> Sequence[int]:
        """Return the parts with a word of the query or a high cosine, best first. `dense`: the cosine of each part to
        the query, nan: unknown; None: words count alone."""
        size = len(self.parts)
        chars = np.array([len(part.text) for part in self.parts], np.float64)
        scope = PoolScope(rows=size, mean_chars=float(chars.mean()) if size else 150.0)
        pool = Pool.of(
            np.arange(size)[::-1], scope, place=np.arange(size), chars=chars, counts=self.counts, dense=dense
        )
        ranking = rank(pool, QueryHints(), PASSAGES)
        return [row for row, fits in zip(ranking.order.tolist(), ranking.relevant.tolist(), strict=True) if fits]


def count_words(parts: Sequence[Chunk], query: str) -> OutputParts:
    """Count the query's words in the parts of a text; phrases that stand nowhere are taken apart."""
    parsed, texts = parse_query(query), [part.text for part in parts]
    counts = clause_counts(parsed, texts)
    if not counts.any():
        counts = clause_counts(parsed.loosen(), texts)
    return OutputParts(parts, counts)
