"""Candidates of a full-text search: the rows of one scope that hold the rarest words of a query.

The database's own rank uses the statistics of the whole file and costs a microsecond for every row with any of the
words, of which a long history has tens of thousands. So each clause is looked up by itself, newest rows first and up to
a limit. The rows of a rare clause are thus all known, and they matter most. `search.ranking` scores the candidates by
their texts later.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from perdure.core.text.words import Clause, Matches, Postings, Query
from perdure.storage.database.base import Database
from perdure.storage.tables.conditions import Conditions

if TYPE_CHECKING:
    from numpy.typing import NDArray

PROBED_ROWS = 200
"""The newest rows of a clause that are read first. Most clauses of a question have fewer."""
CLAUSE_ROWS = 1_000
"""The rows that are read of a more frequent clause, if rarer ones give too few candidates."""
Weighed = tuple["NDArray[Any]", float]
"""Rows that hold a clause or a pair of clauses, and its weight."""

PAIRS = 1  # pairs of frequent clauses that are looked up together


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
    where: Conditions | None = None,
    known: Postings | None = None,
    few: bool = False,
    waiting: Sequence[tuple[int, str]] = (),
) -> Matches:
    """The best `limit` candidates of one scope.

    Args:
        number: the scope's number.
        labels: only rows with any of these; with all of them if `all_labels`.
        below: only rows with lower sequence numbers.
        join, where: further conditions, and the table that they are about; `{key}` in `join` is the row's sequence
            number.
        known: postings of this scope that were read before with the same labels and conditions; it is extended.
        few: the labels match at most `CLAUSE_ROWS` rows, and there are no conditions.
        waiting: number and words of rows that are not in the index yet, the newest first; all indexed rows are older.
    """

    read = Postings() if known is None else known
    where = where or Conditions()
    join = join if where.clauses else ""

    def rows(*clauses: Clause, most: int) -> NDArray[Any]:
        if (seqs := read.get((clauses, most))) is None:
            seqs = read[clauses, most] = query_index(*clauses, most=most)
        return seqs

    def query_index(*clauses: Clause, most: int) -> NDArray[Any]:
        text = db.full_text(table, number, clauses, labels, all_labels=all_labels, below=below)
        found = db.numbers(
            f"SELECT {text.key} AS number FROM {text.source} {join.format(key=text.key)} WHERE {text.where} AND {where}"
            f" ORDER BY {text.order}{'' if few else ' DESC LIMIT :w_limit'}",
            {**where.params, **text.params, "w_limit": most},
        )
        older = found[::-1] if few else found  # an index is read faster forwards than backwards
        newer = [seq for seq, words in waiting if all(_holds(words, clause) for clause in clauses)]
        return _concatenate(newer, older)[:most] if newer else older

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
    # Rows with several frequent words may be older than all rows read so far.
    pairs = [
        (rows(query.clauses[one], query.clauses[other], most=PROBED_ROWS), weights[one] + weights[other])
        for one, other in itertools.islice(itertools.combinations(many, 2), PAIRS)
    ]
    return Matches(_best([(held[at], weights[at]) for at in rarest_first], pairs, limit), frequency)


def _holds(words: str, clause: Clause) -> bool:
    return f" {' '.join(clause.tokens)}{'' if clause.prefix else ' '}" in f" {words} "


def _concatenate(newer: Sequence[int], older: NDArray[Any]) -> NDArray[Any]:
    import numpy as np

    return np.concatenate((np.array(newer, np.int64), older))


def _best(found: Sequence[Weighed], least: Sequence[Weighed], limit: int) -> list[int]:
    """The best rows, best first, then the newest. A row scores the sum of its weights in `found`, and at least its
    highest weight in `least`."""
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
    """An estimate of how many rows hold a clause, from its newest rows `found`: exact if there are few."""
    if len(found) < PROBED_ROWS:
        return len(found)
    return max(len(found), round(len(found) * (newest + 1) / (newest + 1 - int(found[-1]))))
