"""Names in a query, times in the arguments of a search, as models and people write them; and the arms of a search over
one scope: what its words and its vectors find, before anything is ranked.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time
from typing import TYPE_CHECKING, Any

from perdure.core.errors import InvalidInput
from perdure.core.text.dates import TimeSpan
from perdure.core.text.words import Matches, Query, parse_query
from perdure.core.text.zones import zone
from perdure.search.ranking.hits import SearchReport, SearchRequest
from perdure.storage.tx import Tx

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


def parse_time(name: str, text: str | None, *, timezone: str = "UTC", end: bool = False) -> datetime | None:
    """Parse an ISO 8601 date or time, the argument `name`, into a moment in UTC; None for None or an empty text.

    A date alone means its beginning or, with `end`, its last microsecond, where the agent lives. A time without an
    offset is in the agent's time zone too.

    Raises: InvalidInput: for anything else.
    """
    if text is None or not text.strip():
        return None
    here = zone(timezone)
    text = text.strip()
    try:
        try:
            day = date.fromisoformat(text)
        except ValueError:
            moment = datetime.fromisoformat(text)
        else:
            # `fold`: where clocks go back at midnight, a day's last hour is there twice.
            moment = datetime.combine(day, time.max.replace(fold=1) if end else time.min)
        return (moment if moment.tzinfo else moment.replace(tzinfo=here)).astimezone(UTC)
    except (ValueError, OverflowError) as error:
        raise InvalidInput(f"{name} is {text!r:.60}: write a date as 2026-11-20 or 2026-11-20T15:30") from error


# Names that are ordinary words too: those only count with a capital letter.
_ORDINARY_TEXT = (
    "amber april art august bill chase dawn drew faith frank grace hope jack joy june mark may olive pat ray rich"
    " rob rose ruby sue summer will"
)
_ORDINARY = frozenset(_ORDINARY_TEXT.split())
_SPACE_BEFORE_MARK = re.compile(r"\s+([,.!?;:])")


def names_in(text: str, names: Sequence[str]) -> tuple[int, ...]:
    """Return the indexes of the `names` that occur in `text`, ascending; `Ann` does not occur in `Annual`."""
    return tuple(sorted({number for _, _, number in _find_names(text, tuple(names)) if number is not None}))


@functools.lru_cache(maxsize=256)
def count_distinct(names: tuple[str, ...]) -> int:
    """Count the different names, whatever their case."""
    return len({name.casefold() for name in names if name.strip()})


def without_names(text: str, names: Sequence[str]) -> str:
    """Return `text` without the names and their possessive 's, or unchanged if nothing else is in it."""
    found = _find_names(text, tuple(names))
    if not found:
        return text
    pieces, at = [], 0
    for first, last, _ in found:
        pieces.append(text[at:first])
        at = last
    rest = _SPACE_BEFORE_MARK.sub(r"\1", " ".join(" ".join((*pieces, text[at:])).split())).strip(" ,")
    return rest if any(map(str.isalnum, rest)) else text


def _find_names(text: str, names: tuple[str, ...]) -> tuple[tuple[int, int, int | None], ...]:
    """Find all names in the text: (start of a name, its end including 's, its index)."""
    pattern, numbers = _name_pattern(names)
    if pattern is None:
        return ()
    return tuple(
        (*match.span(), numbers.get(" ".join(match[1].casefold().split())))
        for match in pattern.finditer(text)
        if not match[1].islower() or match[1] not in _ORDINARY  # ordinary words are names with a capital letter
    )


@functools.lru_cache(maxsize=256)
def _name_pattern(names: tuple[str, ...]) -> tuple[re.Pattern[str] | None, dict[str, int]]:
    """Build (a pattern that matches any of the names, its first group without the possessive, name -> index). A name of
    several words also matches by its first word, if no other name begins with it."""
    numbers: dict[str, int] = {}
    firsts: dict[str, list[int]] = {}
    for number, name in enumerate(names):
        words = name.split()
        if words:
            numbers.setdefault(" ".join(words).casefold(), number)
            firsts.setdefault(words[0].casefold(), []).append(number)
    for first, indexes in firsts.items():
        if len(indexes) == 1 and len(first) > 2:
            numbers.setdefault(first, indexes[0])
    if not numbers:
        return None, {}
    longest_first = sorted(numbers, key=len, reverse=True)
    either = "|".join(re.escape(name).replace("\\ ", "\\s+") for name in longest_first)
    return re.compile(rf"(?<!\w)({either})(?!\w)(?:['’]s\b)?", re.IGNORECASE), numbers


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
        return _no_matches(request.without.get("vectors", "no embedder is set up"))
    scope = tx.vectors.scope(number)
    if scope is None or not scope.row_count:
        return _no_matches("these texts have no vectors yet: type `perdure store reindex`")
    vector = request.vectors.get(scope.model)
    if vector is None or (scope.dimensions is not None and scope.dimensions != len(vector)):
        using = ", ".join(request.vectors)
        return _no_matches(
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
    query: Query, meanings: Sequence[VectorMatches], named: Sequence[TimeSpan], *, rows: int, pool: int
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


def _no_matches(reason: str) -> VectorMatches:
    """Return no candidates, with the reason in plain words."""
    import numpy as np  # not above: a server that searches nothing reads a time too

    return VectorMatches(np.zeros(0, np.int64), lambda seqs: np.full(len(seqs), np.nan), left_out=reason)
