"""Near-duplicates: one of several equal texts stays in the results."""

from __future__ import annotations

import re
from collections.abc import Sequence

ALIKE = 0.9
"""Two texts are near-duplicates when they share this part of their words; in real dialogue hardly any two do."""

COMPARED_CHARS = 2_000
SMALL_PAGE = 20  # so many texts are compared all with all; in longer pages, each with those that share a rare word
FEWEST_WORDS = 8  # shorter texts must be equal: one word more is a tenth of them
_WORDS = re.compile(r"\w+")
_DIGIT = re.compile(r"\d")


def merge_duplicates(texts: Sequence[str], seqs: Sequence[int], *, limit: int) -> list[tuple[int, tuple[int, ...]]]:
    """Select which of the ranked texts to show, at most `limit`, with the duplicates that each stands for.

    Texts are duplicates if they are equal but for case, spaces and punctuation, or share nearly all their words. A
    group stands at the place of its best text, and shows the newest of those that equal it word for word.

    Args:
        texts: best first; more than `limit`, to fill the places of duplicates.
        seqs: their numbers, larger is newer.
    Returns: (index of the text, indexes of its duplicates), both into `texts`.
    """
    same_as: dict[int, list[int]] = {}
    words_of: dict[int, str] = {}
    sets: dict[int, frozenset[str]] = {}
    by_words: dict[str, int] = {}
    by_rare_word: dict[str, list[int]] = {}
    for index, text in enumerate(texts):
        if len(same_as) >= limit:
            break
        found = _WORDS.findall(text[:COMPARED_CHARS].casefold())
        words = " ".join(found)
        distinct = frozenset(found)
        words_of[index] = words
        key = words if len(text) <= COMPARED_CHARS else f"{words}\n{text}"
        rare = _rare_words(distinct) if limit > SMALL_PAGE else []
        best = by_words.get(key)
        if best is None and len(found) >= FEWEST_WORDS:
            near = {other for word in rare for other in by_rare_word.get(word, ())} if limit > SMALL_PAGE else sets
            best = min((other for other in near if _are_alike(distinct, sets[other])), default=None)
        if best is not None:
            same_as[best].append(index)
            continue
        same_as[index] = []
        sets[index] = distinct
        by_words[key] = index
        for word in rare:
            by_rare_word.setdefault(word, []).append(index)
    return [_newest(index, others, words_of, seqs) for index, others in same_as.items()]


def _newest(
    index: int, others: Sequence[int], words_of: dict[int, str], seqs: Sequence[int]
) -> tuple[int, tuple[int, ...]]:
    """Choose the newest of the texts that are equal word for word, and list the rest of the group."""
    newest = max((at for at in (index, *others) if words_of[at] == words_of[index]), key=lambda at: seqs[at])
    return newest, tuple(at for at in (index, *others) if at != newest)


def _are_alike(words: frozenset[str], others: frozenset[str]) -> bool:
    """Return whether two texts share nearly all their words, and all their numbers."""
    small, large = len(words), len(others)
    if small > large:
        small, large = large, small
    if small < ALIKE * large:
        return False
    shared = len(words & others)
    if shared < ALIKE * (small + large - shared):
        return False
    return not any(map(_DIGIT.search, words ^ others))  # "invoice 17 is paid" and "invoice 18 is paid" are two memories


def _rare_words(distinct: frozenset[str]) -> list[str]:
    """Return the longest words of a text: any text that is alike shares one of them.

    Long words are rare, so few texts need a comparison.

    Source: prefix filtering after Chaudhuri, Ganti and Kaushik, ICDE 2006.
    """
    ordered = sorted(distinct, key=lambda word: (len(word), word))
    return ordered[max(0, int(ALIKE * len(ordered)) - 1) :]
