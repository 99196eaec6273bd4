"""Near-duplicates: of rows that say the same, one stays in the results."""

from __future__ import annotations

import functools
import re
import struct
import sys
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

__all__ = ["ALIKE", "thinned"]

ALIKE = 0.9
"""Two texts are near-duplicates when they share this part of their words; in real dialogue hardly any two do."""

COMPARED_CHARS = 2_000
SIGNS_KEPT = 16_384
SIGN_BITS = 128
PAIRED = 100  # so many texts are compared all with all; of more, each with those that share a telling word
FEWEST_WORDS = 8  # shorter texts must be equal: one word more is a tenth of them
_WORDS = re.compile(r"\w+")
_IN_WORDS = frozenset(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_")
_BITS = [1 << bit for bit in range(SIGN_BITS)]
_ASCII_WORDS = bytes(code if code in _IN_WORDS else ord(" ") for code in range(256)).lower()


def thinned(texts: Sequence[str], seqs: Sequence[int], *, limit: int) -> list[tuple[int, tuple[int, ...]]]:
    """Which of the ranked texts to show, at most `limit`, in their order, each with those that it stands for.

    Texts that are equal but for case, spaces and punctuation, or that share nearly all their words, count as one: it
    stands at the place of the best of them, and is the newest of those that are equal to it word for word.

    Args:
        texts: best first; more than `limit`, to fill the places of what is left out. Those behind the last that is
            shown are not looked at.
        seqs: their numbers, larger is newer.
    Returns: (index of the text, indexes of those left out for it), both into `texts`.
    """
    if limit <= PAIRED and not _any_alike(texts[:limit]):
        return [(index, ()) for index in range(min(limit, len(texts)))]
    shown: list[int] = []
    left_out: dict[int, list[int]] = {}
    by_words: dict[str, int] = {}
    sets: dict[int, frozenset[str]] = {}
    by_telling: dict[str, list[int]] = {}
    for index, text in enumerate(texts):
        if len(shown) >= limit:
            break
        told = _told(text[:COMPARED_CHARS])
        words, telling = told.words, told.telling
        key = words if len(text) <= COMPARED_CHARS else f"{words}\n{text}"
        first = by_words.get(key)
        if first is None and told.many:
            near = [at for word in telling if word in by_telling for at in by_telling[word]]
            first = min((at for at in near if _alike(told.distinct, sets[at])), default=None) if near else None
        if first is not None:
            left_out[first].append(index)
            continue
        by_words[key] = index
        sets[index] = told.distinct
        for word in telling:
            by_telling.setdefault(word, []).append(index)
        shown.append(index)
        left_out[index] = []
    return [_newest(index, left_out[index], texts, seqs) for index in shown]


def _any_alike(texts: Sequence[str]) -> bool:
    """Whether any two of the texts may be alike. Hardly ever any are, and all pairs are compared by signs sooner than a
    few texts by words: at most as many bits differ as words do."""
    if len(texts) < 2:
        return False
    if len(_signs) > SIGNS_KEPT:
        _signs.clear()
    keys = list(map(hash, texts))
    signs = list(map(_signs.get, keys))
    joined = b"".join([sign or _sign(key, text) for sign, key, text in zip(signs, keys, texts, strict=True)])
    bits, most = np.frombuffer(joined, np.uint64), np.frombuffer(joined, np.float64)[2::3]
    differing = np.bitwise_count(bits[::3] ^ bits[::3, None])
    differing += np.bitwise_count(bits[1::3] ^ bits[1::3, None])
    widest = min(int(2 * np.maximum.reduce(most)), SIGN_BITS)
    if np.count_nonzero(differing <= widest) == len(texts):  # each to itself
        return False
    return bool(np.count_nonzero(differing <= most + most[:, None]) > len(texts))


_signs: dict[int, bytes] = {}
"""Of texts that were met lately, by their hash: the same ones are found again and again. A bit for each distinct word,
some for several, and the text's part of how many words may differ."""


def _sign(key: int, text: str) -> bytes:
    distinct = set(_words(text[:COMPARED_CHARS]))
    bits = sum(map(_BITS.__getitem__, {hash(word) % SIGN_BITS for word in distinct}))
    most = len(distinct) * (1 - ALIKE) / (1 + ALIKE) + 0.01
    _signs[key] = sign = bits.to_bytes(SIGN_BITS // 8, sys.byteorder) + struct.pack("d", most)
    return sign


def _newest(
    index: int, others: Sequence[int], texts: Sequence[str], seqs: Sequence[int]
) -> tuple[int, tuple[int, ...]]:
    if not others:
        return index, ()
    words = _told(texts[index][:COMPARED_CHARS]).words
    equal = [at for at in others if _told(texts[at][:COMPARED_CHARS]).words == words]
    newest = max([index, *equal], key=lambda at: seqs[at])
    return newest, tuple(sorted(at for at in (index, *others) if at != newest))


def _alike(words: frozenset[str], others: frozenset[str]) -> bool:
    small, large = len(words), len(others)
    if small > large:
        small, large = large, small
    if small < ALIKE * large:
        return False
    shared = len(words & others)
    if shared < ALIKE * (small + large - shared):
        return False
    return not any(map(_has_digit, words ^ others))  # "invoice 17 is paid" and "invoice 18 is paid" are two memories


def _has_digit(word: str) -> bool:
    return any(map(str.isdigit, word))


@dataclass(frozen=True, slots=True, eq=False)
class _Told:
    """What is compared of a text.

    Args:
        words: all of them in order, one string; many: enough to compare them one by one.
        telling: those of which two texts that are alike share one.
    """

    words: str
    many: bool
    distinct: frozenset[str]
    telling: tuple[str, ...]


@functools.lru_cache(maxsize=4_096)
def _told(text: str) -> _Told:
    """The telling words are the last in an order that is the same for all texts, here by length, one more than a text
    that is like this one may lack. Long words are rare, so few texts are compared.

    Source: prefix filtering after Chaudhuri, Ganti and Kaushik, ICDE 2006.
    """
    words = _words(text)
    distinct = frozenset(words)
    ordered = sorted(sorted(distinct), key=len)
    telling = tuple(ordered[max(0, int(ALIKE * len(ordered)) - 1) :])
    return _Told(" ".join(words), len(words) >= FEWEST_WORDS, distinct, telling)


def _words(text: str) -> list[str]:
    return text.encode().translate(_ASCII_WORDS).decode().split() if text.isascii() else _WORDS.findall(text.casefold())
