"""Candidates of a full-text search: which rows of one scope hold the rarest words of a query.

The database's own rank knows the statistics of the whole file, costs a microsecond for every row that holds any word,
and there are tens of thousands of those in a long history. So each clause is asked for by itself, newest rows first and
no more than a bound; what is held by few rows is thereby known completely, and says most. Scores come later, from the
texts of the candidates (`memory.ranking`).
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any

from perdure.core.text import Clause, Query
from perdure.core.tx import Matches
from perdure.storage.database import Database

__all__ = ["matches"]

CLAUSE_ROWS = 1_000
"""Of one clause, the newest rows that are read. More are not needed: a clause that more rows hold says little."""
PAIRS = 6  # of clauses that many rows hold, asked for together


def matches(
    db: Database,
    table: str,
    number: int,
    query: Query,
    *,
    limit: int,
    labels: Sequence[str] = (),
    below: int | None = None,
    join: str = "",
    conditions: str = "",
    params: Mapping[str, Any] | None = None,
) -> Matches:
    """The best `limit` candidates of one scope.

    Args:
        number: the scope's.
        labels: rows of any of these only.
        below: only rows with lower sequence numbers.
        join, conditions, params: what else must hold of them, as SQL; `{key}` in `join` is the row's sequence number.
    """

    def rows(*clauses: Clause) -> list[int]:
        text = db.full_text(table, number, clauses, labels, below=below)
        found = db.rows(
            f"SELECT {text.key} FROM {text.source} {join.format(key=text.key)} WHERE {text.where}{conditions}"
            f" ORDER BY {text.order} DESC LIMIT :w_limit",
            {**(params or {}), **text.params, "w_limit": CLAUSE_ROWS},
        )
        return [row[0] for row in found]

    held = [rows(clause) for clause in query.clauses]
    newest = max((found[0] for found in held if found), default=0)
    frequency = [_frequency(found, newest) for found in held]
    many = [clause for clause, found in zip(query.clauses, held, strict=True) if len(found) == CLAUSE_ROWS]
    scores: dict[int, float] = {}
    for found, count in zip(held, frequency, strict=True):
        weight = math.log(1 + (newest + 1) / (count + 0.5))
        for seq in found:
            scores[seq] = scores.get(seq, 0.0) + weight
    if len(many) > 1:
        # Rows that hold several such words may be older than all those that were read.
        for pair in itertools.islice(itertools.combinations(many, 2), PAIRS):
            weight = sum(math.log(1 + (newest + 1) / (frequency[query.clauses.index(clause)] + 0.5)) for clause in pair)
            for seq in rows(*pair):
                scores[seq] = max(scores.get(seq, 0.0), weight)
    best = heapq.nlargest(limit, scores.items(), key=lambda item: (item[1], item[0]))
    return Matches([seq for seq, _ in best], frequency)


def _frequency(found: Sequence[int], newest: int) -> int:
    """How many rows hold a clause of which `found` are the newest: as many as in the stretch that was read, if more
    than that."""
    if len(found) < CLAUSE_ROWS:
        return len(found)
    return max(len(found), round(len(found) * (newest + 1) / (newest + 1 - found[-1])))
