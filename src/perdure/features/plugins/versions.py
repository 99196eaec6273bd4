"""Versions of plug-ins, and ranges of them as npm has them: `^1.2`, `~1.2.3`, `>=1.2 <2`, `1.x`, `*`."""

from __future__ import annotations

import functools
import re
from itertools import zip_longest

from perdure.core.errors import InvalidInput

_VERSION = re.compile(
    r"[v=]?(\d{1,9})(?:\.(\d{1,9}))?(?:\.(\d{1,9}))?(?:-([0-9A-Za-z.-]{1,60}))?(?:\+[0-9A-Za-z.-]{1,60})?"
)
_PART = re.compile(r"(\^|~|>=|<=|>|<|=)?\s*v?(\*|[xX]|\d[^\s,|<>=^~]*)")
_FROM_TO = re.compile(r"([^\s<>=^~|,]+)\s+-\s+([^\s<>=^~|,]+)")
_Key = tuple[int, int, int, bool, str]


def check_range(text: str) -> None:
    """Check a range of versions. Raises: InvalidInput: it can't be read."""
    is_in_range("0", text)


@functools.lru_cache(maxsize=1_024)
def is_in_range(version: str, text: str) -> bool:
    """Whether a version is in a range; an empty range or `*` has all. One that can't be read is only in these.

    Raises: InvalidInput: the range can't be read.
    """
    key = _parse(version)
    # `1.2 - 2.0` is one condition; each part has to be readable.
    parts = [_meets(key, _FROM_TO.sub(r">=\1 <=\2", one.strip()), text) for one in text.split("||")]
    return any(parts)


def _meets(key: _Key | None, part: str, text: str) -> bool:
    """Whether a version meets all conditions of a part of a range. Raises: InvalidInput."""
    position, meets = 0, True
    while position < len(part):
        found = _PART.match(part, position)
        if found is None:
            raise InvalidInput(f"{text!r:.80} is not a range of versions: write one such as ^1.2, ~1.2.3 or '>=1.2 <2'")
        low, high = _bounds(found[1] or "", found[2], text)
        is_any = low is None and high is None
        meets &= is_any or (key is not None and (low is None or key >= low) and (high is None or key < high))
        position = found.end()
        while position < len(part) and part[position] in " ,":
            position += 1
    return meets


def _bounds(sign: str, version: str, text: str) -> tuple[_Key | None, _Key | None]:
    """(the least version of a condition, the least one beyond it); None: any. Raises: InvalidInput."""
    numbers = [int(one) for one in re.split(r"[.+-]", version)[:3] if one.isascii() and one.isdigit()]
    given = _parse(version.replace(".x", "").replace(".X", "").replace(".*", "")) if numbers else None
    if not numbers:
        return None, None
    if given is None:
        raise InvalidInput(f"{text!r:.80} is not a range of versions: {version!r:.40} can't be read")
    if sign == "^":
        place = next((place for place, number in enumerate(numbers) if number), len(numbers) - 1)
    else:
        place = min(1, len(numbers) - 1) if sign == "~" else len(numbers) - 1
    raised = [number + (at == place) for at, number in enumerate(numbers[: place + 1])]
    major, minor, patch = (number for number, _ in zip_longest(raised[:3], range(3), fillvalue=0))
    after = (major, minor, patch, False, "")
    if len(numbers) == 3 and sign not in ("^", "~"):
        after = (*given[:4], given[4] + "\0")
    return {">": (after, None), ">=": (given, None), "<": (None, given), "<=": (None, after)}.get(sign, (given, after))


def _parse(version: str) -> _Key | None:
    """Return the sort key of a version, where `1.0-beta` comes before `1.0`; None: it is no version."""
    found = _VERSION.fullmatch(version.strip())
    if found is None:
        return None
    major, minor, patch = (int(found[group] or 0) for group in (1, 2, 3))
    return major, minor, patch, not found[4], found[4] or ""
