"""Excerpts: the part of a long text with most of the query's words."""

from __future__ import annotations

import re
from collections import Counter

from perdure.core.text.forms import lower_in_place
from perdure.core.text.words import parse_query

TERM_MATCHES = 64  # of one term in one text
_BOUNDARY = re.compile(r"\n|(?<=[.!?])\s|[。！？]")
_SPACE = re.compile(r"\s")


def terms_of(query: str) -> tuple[str, ...]:
    """Return the terms to find in lower-case text: stems of words, pairs of characters of scripts without spaces."""
    terms = dict.fromkeys(token for clause in parse_query(query).clauses for token in clause.tokens)
    # "happy" has the stem "happi", and stands in the text with its y.
    return tuple(term[:-1] if term.endswith("i") and len(term) > 3 else term for term in terms)


def excerpt(text: str, terms: tuple[str, ...], *, chars: int) -> tuple[int, int]:
    """Return (first, last) of at most `chars` characters of `text`, `last` not included, with most of the terms.

    The excerpt begins and ends with a line or sentence where one is near. Without any term it is the beginning of the
    text. The time is linear in the text, for each term.
    """
    size = len(text)
    if size <= chars:
        return 0, size
    if chars <= 0:
        return 0, 0
    begin, end = _sentences(text, *_densest(text, terms, chars), chars)
    first = max(0, min(begin - max(0, chars - (end - begin)) // 3, size - chars))
    last = min(size, first + chars)
    if first > 0:
        first = _after(text, first, min(begin, last - 1))
    if last < size:
        last = max(first + 1, _before(text, max(end, first + 1), last))
    while first < last - 1 and text[first].isspace():
        first += 1
    return first, last


def _densest(text: str, terms: tuple[str, ...], chars: int) -> tuple[int, int]:
    """Return the first stretch of at most `chars` characters with the most different terms."""
    lower = lower_in_place(text)
    matches: list[tuple[int, str]] = []
    for term in terms:
        at = -1
        for _ in range(TERM_MATCHES):
            at = lower.find(term, at + 1)
            if at < 0:
                break
            matches.append((at, term))
    matches.sort()
    best, stretch = (0, 0), (0, 0)
    inside: Counter[str] = Counter()
    left = 0
    for index, (at, term) in enumerate(matches):
        inside[term] += 1
        while at + len(term) - matches[left][0] > chars and left < index:
            dropped_term = matches[left][1]
            inside[dropped_term] -= 1
            if not inside[dropped_term]:
                del inside[dropped_term]
            left += 1
        rank = (len(inside), index - left + 1)
        if rank > best:
            best, stretch = rank, (matches[left][0], min(at + len(term), matches[left][0] + chars))
    return stretch


def _sentences(text: str, begin: int, end: int, chars: int) -> tuple[int, int]:
    """Extend a stretch to whole sentences, where that is not too long."""
    first = max(0, end - chars)
    for boundary in _BOUNDARY.finditer(text, first, begin):
        first = boundary.end()
    if first > 0 and _BOUNDARY.match(text, first - 1) is None:
        first = begin
    end_boundary = _BOUNDARY.search(text, max(begin, end - 1), min(len(text), first + chars))
    if end_boundary:
        return first, end_boundary.end()
    return first, len(text) if len(text) <= first + chars else end


def _after(text: str, first: int, latest: int) -> int:
    """Return the first beginning of a line, a sentence or else a word from `first` to `latest`."""
    for boundary in (_BOUNDARY, _SPACE):
        if match := boundary.search(text, first - 1, latest):
            return match.end()
    return first


def _before(text: str, earliest: int, last: int) -> int:
    """Return the last end of a line, a sentence or else a word from `earliest` to `last`.

    The character before `earliest` may be such an end.
    """
    for boundary in (_BOUNDARY, _SPACE):
        end = None
        for match in boundary.finditer(text, max(earliest - 1, last - 2_000), last):
            end = match
        if end is not None:
            return end.end() if boundary is _BOUNDARY and not end[0].isspace() else end.start()
    return last
