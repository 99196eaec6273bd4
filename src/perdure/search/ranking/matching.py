"""How often the words of a query stand in texts, without taking the texts apart.

Splitting and stemming the 400 candidates of a search costs 10 to 40 ms, more than all else together. So each word is
looked for as it may be written, and only what is found there is stemmed.
"""

from __future__ import annotations

import functools
import re
from bisect import bisect
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from perdure.core.text.words import SPACELESS, Clause, Query, folded, stems
from perdure.search.ranking.ascii_words import AsciiWords

if TYPE_CHECKING:
    from perdure.search.ranking.pool import Column

__all__ = ["ANALYSED_CHARS", "RELATED", "clause_counts"]

ANALYSED_CHARS = 20_000
"""A text is searched by its beginning: a long one is found by any of its words, but must not cost seconds."""

RELATED = 0.35
"""What a word counts that begins like the one asked for ("community" and "communal"): +0.7 R@10."""

RELATED_CHARS = 5
_BETWEEN = "\n\x00\n"  # stands in no folded text, so nothing is found across two of them
_PHRASE_CHARS = 40


def clause_counts(query: Query, texts: Sequence[str]) -> Column:
    """(clauses, texts) how often each clause stands in each text; `RELATED` where only a related word does."""
    rows = len(texts)
    size = len(query.clauses) * rows
    if max(map(len, texts), default=0) > ANALYSED_CHARS:
        texts = [text[:ANALYSED_CHARS] for text in texts]
    exact: list[int] = []  # by clause and text
    related: list[int] = []
    ascii_words: AsciiWords | None = None
    joined: _Folded | None = None
    for number, clause in enumerate(query.clauses):
        if _is_ascii_word(clause):
            ascii_words = ascii_words or AsciiWords(texts)
            _find_ascii(clause, ascii_words, number * rows, exact, related)
        else:
            joined = joined or _Folded(texts)
            found, like = _found(clause, joined.text)
            exact += [number * rows + bisect(joined.ends, at) for at in found]
            related += [number * rows + bisect(joined.ends, at) for at in like]
    counts = np.zeros(size)
    if related:
        counts[related] = RELATED
    if exact:
        np.maximum(counts, np.bincount(exact, minlength=size), out=counts)
    return counts.reshape(len(query.clauses), rows)


class _Folded:
    """Texts as one, folded, each between two of `_BETWEEN`; `ends`: where each of them ends in it."""

    def __init__(self, texts: Sequence[str]) -> None:
        texts = [folded(text).replace("\x00", " ") for text in texts]
        self.text = _BETWEEN.join(("", *texts, ""))
        self.ends: list[int] = []
        end = 0
        for text in texts:
            end += len(_BETWEEN) + len(text)
            self.ends.append(end)


def _is_ascii_word(clause: Clause) -> bool:
    tokens = clause.tokens
    return len(tokens) == 1 and tokens[0].isascii() and tokens[0].isalnum()


def _find_ascii(clause: Clause, words: AsciiWords, first: int, exact: list[int], related: list[int]) -> None:
    """Add to `exact` the number of its text, after `first`, for each place where the clause stands, which is one ASCII
    word; to `related` where a related word does."""
    token, prefix = clause.tokens[0], clause.prefix
    like = token[:RELATED_CHARS] if len(token) >= RELATED_CHARS else None
    start = _beginning(token, related=True)
    into: dict[str, list[int] | None] = {}  # most of the words found are the same few
    spaced, ends, find = words.spaced, words.ends, words.spaced.find
    for at in words.beginning(start):
        word = spaced[at + 1 : find(" ", at + 1)]
        if word in into:
            places = into[word]
        else:
            places, stem = None, _stem(word) if word.startswith(start) else ""
            if stem == token or (prefix and word.startswith(token)):
                places = exact
            elif like is not None and stem[:RELATED_CHARS] == like:
                places = related
            into[word] = places
        if places is not None:
            places.append(first + bisect(ends, at))


def _found(clause: Clause, joined: str) -> tuple[list[int], list[int]]:
    """(where the clause stands, where a related word does) of any other clause, in folded texts."""
    first = clause.tokens[0]
    word_at = _word().match
    a_word = _word().fullmatch(first) is not None
    if not a_word:
        surface = "".join((first, *(token[-1:] for token in clause.tokens[1:])))
        if all(map(_spaceless, clause.tokens)) or len(clause.tokens) == 1:
            return list(_places(surface, joined)), []
    exact: list[int] = []
    related: list[int] = []
    single, prefix = len(clause.tokens) == 1, clause.prefix
    like = first[:RELATED_CHARS] if len(first) >= RELATED_CHARS else None
    for at in _places(_beginning(first, related=single), joined):
        if a_word and at and word_at(joined, at - 1):
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
    find, size = text.find, len(wanted)
    at = find(wanted)
    while at >= 0:
        yield at
        at = find(wanted, at + size)


def _beginning(stem: str, *, related: bool) -> str:
    """How every word with this stem begins; a stem may end in an e or i that the word does not have."""
    start = stem[:RELATED_CHARS] if related else stem
    return start[:-1] if len(start) > 2 and start[-1] in "eiy" else start


@functools.lru_cache(maxsize=20_000)
def _stem(word: str) -> str:
    found = stems(word)
    return found[0] if found else ""


@functools.cache
def _word() -> re.Pattern[str]:
    """A word of a script with spaces, in folded text."""
    return re.compile(f"(?:(?![{SPACELESS}_])[\\w\u0300-\u036f\u0900-\u0dff])+")


def _spaceless(token: str) -> bool:
    """Whether the token is a piece of a script without spaces, which its own tokens show."""
    return len(stems(token)) > 1 or (len(token) == 1 and not token.isascii() and stems(token) == [token])
