"""Ranking: candidates of a full-text search, scored within their own scope."""

from __future__ import annotations

import math
from collections.abc import Sequence

from perdure.core.text import Clause, Query, stems

__all__ = ["bm25"]

K1 = 1.2
B = 0.75
ANALYSED_CHARS = 20_000
"""A candidate's text is scored by its beginning: a long one is found by any of its words, but must not cost seconds."""


def bm25(query: Query, texts: Sequence[str], *, scope_size: int) -> list[float]:
    """One score for each text, higher is better; 0 for a text in which no clause occurs.

    The database's own rank knows the statistics of the whole file, so that one agent's words would weigh by how often
    others use them. Here they are taken from the candidates and the size of their scope.

    Args:
        texts: the candidates, all those that match or the best of them.
        scope_size: how many texts the scope holds.
    Source: Robertson and Walker, SIGIR 1994; k1 and b as in SQLite's FTS5.
    """
    if not texts or not query.clauses:
        return [0.0] * len(texts)
    tokens = [stems(text[:ANALYSED_CHARS]) for text in texts]
    average = sum(map(len, tokens)) / len(tokens) or 1.0
    counts = [[_occurrences(clause, words) for words in tokens] for clause in query.clauses]
    scores = [0.0] * len(texts)
    for clause_counts in counts:
        frequency = sum(count > 0 for count in clause_counts)
        size = max(scope_size, frequency)
        weight = math.log(1 + (size - frequency + 0.5) / (frequency + 0.5))
        for index, count in enumerate(clause_counts):
            if count:
                length = 1 - B + B * len(tokens[index]) / average
                scores[index] += weight * count * (K1 + 1) / (count + K1 * length)
    return scores


def _occurrences(clause: Clause, words: Sequence[str]) -> int:
    wanted = list(clause.tokens)
    if len(wanted) == 1:
        token = wanted[0]
        return sum(word.startswith(token) for word in words) if clause.prefix else words.count(token)
    size = len(wanted)
    first = wanted[0]
    return sum(
        words[at : at + size] == wanted for at, word in enumerate(words[: len(words) - size + 1]) if word == first
    )
