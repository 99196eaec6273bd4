"""The arms of a search over one scope: what its words and its vectors find, before anything is ranked."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from perdure.core.text.words import Matches, Query, query_of
from perdure.search.request import SearchRequest
from perdure.storage.tx import Tx


@dataclass(frozen=True, slots=True, eq=False)
class VectorMatches:
    """What the vectors found: candidates, and the cosine of any row.

    Args:
        scores_of: numbers -> their cosines, nan for rows without a vector.
        mean, std: of the cosines of all rows that have one, of which there are `rows`.
        left_out: in plain words, why vectors were not searched or only some; empty: all were.
    """

    seqs: NDArray[np.int64]
    scores_of: Callable[[NDArray[np.int64]], NDArray[Any]]
    mean: float = 0.0
    std: float = 0.0
    rows: int = 0
    left_out: str = ""


def match_words(text: str, match: Callable[[Query], Sequence[Matches]]) -> tuple[Query, Sequence[Matches]]:
    """Match a query's words, and return the query as it was matched with the matches of each scope.

    Phrases (quoted, and short runs of scripts without spaces) are taken whole first; only when nothing is found, by
    their pieces.
    """
    query = query_of(text)
    found = match(query)
    if not any(matches.seqs for matches in found):
        query = query.loosen()
        found = match(query)
    return query, found


def match_vectors(
    tx: Tx, number: int, request: SearchRequest, *, texts: int, only: NDArray[np.int64] | None, limit: int
) -> VectorMatches:
    """Find the vectors of a scope nearest to the query's.

    Args:
        texts: how many texts the scope has that should have a vector.
        only: sorted numbers of the rows that may be found; None: all.
        limit: how many candidates at most.
    """
    if request.indexes is None or not request.vectors:
        return _none(request.without.get("vectors", "no embedder is set up"))
    scope = tx.vectors.scope(number)
    if scope is None or not scope.row_count:
        return _none("these texts have no vectors yet: type `perdure reindex`")
    vector = request.vectors.get(scope.model)
    if vector is None or (scope.dimensions is not None and scope.dimensions != len(vector)):
        using = ", ".join(request.vectors)
        return _none(f"these texts have vectors of {scope.model}, the query one of {using}: type `perdure reindex`")
    found = request.indexes.search(tx, number, vector, limit=limit, only=only, scope=scope)
    if found is None:
        return _none("these texts have no vectors yet")
    missing = texts - found.rows if only is None else 0
    return VectorMatches(
        found.seqs,
        found.scores_of,
        found.mean,
        found.std,
        found.rows,
        f"{missing:,} of {texts:,} texts wait for their vector" if missing > 0 else "",
    )


def _none(reason: str) -> VectorMatches:
    return VectorMatches(np.zeros(0, np.int64), lambda seqs: np.full(len(seqs), np.nan), left_out=reason)
