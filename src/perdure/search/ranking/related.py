"""Words that are related in meaning to those of a query ("trail" to "hike"), and words of the first person.

The related words stand in a list beside this module, which the first search without vectors reads.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from importlib.resources import files
from typing import TYPE_CHECKING

import numpy as np

from perdure.core.text.words import ASCII_LOWER, Clause, Query

if TYPE_CHECKING:
    from perdure.search.ranking.pool import Column

STRONG = 3
"""Rows join the candidates by words of this degree or more. All related words find no more."""
READ_CHARS = 1_000
"""A text's beginning, which is read for these words."""
Related = Sequence[Mapping[bytes, int]]
"""For each clause of a query: related word -> its degree, 1 to 9."""
FIRST_PERSON: Mapping[bytes, int] = dict.fromkeys(b"i my me mine we our ours us myself".split(), 1)
"""Words of a text that tells of its speaker."""
_WORDS_AND_ENDS = b"\0" + ASCII_LOWER[1:]


def related_words(query: Query) -> Related:
    """Return the related words of each clause; none for phrases, and for words that the list does not have."""
    return [_forms(clause.tokens[0]) if len(clause.tokens) == 1 else {} for clause in query.clauses]


def related_query(query: Query) -> Query:
    """Return a query for the rows with any strong related word of a clause."""
    lines = (_related(clause.tokens[0]) for clause in query.clauses if len(clause.tokens) == 1)
    strong = dict.fromkeys(stem for line in lines for stem, degree in line if degree >= STRONG)
    return Query((Clause(tuple(strong), either=True),) if strong else ())


def related_degrees(related: Related, texts: Sequence[str]) -> Column:
    """(clauses, texts) the largest degree of a clause's related words at the beginning of each text; 0 without one."""
    degrees = [[0] * len(texts) for _ in related]
    rows_of: dict[bytes, list[tuple[list[int], int]]] = {}
    for row, words in zip(degrees, related, strict=True):
        for word, degree in words.items():
            rows_of.setdefault(word, []).append((row, degree))
    any_of = frozenset(rows_of)
    # All texts at once: a zero byte ends each of them.
    joined = "\0".join([text[:READ_CHARS].replace("\0", " ") for text in texts])
    split = joined.encode("utf-8", "replace").translate(_WORDS_AND_ENDS).split(b"\0")
    for place, text in enumerate(split[: len(texts)]):
        for word in any_of.intersection(text.split()):
            for row, degree in rows_of[word]:
                row[place] = max(row[place], degree)
    return np.array(degrees, float)


@functools.lru_cache(maxsize=512)
def _forms(stem: str) -> Mapping[bytes, int]:
    """Return every form of the words that are related to a stem -> its degree."""
    lines = _lines()
    return {form: degree for one, degree in _related(stem) for form in lines[one].partition(":")[0].encode().split()}


def _related(stem: str) -> Sequence[tuple[str, int]]:
    """Return the stems that are related to a stem, each with its degree."""
    return [(one[:-1], int(one[-1])) for one in _lines().get(stem, "").partition(":")[2].split()]


@functools.cache
def _lines() -> Mapping[str, str]:
    """Read the list: stem -> the words with this stem, a colon, the related stems with their degrees as last digits."""
    text = files(__package__).joinpath("related_words.txt").read_text("ascii")
    return dict(line.split(" ", 1) for line in text.splitlines() if not line.startswith("#"))
