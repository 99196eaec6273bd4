"""ASCII words in many texts, found by a space and their first three letters, in all texts at once."""

from __future__ import annotations

import functools
import itertools
import re
from collections.abc import Sequence

import numpy as np

from perdure.core.text.words import SPACELESS, folded

__all__ = ["AsciiWords"]

_BETWEEN = " \n "
_ASCII = bytes(range(128))
_LETTER = "\xf8"  # stands for every letter that folding leaves without an ASCII one; "\xf8" is one itself
# Lower case, and spaces for all that is in no word.
_SPACED = bytes(
    ord(chr(byte).lower()) if chr(byte) == _LETTER or (byte < 128 and chr(byte).isalnum()) else 32
    for byte in range(256)
)
_SIGNS = frozenset(
    "\u2018\u2019\u201c\u201d\u2013\u2014\u2026\u2764\ufe0f" + "".join(map(chr, range(0x1F600, 0x1F650)))
)


class AsciiWords:
    """Texts in which words of ASCII letters and digits are looked for, however those are written.

    Attributes:
        spaced: all the texts, in lower case, with spaces for all that is in no word.
        ends: where each text ends in it.
    """

    def __init__(self, texts: Sequence[str]) -> None:
        texts = _latin(texts)
        between = len(_BETWEEN)
        self.ends = list(itertools.accumulate([many + between for many in map(len, texts)]))
        spaced = _BETWEEN.join(("", *texts, "")).encode("latin-1").translate(_SPACED)
        self.spaced = spaced.decode("latin-1")
        # Four characters from each place on, as one number. To compare all of them takes a quarter of a `find`.
        self._fours = np.ndarray(len(spaced) - 3, "<u4", spaced, strides=(1,)).copy()

    def beginning(self, start: str) -> list[int]:
        """The places of the spaces before all words that begin with the first three letters of `start`, in order."""
        wanted, fours = f" {start[:3]}".encode(), self._fours
        if len(wanted) < 4:
            fours = fours & (1 << 8 * len(wanted)) - 1
        places: list[int] = (fours == int.from_bytes(wanted, "little")).nonzero()[0].tolist()
        return places


def _latin(texts: Sequence[str]) -> Sequence[str]:
    """The texts as far as ASCII words go: every character is an ASCII one, `_LETTER`, or no letter."""
    others = [text for text in texts if not text.isascii()]
    if not others:
        return texts
    # Most often a curly apostrophe or an emoji; to look for letters, and to fold them, takes ten times as long.
    signs = "".join(others).encode("utf-8", "replace").translate(None, _ASCII).decode()
    if _SIGNS.issuperset(signs) or not _folding().search(signs):
        return [text if text.isascii() else text.encode("ascii", "replace").decode() for text in texts]
    return [text if text.isascii() else _folded_latin(text) for text in texts]


def _folded_latin(text: str) -> str:
    return _letters().sub(_LETTER, folded(text)).encode("latin-1", "replace").decode("latin-1")


@functools.cache
def _folding() -> re.Pattern[str]:
    """A character that is, or folds to, an ASCII one or a letter beside it: all but ASCII, quotes, dashes, emoji,
    scripts without spaces and their punctuation."""
    signs = "\u2010-\u2016\u2018-\u2027\u2600-\u2775\U0001f300-\U0001faff\ufe0f\u200d"
    wide = "\u3000-\u3003\u3008-\u3011\uff01-\uff0f\uff1a-\uff20\uff3b-\uff40\uff5b-\uff65"
    return re.compile(f"[^\x00-\x7f{signs}{wide}{SPACELESS}]")


@functools.cache
def _letters() -> re.Pattern[str]:
    return re.compile(f"(?![{SPACELESS}\x00-\x7f])[\\w\u0300-\u036f\u0900-\u0dff]")
