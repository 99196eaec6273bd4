"""Writes to the full-text index, and to the one that `storage.upkeep.rebuild` builds beside it, as far as it is built;
and the candidates of a search: the rows of one scope that hold the rarest words of a query.

The database's own rank uses the statistics of the whole file and costs a microsecond for every row with any of the
words, of which a long history has tens of thousands. So each clause is looked up by itself, newest rows first and up to
a limit. The rows of a rare clause are thus all known, and they matter most. `search.ranking` scores the candidates by
their texts later.
"""

from __future__ import annotations

import hashlib
import itertools
import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from perdure.core.text.words import Clause, Matches, Postings, Query
from perdure.storage.database.base import Database, WordRows
from perdure.storage.database.conditions import Conditions

IN_USE = 1 << 62
"""The number in `rebuilding` that means: the new index is in use, and the old one is being removed."""
Words = tuple[int, str, str]
"""Sequence number, labels, words."""


def index_words(db: Database, table: str, number: int, rows: Sequence[Words]) -> None:
    """Add rows (sequence number, labels, words) of scope `number` to the full-text index `table`."""
    if rows:
        db.index_words(table, number, rows)
        if rebuilt := _rebuilt_rows(db, table, number, rows):
            db.index_words(next_table(table), number, rebuilt)


def unindex_words(db: Database, table: str, number: int, rows: Sequence[Words]) -> None:
    """Remove rows of scope `number` that were added with exactly these values from the index `table`."""
    if rows:
        db.unindex_words(table, number, rows)
        if rebuilt := _rebuilt_rows(db, table, number, rows):
            db.unindex_words(next_table(table), number, rebuilt)


def _rebuilt_rows(db: Database, table: str, number: int, rows: Sequence[Words]) -> Sequence[Words]:
    """Return those of scope `number`'s rows that a new index, if one is being built, contains already."""
    if db.removes_by_number:
        return ()
    found = db.rows(
        "SELECT number, next_seq FROM rebuilding WHERE name = :name AND number < :end", {"name": table, "end": IN_USE}
    )
    return [row for row in rows if (number, row[0]) < tuple(found[0])] if found else ()


def tag_label(tag: str) -> str:
    """The label of a tag in the full-text index, where only letters and digits make a word."""
    return "t" + hashlib.sha1(tag.encode("utf-8", "surrogatepass"), usedforsecurity=False).hexdigest()[:16]


def tag_labels(tags: Sequence[str]) -> str:
    """The labels of a passage's tags, separated by spaces."""
    return " ".join(map(tag_label, tags))


def next_table(table: str) -> str:
    """The name of the new index while an index is rebuilt."""
    return f"{table}_next"


if TYPE_CHECKING:
    from numpy.typing import NDArray

PROBED_ROWS = 200
"""The newest rows of a clause that are read first. Most clauses of a question have fewer."""
CLAUSE_ROWS = 1_000
"""The rows that are read of a more frequent clause, if rarer ones give too few candidates."""
SIFTED_ROWS, SIFT_GROWTH = 6_400, 4
"""The rows of a clause that are read where only some may be found, and by how much each reading is longer."""
Weighed = tuple["NDArray[Any]", float]
"""Rows that hold a clause or a pair of clauses, and its weight."""


PAIRS = 1  # pairs of frequent clauses that are looked up together


def matches(
    db: Database,
    among: WordRows,
    query: Query,
    *,
    limit: int,
    join: str = "",
    where: Conditions | None = None,
    postings: Postings | None = None,
    few: bool = False,
    waiting: Sequence[tuple[int, str]] = (),
    only: NDArray[Any] | None = None,
) -> Matches:
    """Return the best `limit` candidates of one scope.

    Args:
        join, where: further conditions, and the table that they are about; `{key}` in `join` is the row's sequence
            number.
        postings: those of this scope that were read before with the same labels and conditions; it is extended.
        few: the labels match at most `CLAUSE_ROWS` rows, and there are no conditions.
        waiting: number and words of rows that are not in the index yet, the newest first; all indexed rows are older.
        only: sorted numbers of the rows that may be found; of a frequent clause at most `SIFTED_ROWS` are looked at.
    """
    import numpy as np

    postings = Postings() if postings is None else postings
    where = where or Conditions()
    join = join if where.clauses else ""

    def read(*wanted: tuple[tuple[Clause, ...], int]) -> None:
        """Read into `postings`, for each (clauses, most), the newest `most` rows with all clauses, newest first."""
        missing = [pair for pair in dict.fromkeys(wanted) if pair not in postings]
        selects, params = [], {**where.params}
        for place, (clauses, most) in enumerate(missing):
            text = db.full_text(among, clauses)
            condition = text.where.replace(":w_", f":w_{place}_")
            params |= {name.replace("w_", f"w_{place}_"): value for name, value in text.params.items()}
            params[f"w_{place}_limit"] = most
            selects.append(
                f"SELECT {place}, {db.concat('number')} FROM (SELECT {text.key} AS number FROM {text.source}"
                f" {join.format(key=text.key)} WHERE {condition} AND {where}"
                f" ORDER BY {text.order}{'' if few else f' DESC LIMIT :w_{place}_limit'}) AS w_{place}"
            )
        for place, joined in db.rows(" UNION ALL ".join(selects), params) if missing else ():
            clauses, most = missing[place]
            indexed = np.fromstring(joined or "", np.int64, sep=",")
            if few:  # an index is read faster forwards than backwards
                indexed = indexed[::-1]
            held = [_clause_words(clause) for clause in clauses]
            not_indexed = [
                seq for seq, words in waiting if all(any(one in f" {words} " for one in either) for either in held)
            ]
            if not_indexed:
                indexed = np.concatenate((np.array(not_indexed, np.int64), indexed))[:most]
            postings[clauses, most] = indexed

    def rows_with(*clauses: Clause, most: int) -> NDArray[Any]:
        """The numbers of up to `most` rows that may be found and hold these clauses, the newest first."""
        size = most
        while True:
            read((clauses, size))
            rows = postings[clauses, size]
            found: NDArray[Any] = rows if only is None else rows[_are_in(only, rows)]
            if len(found) >= most or len(rows) < size or size >= SIFTED_ROWS:
                return found[:most]
            size *= SIFT_GROWTH

    read(*(((clause,), CLAUSE_ROWS if few else PROBED_ROWS) for clause in query.clauses))
    return _choose(query, rows_with, limit, few=few)


def _clause_words(clause: Clause) -> Sequence[str]:
    """What a row's words, with a space at both ends, hold one of if the row holds the clause."""
    spelled = clause.tokens if clause.either else (" ".join(clause.tokens),)
    return [f" {one}{'' if clause.prefix else ' '}" for one in spelled]


def _choose(query: Query, rows_with: Callable[..., NDArray[Any]], limit: int, *, few: bool) -> Matches:
    """The best `limit` rows of a query, and how frequent each of its clauses is. `rows_with` returns the numbers of up
    to `most` rows with all of some clauses, the newest first. `few`: no clause has more than `CLAUSE_ROWS` rows."""
    probed = CLAUSE_ROWS if few else PROBED_ROWS
    rows = [rows_with(clause, most=probed) for clause in query.clauses]
    last = max((int(numbers[0]) for numbers in rows if len(numbers)), default=0)
    frequency = [len(numbers) if few else _frequency(numbers, last) for numbers in rows]
    weights = [math.log(1 + (last + 1) / (count + 0.5)) for count in frequency]
    rarest_first = sorted(range(len(rows)), key=frequency.__getitem__)
    frequent = [] if few else [place for place in rarest_first if len(rows[place]) == PROBED_ROWS]
    for place in frequent:
        rarer = [rows[other] for other in rarest_first[: rarest_first.index(place)]]
        if len({number for numbers in rarer for number in numbers.tolist()}) < limit:
            rows[place] = rows_with(query.clauses[place], most=CLAUSE_ROWS)
    # Rows with several frequent words may be older than all rows read so far.
    pairs = [
        (rows_with(query.clauses[one], query.clauses[other], most=PROBED_ROWS), weights[one] + weights[other])
        for one, other in itertools.islice(itertools.combinations(frequent, 2), PAIRS)
    ]
    return Matches(_best([(rows[place], weights[place]) for place in rarest_first], pairs, limit), frequency)


def _are_in(only: NDArray[Any], rows: NDArray[Any]) -> NDArray[Any]:
    """For each number in `rows`, whether it is among the sorted numbers `only`."""
    import numpy as np

    if not len(only):
        return np.zeros(len(rows), np.bool_)
    places = np.minimum(only.searchsorted(rows), len(only) - 1)
    return np.asarray(only[places] == rows)


def _best(clauses: Sequence[Weighed], pairs: Sequence[Weighed], limit: int) -> list[int]:
    """The numbers of the best `limit` rows, best first, of equal ones the newest first. A row scores the sum of the
    weights of its clauses, and at least the highest weight of its pairs."""
    import numpy as np

    if not clauses:
        return []
    weighed = (*clauses, *pairs)
    seqs, places = np.unique(np.concatenate([rows for rows, _ in weighed]), return_inverse=True)
    scores = np.zeros(len(seqs))
    end = 0
    for index, (rows, weight) in enumerate(weighed):
        begin, end = end, end + len(rows)
        if index < len(clauses):
            scores[places[begin:end]] += weight  # a clause has each row once
        else:
            scores[places[begin:end]] = np.maximum(scores[places[begin:end]], weight)
    best: list[int] = seqs[np.lexsort((-seqs, -scores))][:limit].tolist()
    return best


def _frequency(newest: NDArray[Any], last: int) -> int:
    """Estimate how many rows up to `last` hold a clause, from the newest that do; exact if those are all."""
    if len(newest) < PROBED_ROWS:
        return len(newest)
    return max(len(newest), round(len(newest) * (last + 1) / (last + 1 - int(newest[-1]))))
