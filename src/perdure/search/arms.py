"""The arms of a search over one scope: what its words and its vectors find, before anything is ranked."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from perdure.core.text.dates import Span
from perdure.core.text.words import Matches, Query, parse_query
from perdure.search.hits import SearchReport, SearchRequest
from perdure.storage.tx import Tx


@dataclass(frozen=True, slots=True, eq=False)
class VectorMatches:
    """The candidates that vectors found, and a way to get the cosine of any row.

    Args:
        seqs: the numbers of the candidates.
        scores_of: numbers -> their cosines, nan for rows without a vector.
        mean, std: of the cosines of all rows that have a vector.
        rows: how many rows have a vector.
        left_out: why vectors were searched only in part or not at all, in plain words; empty if all were searched.
    """

    seqs: NDArray[np.int64]
    scores_of: Callable[[NDArray[np.int64]], NDArray[Any]]
    mean: float = 0.0
    std: float = 0.0
    rows: int = 0
    left_out: str = ""


def match_words(text: str, match: Callable[[Query], Sequence[Matches]]) -> tuple[Query, Sequence[Matches]]:
    """Match the words of a query, and return the query as it was matched with the matches of each scope.

    Phrases (in quotes, and short runs of scripts without spaces) match as a whole first. If nothing matches, their
    parts are matched instead.
    """
    query = parse_query(text)
    scopes = match(query)
    if not any(matches.seqs for matches in scopes):
        query = query.loosen()
        scopes = match(query)
    return query, scopes


def match_vectors(
    tx: Tx, number: int, request: SearchRequest, *, texts: int, only: NDArray[np.int64] | None, limit: int
) -> VectorMatches:
    """Find the vectors of a scope that are nearest to the query's.

    Args:
        number: of the scope.
        texts: how many texts of the scope should have a vector.
        only: sorted numbers of the rows to search; None searches all.
        limit: how many candidates at most.
    """
    if request.indexes is None or not request.vectors:
        return _none(request.without.get("vectors", "no embedder is set up"))
    scope = tx.vectors.scope(number)
    if scope is None or not scope.row_count:
        return _none("these texts have no vectors yet: type `perdure store reindex`")
    vector = request.vectors.get(scope.model)
    if vector is None or (scope.dimensions is not None and scope.dimensions != len(vector)):
        using = ", ".join(request.vectors)
        return _none(
            f"these texts have vectors of {scope.model}, the query one of {using}: type `perdure store reindex`"
        )
    nearest = request.indexes.search(tx, scope, vector, limit=limit, only=only)
    missing = texts - nearest.rows if only is None else 0
    return VectorMatches(
        nearest.seqs,
        nearest.scores_of,
        nearest.mean,
        nearest.std,
        nearest.rows,
        f"{missing:,} of {texts:,} texts wait for their vector" if missing > 0 else "",
    )


def report_search(
    query: Query, meanings: Sequence[VectorMatches], named: Sequence[Span], *, rows: int, pool: int
) -> SearchReport:
    """Build the report of a search by words and vectors; `named` are the times that the query names."""
    left_out = next((meaning.left_out for meaning in meanings if meaning.left_out), "")
    return SearchReport(
        arms=("words", "vectors") if any(meaning.rows for meaning in meanings) else ("words",),
        left_out={"vectors": left_out} if left_out else {},
        words=tuple(" ".join(clause.tokens) for clause in query.clauses),
        spans=tuple(span.text for span in named),
        rows=rows,
        pool=pool,
    )


def _none(reason: str) -> VectorMatches:
    """Return no matches, with the reason."""
    return VectorMatches(np.zeros(0, np.int64), lambda seqs: np.full(len(seqs), np.nan), left_out=reason)
