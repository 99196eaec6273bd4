"""The one form of a text in which names, keys and matches are compared, and lower case that keeps places.

Texts are stored as they were written: macOS, Korean and Vietnamese keyboards write a letter and its mark apart (NFD),
others as one character (NFC); Turkish has an I with a dot and one without; Japanese keyboards write wide letters.
"""

from __future__ import annotations

import functools
import re
import unicodedata
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Any, TypeVar, cast

T = TypeVar("T")
Kind = TypeVar("Kind", bound=type[Any])

MARKS_MAX = 4
"""Of a letter with at most so many marks all ways of writing it are tried: no language has more."""

_USUAL = {
    code: usual
    for code in (0x3000, *range(0xFF01, 0xFFEF))
    if len(usual := unicodedata.normalize("NFKC", chr(code))) == 1
}
"""A character of another width, such as wide Latin or half-width katakana -> as it is usually written."""
_OF_ANOTHER_WIDTH = re.compile("[\u3000\uff01-\uffee]")
_ESCAPED = re.compile(r"(?<!\\)\\+u(ff[0-9a-e][0-9a-f])", re.IGNORECASE)


def name_form(value: T) -> T:
    """Return a name, tag, label or key in the form in which it is stored and looked up (NFC). In a list or mapping each
    text is changed; any other value is returned as it is."""
    found: Any = value
    if isinstance(value, str):
        found = value if value.isascii() else unicodedata.normalize("NFC", value)
    elif isinstance(value, Mapping):
        found = {name_form(key): name_form(one) for key, one in value.items()}
    elif isinstance(value, list | tuple | set | frozenset):
        found = type(value)(map(name_form, value))
    return cast(T, found)


def in_name_form(*names: str) -> Callable[[Kind], Kind]:
    """Return a decorator, for use below `dataclass`, that puts these fields of every new object into `name_form`."""

    def settle(self: Any) -> None:
        """Put the named fields of a new object into `name_form`; the object may be frozen."""
        for name in names:
            object.__setattr__(self, name, name_form(getattr(self, name)))

    def decorate(kind: Kind) -> Kind:
        """Have new objects of a dataclass settled."""
        kind.__post_init__ = settle
        return kind

    return decorate


def plain_form(text: str) -> str:
    """Return a text without what nobody sees, such as joiners of width zero, and with letters of the usual width."""
    if text.isascii():
        return text
    return "".join(one for one in unicodedata.normalize("NFKC", text) if unicodedata.category(one) != "Cf")


def match_form(text: str) -> str:
    """Return the form of a text for comparisons: letter case, width, and how marks are written don't count."""
    if text.isascii():
        return text.lower()
    folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())
    return folded.replace("i̇", "i").replace("ı", "i")


def name_key(name: str) -> str:
    """Return the form of a name in which entities are looked up: `match_form` with single spaces between words."""
    return match_form(" ".join(name.split()))


def lower_in_place(text: str) -> str:
    """Return the text in lower case with the same length; `str.lower` alone makes two characters of `İ`."""
    return text.replace("İ", "i").lower()


def in_usual_width(text: str) -> tuple[str, Callable[[int], int]]:
    """Return (the text with letters in their usual width, a function from an index in that to the index in `text`).

    Letters that are escaped in JSON change too, so the two texts may differ in length.
    """
    if text.isascii() and "\\u" not in text:
        return text, int
    usual = text.translate(_USUAL) if _OF_ANOTHER_WIDTH.search(text) else text
    pieces, places, shifts, at = list[str](), [0], [0], 0
    for match in _ESCAPED.finditer(usual):
        char = chr(int(match[1], 16)).translate(_USUAL)
        pieces += [usual[at : match.start()], char]
        at = match.end()
        places.append(at - shifts[-1] - len(match[0]) + 1)
        shifts.append(shifts[-1] + len(match[0]) - 1)
    if not pieces:
        return usual, int
    return "".join(pieces) + usual[at:], lambda place: place + shifts[bisect_right(places, place) - 1]


def same_letters(cluster: str) -> tuple[str, ...]:
    """Return the ways to write `cluster`, a letter with marks: as one character, several, partly so, in both cases."""
    apart = unicodedata.normalize("NFD", cluster)
    lower = apart.lower()
    written = (apart, apart.upper(), lower, lower.replace("σ", "ς"), lower.replace("ς", "σ"), lower.replace("ß", "ẞ"))
    cases = tuple(dict.fromkeys(unicodedata.normalize("NFD", one) for one in written))
    if len(apart) > 1 + MARKS_MAX:
        return tuple(dict.fromkeys((cluster, *cases, *(unicodedata.normalize("NFC", one) for one in cases))))
    ways = {cluster: None}
    for letters in cases:
        orders = [letters, *(letters[0] + letters[:0:-1] for _ in range(len(letters) == 3))]
        for order in orders:  # of two marks either may come first, if they stand in different places
            if unicodedata.normalize("NFD", order) == letters:
                for end in range(1, len(order) + 1):
                    others = order[end:]
                    ways[unicodedata.normalize("NFC", order[:end]) + others] = None
                    ways |= dict.fromkeys(char + others for char in _uncomposed_letters().get(order[:end], ""))
    return tuple(ways)


@functools.cache
def _uncomposed_letters() -> Mapping[str, str]:
    """Return letters apart (NFD) -> the characters for them that no normal form makes, such as Hindi ढ़, Hebrew שׁ."""
    found = defaultdict[str, str](str)
    for code in (*range(0x340, 0xFB50), *range(0x2F800, 0x2FA1E)):
        if unicodedata.normalize("NFC", char := chr(code)) != char:
            found[unicodedata.normalize("NFD", char)] += char
    return found


def clusters(text: str) -> list[str]:
    """Return the letters of a text (NFC) in order, each with the marks behind it."""
    found: list[str] = []
    for char in unicodedata.normalize("NFC", text):
        if found and (unicodedata.combining(char) or found[-1] + char in _uncomposed_letters()):
            found[-1] += char
        else:
            found.append(char)
    return found
