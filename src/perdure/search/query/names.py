"""Names of speakers: matched as they are written, and kept out of what is embedded, where they drown the rest."""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence

# Names that are ordinary words too: those only count with a capital letter.
_ORDINARY_TEXT = (
    "amber april art august bill chase dawn drew faith frank grace hope jack joy june mark may olive pat ray rich"
    " rob rose ruby sue summer will"
)
_ORDINARY = frozenset(_ORDINARY_TEXT.split())
_LEFT_OVER = re.compile(r"\s+([,.!?;:])")


def names_in(text: str, names: Sequence[str]) -> tuple[int, ...]:
    """Indexes of those `names` that stand in `text`, ascending; `Ann` does not stand in `Annual`."""
    return tuple(sorted({number for _, _, number in _found(text, tuple(names)) if number is not None}))


@functools.lru_cache(maxsize=256)
def different(names: tuple[str, ...]) -> int:
    """How many names there are, however they are written."""
    return len({name.casefold() for name in names if name.strip()})


def without_names(text: str, names: Sequence[str]) -> str:
    """`text` without the names and their possessive 's; as it was if nothing else is in it."""
    return _without_names(text, tuple(names))


@functools.lru_cache(maxsize=16)  # a search asks twice: for the vector and for the words
def _without_names(text: str, names: tuple[str, ...]) -> str:
    found = _found(text, names)
    if not found:
        return text
    pieces, at = [], 0
    for first, last, _ in found:
        pieces.append(text[at:first])
        at = last
    rest = _LEFT_OVER.sub(r"\1", " ".join(" ".join((*pieces, text[at:])).split())).strip(" ,")
    return rest if any(map(str.isalnum, rest)) else text


@functools.lru_cache(maxsize=16)  # a search asks twice
def _found(text: str, names: tuple[str, ...]) -> tuple[tuple[int, int, int | None], ...]:
    """(where a name begins, where it and its 's end, its index) of all in the text."""
    pattern, numbers = _pattern(names)
    if pattern is None:
        return ()
    return tuple(
        (*match.span(), numbers.get(" ".join(match[1].casefold().split())))
        for match in pattern.finditer(text)
        if _means_a_name(match[1])
    )


def _means_a_name(written: str) -> bool:
    return not written.islower() or written not in _ORDINARY


@functools.lru_cache(maxsize=256)
def _pattern(names: tuple[str, ...]) -> tuple[re.Pattern[str] | None, dict[str, int]]:
    """(matches any of the names, name -> index). A name of several words is known by its first one too, if no other
    name begins so."""
    numbers: dict[str, int] = {}
    firsts: dict[str, list[int]] = {}
    for number, name in enumerate(names):
        words = name.split()
        if words:
            numbers.setdefault(" ".join(words).casefold(), number)
            firsts.setdefault(words[0].casefold(), []).append(number)
    for first, those in firsts.items():
        if len(those) == 1 and len(first) > 2:
            numbers.setdefault(first, those[0])
    if not numbers:
        return None, {}
    longest_first = sorted(numbers, key=len, reverse=True)
    either = "|".join(re.escape(name).replace("\\ ", "\\s+") for name in longest_first)
    return re.compile(rf"(?<!\w)({either})(?!\w)(?:['’]s\b)?", re.IGNORECASE), numbers
