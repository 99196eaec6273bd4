"""How often the words of a query stand in texts, without splitting and stemming the texts.

Splitting and stemming the 400 candidates of a search costs 10 to 40 ms, more than the rest of it. So each word is
searched as it may be written, and only what is found there is stemmed.
"""

from __future__ import annotations

import functools
import itertools
import re
from bisect import bisect
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from perdure.core.text.words import SPACELESS, Clause, Query, fold, stems

if TYPE_CHECKING:
    from perdure.search.ranking.pool import Column

ANALYSED_CHARS = 20_000
"""A text is searched by its beginning: a long one is found by any of its words, but must not cost seconds."""

RELATED = 0.35
"""The count of a word that begins like the query's ("community" and "communal"): +0.7 R@10."""

RELATED_CHARS = 5
_BETWEEN = "\n\x00\n"  # stands in no folded text, so nothing is found across two of them
_PHRASE_CHARS = 40


def clause_counts(query: Query, texts: Sequence[str]) -> Column:
    """Count how often each clause stands in each text: (clauses, texts); `RELATED` where only a related word does."""
    texts = [fold(text[:ANALYSED_CHARS]).replace("\x00", " ") for text in texts]
    joined = _BETWEEN.join(("", *texts, ""))
    ends = list(itertools.accumulate(len(text) + len(_BETWEEN) for text in texts))
    counts = np.zeros((len(query.clauses), len(texts)))
    for row, clause in zip(counts, query.clauses, strict=True):
        exact, related = _find_clause(clause, joined)
        row[[bisect(ends, place) for place in related]] = RELATED
        np.maximum(row, np.bincount([bisect(ends, place) for place in exact], minlength=len(texts)), out=row)
    return counts


def _find_clause(clause: Clause, joined: str) -> tuple[list[int], list[int]]:
    """Find the places in folded texts where the clause stands, and where a related word does."""
    first = clause.tokens[0]
    word_at = _word().match
    is_word = _word().fullmatch(first) is not None
    if not is_word:
        surface = "".join((first, *(token[-1:] for token in clause.tokens[1:])))
        if all(map(_is_spaceless, clause.tokens)) or len(clause.tokens) == 1:
            return list(_places(surface, joined)), []
    exact: list[int] = []
    related: list[int] = []
    single, prefix = len(clause.tokens) == 1, clause.prefix
    like = first[:RELATED_CHARS] if len(first) >= RELATED_CHARS else None
    for at in _places(_stem_prefix(first, related=single), joined):
        if is_word and at and word_at(joined, at - 1, at):
            continue
        if not single:
            words = joined[at : at + _PHRASE_CHARS * len(clause.tokens)].split(_BETWEEN)[0]
            if tuple(stems(words)[: len(clause.tokens)]) == clause.tokens:
                exact.append(at)
            continue
        match = word_at(joined, at)
        word = match[0] if match else ""
        stem = _stem(word)
        if stem == first or (prefix and word.startswith(first)):
            exact.append(at)
        elif like is not None and stem[:RELATED_CHARS] == like:
            related.append(at)
    return exact, related


def _places(wanted: str, text: str) -> Iterator[int]:
    """Yield where `wanted` occurs in a text, without overlaps."""
    find, size = text.find, len(wanted)
    at = find(wanted)
    while at >= 0:
        yield at
        at = find(wanted, at + size)


def _stem_prefix(stem: str, *, related: bool) -> str:
    """Return how every word with this stem begins; a stem may end in an e or i that the word does not have."""
    start = stem[:RELATED_CHARS] if related else stem
    return start[:-1] if len(start) > 2 and start[-1] in "eiy" else start


@functools.lru_cache(maxsize=20_000)
def _stem(word: str) -> str:
    """Return the stem of a word; "" for no word."""
    found = stems(word)
    return found[0] if found else ""


@functools.cache
def _word() -> re.Pattern[str]:
    """Return the pattern of a word in a script with spaces, in folded text."""
    return re.compile(f"(?:(?![{SPACELESS}_])[\\w\u0300-\u036f\u0900-\u0dff])+")


def _is_spaceless(token: str) -> bool:
    """Return whether the token is a piece of a script without spaces."""
    return len(stems(token)) > 1 or (len(token) == 1 and not token.isascii() and stems(token) == [token])
