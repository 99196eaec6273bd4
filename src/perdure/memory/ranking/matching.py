"""How often the words of a query stand in texts, without taking the texts apart.

Splitting and stemming the 400 candidates of a search costs 10 to 40 ms, more than all else together. So each word is
looked for as it may be written, and only what is found there is stemmed.
"""

from __future__ import annotations

import functools
import itertools
import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

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
    import numpy as np

    counts = np.zeros((len(query.clauses), len(texts)))
    if not texts:
        return counts
    single = [_is_ascii_word(clause) for clause in query.clauses]
    joined, spaced, starts = _joined([text[:ANALYSED_CHARS] for text in texts], words_only=all(single))
    lowered = "" if spaced else joined
    exact: list[int] = []
    related: list[int] = []
    of_exact: list[int] = []
    of_related: list[int] = []
    for number, clause in enumerate(query.clauses):
        if spaced and single[number]:
            found, like = _found_spaced(clause, spaced)
        else:
            lowered = lowered or joined.lower()
            found, like = _found(clause, lowered)
        exact += found
        related += like
        of_exact += [number] * len(found)
        of_related += [number] * len(like)
    begins = np.array(starts)
    if related:
        counts[of_related, np.searchsorted(begins, related, "right") - 1] = RELATED
    if exact:
        at = np.array(of_exact) * len(texts) + np.searchsorted(begins, exact, "right") - 1
        often = np.bincount(at, minlength=counts.size).reshape(counts.shape)
        np.copyto(counts, often, where=often > 0)
    return counts


def _is_ascii_word(clause: Clause) -> bool:
    return len(clause.tokens) == 1 and clause.tokens[0].isascii() and clause.tokens[0].isalnum()


def _joined(texts: Sequence[str], *, words_only: bool) -> tuple[str, str, list[int]]:
    """The folded texts as one; if they are ASCII, as they are, and their words alone, in lower case, each between
    spaces and one place behind where it stands there; and where each text begins.

    Args:
        words_only: only ASCII words are looked for, so signs that are not ASCII need not stay.
    """
    joined, spaced = _BETWEEN.join(texts), ""
    if words_only and not joined.isascii():
        texts = list(map(_without_signs, texts))
        joined = _BETWEEN.join(texts)
    if joined.isascii() and joined.count("\x00") == len(texts) - 1:  # folding each by itself takes ten times as long
        parts, spaced = texts, f" {joined} ".encode().translate(_SPACED).decode()
    else:
        parts = [folded(text).replace("\x00", " ") for text in texts]
        joined = _BETWEEN.join(parts)
    return joined, spaced, list(itertools.accumulate([len(part) + len(_BETWEEN) for part in parts[:-1]], initial=0))


def _without_signs(text: str) -> str:
    """The text with a question mark for each sign that is not ASCII, if it has nothing else that is not.

    One curly apostrophe in 400 texts would otherwise make all of them take half as long again.
    """
    if text.isascii() or _NO_SIGN.search(text):
        return text
    return text.encode("ascii", "replace").decode()


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


def _found_spaced(clause: Clause, spaced: str) -> tuple[list[int], list[int]]:
    """The same of a clause of one ASCII word."""
    token, prefix = clause.tokens[0], clause.prefix
    like = token[:RELATED_CHARS] if len(token) >= RELATED_CHARS else None
    wanted = f" {_beginning(token, related=True)}"
    exact: list[int] = []
    related: list[int] = []
    find, size = spaced.find, len(wanted)
    at = find(wanted)
    while at >= 0:
        end = find(" ", at + size)
        word = spaced[at + 1 : end]
        stem = _stem(word)
        if stem == token or (prefix and word.startswith(token)):
            exact.append(at)
        elif like is not None and stem[:RELATED_CHARS] == like:
            related.append(at)
        at = find(wanted, end)
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
