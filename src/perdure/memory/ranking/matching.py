"""How often the words of a query stand in texts, without taking the texts apart.

Splitting and stemming the 400 candidates of a search costs 10 to 40 ms, more than all else together. So each word is
looked for as it may be written, and only what is found there is stemmed.
"""

from __future__ import annotations

import bisect
import functools
import itertools
import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from perdure.core.text import Clause, Query, folded, stems

if TYPE_CHECKING:
    from perdure.memory.ranking.pool import Column

__all__ = ["ANALYSED_CHARS", "RELATED", "clause_counts"]

ANALYSED_CHARS = 20_000
"""A text is searched by its beginning: a long one is found by any of its words, but must not cost seconds."""

RELATED = 0.35
"""What a word counts that begins like the one asked for ("community" and "communal"): +0.7 R@10."""

RELATED_CHARS = 5
_BETWEEN = "\n\x00\n"  # stands in no folded text, so nothing is found across two of them
_WORD = re.compile("(?!_)\\w(?:(?!_)[\\w\u0300-\u036f\u0900-\u0dff])*")
_PHRASE_CHARS = 40
# Quotes, dashes and emoji: they end a word, and folding makes no letter of them. All but these and ASCII:
_NO_SIGN = re.compile("[^\x00-\x7f\u2010-\u2016\u2018-\u2027\u2600-\u2775\U0001f300-\U0001faff\ufe0f\u200d]")
# Lower case, and spaces where `_WORD` finds nothing.
_SPACED = bytes(ord(chr(byte).lower()) if byte < 128 and chr(byte).isalnum() else 32 for byte in range(256))


def clause_counts(query: Query, texts: Sequence[str]) -> Column:
    """(clauses, texts) how often each clause stands in each text; `RELATED` where only a related word does."""
    rows = len(texts)
    size = len(query.clauses) * rows
    exact: list[int] = []  # by clause and text
    related: list[int] = []
    single = [_is_ascii_word(clause) for clause in query.clauses]
    joined = _Joined(texts, words_only=all(single))
    ends = joined.ends
    for number, clause in enumerate(query.clauses):
        first = number * rows
        if single[number] and joined.spaced:
            found, like = _found_spaced(clause, joined)
        else:
            found, like = _found(clause, joined.lowered)
        exact += [first + bisect.bisect(ends, at) for at in found]
        related += [first + bisect.bisect(ends, at) for at in like]
    counts = np.zeros(size)
    if related:
        counts[related] = RELATED
    if exact:
        np.maximum(counts, np.bincount(exact, minlength=size), out=counts)
    return counts.reshape(len(query.clauses), rows)


def _is_ascii_word(clause: Clause) -> bool:
    return len(clause.tokens) == 1 and clause.tokens[0].isascii() and clause.tokens[0].isalnum()


class _Joined:
    """Texts as one, each between two of `_BETWEEN`.

    Attributes:
        spaced: their words alone, in lower case, each between spaces; empty if they must be folded to be compared.
        lowered: the folded texts; empty if only `spaced` is looked into.
        ends: where each text ends in both; a word begins in `spaced` one place behind its space, as in `lowered`.
    """

    def __init__(self, texts: Sequence[str], *, words_only: bool) -> None:
        self.spaced = self.lowered = ""
        chars = list(map(len, texts))
        if max(chars, default=0) > ANALYSED_CHARS:
            texts = [text[:ANALYSED_CHARS] for text in texts]
            chars = list(map(len, texts))
        signs = [text for text in texts if not text.isascii()]
        if signs and words_only and not _NO_SIGN.search("".join(signs)):
            # One curly apostrophe in 400 texts would otherwise make all of them take half as long again.
            texts = [text if text.isascii() else text.encode("ascii", "replace").decode() for text in texts]
            signs = []
        if not signs:  # folding each by itself takes ten times as long
            spaced = _BETWEEN.join(("", *texts, "")).encode().translate(_SPACED)
            self.spaced = spaced.decode()
            # Four characters from each place on, as one number. To compare all of them takes a quarter of a `find`.
            self._fours = np.ndarray(len(spaced) - 3, "<u4", spaced, strides=(1,)).copy()
        if signs or not words_only:
            texts = [folded(text).replace("\x00", " ") for text in texts]
            self.lowered = _BETWEEN.join(("", *texts, ""))
            chars = list(map(len, texts))
        between = len(_BETWEEN)
        self.ends = list(itertools.accumulate([many + between for many in chars]))

    def beginning(self, start: str) -> list[int]:
        """The places in `spaced` of the spaces before words that begin with `start`, letters or digits."""
        wanted, fours = f" {start}".encode(), self._fours
        if len(wanted) < 4:
            fours = fours & (1 << 8 * len(wanted)) - 1
        places: list[int] = (fours == int.from_bytes(wanted[:4], "little")).nonzero()[0].tolist()
        if len(wanted) <= 4:
            return places
        begins = self.spaced.startswith
        return [at for at in places if begins(start, at + 1)]


def _found(clause: Clause, joined: str) -> tuple[list[int], list[int]]:
    """Where the clause stands, and where a related word does."""
    first = clause.tokens[0]
    if not _WORD.fullmatch(first) or _spaceless(first):
        surface = "".join((first, *(token[-1:] for token in clause.tokens[1:])))
        if all(map(_spaceless, clause.tokens)) or len(clause.tokens) == 1:
            return list(_places(surface, joined)), []
    exact: list[int] = []
    related: list[int] = []
    single, prefix = len(clause.tokens) == 1, clause.prefix
    like = first[:RELATED_CHARS] if len(first) >= RELATED_CHARS else None
    word_at = _WORD.match
    for at in _places(_beginning(first, related=single), joined):
        if at and joined[at - 1].isalnum():
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


def _found_spaced(clause: Clause, joined: _Joined) -> tuple[list[int], list[int]]:
    """The same of a clause of one ASCII word."""
    spaced = joined.spaced
    token, prefix = clause.tokens[0], clause.prefix
    like = token[:RELATED_CHARS] if len(token) >= RELATED_CHARS else None
    exact: list[int] = []
    related: list[int] = []
    find = spaced.find
    for at in joined.beginning(_beginning(token, related=True)):
        word = spaced[at + 1 : find(" ", at + 1)]
        stem = _stem(word)
        if stem == token or (prefix and word.startswith(token)):
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


def _spaceless(token: str) -> bool:
    """Whether the token is a piece of a script without spaces, which its own tokens show."""
    return len(stems(token)) > 1 or (len(token) == 1 and not token.isascii() and stems(token) == [token])
