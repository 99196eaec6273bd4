"""The one form of a text in which names, keys and matches are compared, and lower case that keeps places.

Texts are stored as they were written: macOS, Korean and Vietnamese keyboards write a letter and its mark apart (NFD),
others as one character (NFC); Turkish has an I with a dot and one without; Japanese keyboards write wide letters.
"""

from __future__ import annotations

import unicodedata

MARKS_MAX = 4
"""Of a letter with at most so many marks all ways of writing it are tried: no language has more."""


def match_form(text: str) -> str:
    """The form of a text in which it is compared: letter case, width, and how marks are written don't count."""
    if text.isascii():
        return text.lower()
    folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())
    return folded.replace("i̇", "i").replace("ı", "i")


def name_key(name: str) -> str:
    """The form of a name in which entities are looked up: as `match_form`, and spaces don't count."""
    return match_form(" ".join(name.split()))


def lower_in_place(text: str) -> str:
    """The text in lower case with each character in its place; `str.lower` makes two of `İ`."""
    return text.replace("İ", "i").lower()


def same_letters(cluster: str) -> tuple[str, ...]:
    """The ways in which a letter with its marks is written: in one character, in several, or partly so; in both cases.

    Args:
        cluster: one letter and what belongs to it, as `clusters` returns them.
    """
    apart = unicodedata.normalize("NFD", cluster)
    cases = (apart, unicodedata.normalize("NFD", apart.upper()), unicodedata.normalize("NFD", apart.lower()))
    if len(apart) > 1 + MARKS_MAX:
        return tuple(dict.fromkeys((cluster, *cases, *(unicodedata.normalize("NFC", one) for one in cases))))
    ways = {cluster: None}
    for letters in cases:
        orders = [letters, *(letters[0] + letters[:0:-1] for _ in range(len(letters) == 3))]
        for order in orders:  # of two marks either may come first, if they stand in different places
            if unicodedata.normalize("NFD", order) == letters:
                for end in range(1, len(order) + 1):
                    ways[unicodedata.normalize("NFC", order[:end]) + order[end:]] = None
    return tuple(ways)


def clusters(text: str) -> list[str]:
    """The letters of a text, each with the marks behind it."""
    found: list[str] = []
    for char in unicodedata.normalize("NFC", text):
        if found and unicodedata.combining(char):
            found[-1] += char
        else:
            found.append(char)
    return found
