"""Candidates of a full-text search: which rows of one scope hold the rarest words of a query.

The database's own rank knows the statistics of the whole file, costs a microsecond for every row that holds any word,
and there are tens of thousands of those in a long history. So each clause is asked for by itself, newest rows first and
no more than a bound; what is held by few rows is thereby known completely, and says most. Scores come later, from the
texts of the candidates (`search.ranking`).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from perdure.core.text.words import Clause, Matches, Postings, Query
from perdure.storage.database.base import Database

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["CLAUSE_ROWS", "matches"]

PROBED_ROWS = 200
"""Of one clause, the newest rows that are read at first: most clauses of a question are held by fewer."""
CLAUSE_ROWS = 1_000
"""The same of clauses that more rows hold, as long as rarer ones gave too few candidates."""
Weighed = tuple["NDArray[Any]", float]
"""Rows, and what holding a clause or two of them is worth."""

PAIRS = 1  # of clauses that many rows hold, asked for together


def matches(
    db: Database,
    table: str,
    number: int,
    query: Query,
    *,
    limit: int,
    labels: Sequence[str] = (),
    all_labels: bool = False,
    below: int | None = None,
    join: str = "",
    conditions: str = "",
    params: Mapping[str, Any] | None = None,
    known: Postings | None = None,
    few: bool = False,
    waiting: Sequence[tuple[int, str]] = (),
) -> Matches:
    """The best `limit` candidates of one scope.

    Args:
        number: the scope's.
        labels: rows of any of these only; of all of them with `all_labels`.
        below: only rows with lower sequence numbers.
        join, conditions, params: what else must hold of them, as SQL; `{key}` in `join` is the row's sequence number.
        known: what was read before of the same rows, with the same labels and conditions, all of the scope's; it is
            added to.
        few: the labels leave no more than `CLAUSE_ROWS` rows; there are no conditions.
        waiting: number and words of rows that the index does not have yet and that may match, the newest first; those
            that it has, below `below`, are all older.
    """

    read = Postings() if known is None else known

    def rows(*clauses: Clause, most: int) -> NDArray[Any]:
        if (found := read.get((clauses, most))) is None:
            found = read[clauses, most] = asked(*clauses, most=most)
        return found

    def asked(*clauses: Clause, most: int) -> NDArray[Any]:
        text = db.full_text(table, number, clauses, labels, all_labels=all_labels, below=below)
        found = db.numbers(
            f"SELECT {text.key} AS number FROM {text.source} {join.format(key=text.key)} WHERE {text.where}{conditions}"
            f" ORDER BY {text.order}{'' if few else ' DESC LIMIT :w_limit'}",
            {**(params or {}), **text.params, "w_limit": most},
        )
        older = found[::-1] if few else found  # an index is read forwards in three quarters of the time
        newer = [seq for seq, words in waiting if all(_holds(words, clause) for clause in clauses)]
        return _joined(newer, older)[:most] if newer else older

    held = [rows(clause, most=CLAUSE_ROWS if few else PROBED_ROWS) for clause in query.clauses]
    newest = max((int(found[0]) for found in held if len(found)), default=0)
    frequency = [len(found) if few else _frequency(found, newest) for found in held]
    weights = [math.log(1 + (newest + 1) / (count + 0.5)) for count in frequency]
    rarest_first = sorted(range(len(held)), key=lambda at: (frequency[at], at))
    many: list[int] = []
    if not few:
        many = [at for at in rarest_first if len(held[at]) == PROBED_ROWS]
    for at in many:
        rarer = [held[other] for other in rarest_first[: rarest_first.index(at)]]
        if max(map(len, rarer), default=0) < limit and len(set().union(*(found.tolist() for found in rarer))) < limit:
            held[at] = rows(query.clauses[at], most=CLAUSE_ROWS)
    # Rows that hold several words which many rows hold may be older than all those that were read.
    pairs = [
        (rows(query.clauses[one], query.clauses[other], most=PROBED_ROWS), weights[one] + weights[other])
        for one, other in itertools.islice(itertools.combinations(many, 2), PAIRS)
    ]
    return Matches(_best([(held[at], weights[at]) for at in rarest_first], pairs, limit), frequency)


def _holds(words: str, clause: Clause) -> bool:
    return f" {' '.join(clause.tokens)}{'' if clause.prefix else ' '}" in f" {words} "


def _joined(newer: Sequence[int], older: NDArray[Any]) -> NDArray[Any]:
    import numpy as np

    return np.concatenate((np.array(newer, np.int64), older))


def _best(found: Sequence[Weighed], least: Sequence[Weighed], limit: int) -> list[int]:
    """The best of all rows by the sum of the weights that they were `found` with, or the most that they have at
    `least`; best first, equal ones the newest first."""
    import numpy as np

    if not found:
        return []
    sizes = [len(rows) for rows, _ in found]
    every = np.concatenate([rows for rows, _ in (*found, *least)])
    order = np.argsort(every, kind="stable")
    seqs = every[order]
    begins = np.ones(len(seqs), np.bool_)
    np.not_equal(seqs[1:], seqs[:-1], out=begins[1:])
    at = np.empty(len(seqs), np.int64)
    at[order] = np.cumsum(begins) - 1
    seqs = seqs[begins]
    first = sum(sizes)
    scores = np.bincount(at[:first], np.repeat([weight for _, weight in found], sizes), len(seqs))
    for rows, weight in least:
        among = at[first : first + len(rows)]
        scores[among] = np.maximum(scores[among], weight)
        first += len(rows)
    if len(seqs) > limit:
        likely = scores >= np.partition(scores, -limit)[-limit]
        seqs, scores = seqs[likely], scores[likely]
    best: list[int] = seqs[np.lexsort((-seqs, -scores))][:limit].tolist()
    return best


def _frequency(found: NDArray[Any], newest: int) -> int:
    """How many rows hold a clause of which `found` are the newest: as many as in the stretch that was read, if more
    than that."""
    if len(found) < PROBED_ROWS:
        return len(found)
    return max(len(found), round(len(found) * (newest + 1) / (newest + 1 - int(found[-1]))))
