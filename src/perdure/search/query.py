"""Names in a query, and times in the arguments of a search, as models and people write them."""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from datetime import UTC, date, datetime, time

from perdure.core.errors import InvalidInput
from perdure.core.text.zones import zone


def parse_time(text: str | None, *, timezone: str = "UTC", end: bool = False) -> datetime | None:
    """Parse an ISO 8601 date or time into a moment in UTC; None for None or an empty text.

    A date alone means its beginning or, with `end`, its last microsecond, where the agent lives. A time without an
    offset is in the agent's time zone too.

    Raises: InvalidInput: for anything else.
    """
    if text is None or not text.strip():
        return None
    here = zone(timezone)
    text = text.strip()
    try:
        try:
            day = date.fromisoformat(text)
        except ValueError:
            moment = datetime.fromisoformat(text)
        else:
            # `fold`: where clocks go back at midnight, a day's last hour is there twice.
            moment = datetime.combine(day, time.max.replace(fold=1) if end else time.min)
        return (moment if moment.tzinfo else moment.replace(tzinfo=here)).astimezone(UTC)
    except (ValueError, OverflowError) as error:
        raise InvalidInput(f"{text!r:.60} is no date: write it as 2026-11-20 or 2026-11-20T15:30") from error


# Names that are ordinary words too: those only count with a capital letter.
_ORDINARY_TEXT = (
    "amber april art august bill chase dawn drew faith frank grace hope jack joy june mark may olive pat ray rich"
    " rob rose ruby sue summer will"
)
_ORDINARY = frozenset(_ORDINARY_TEXT.split())
_SPACE_BEFORE_MARK = re.compile(r"\s+([,.!?;:])")


def names_in(text: str, names: Sequence[str]) -> tuple[int, ...]:
    """Return the indexes of the `names` that occur in `text`, ascending; `Ann` does not occur in `Annual`."""
    return tuple(sorted({number for _, _, number in _find_names(text, tuple(names)) if number is not None}))


@functools.lru_cache(maxsize=256)
def count_distinct(names: tuple[str, ...]) -> int:
    """Count the different names, whatever their case."""
    return len({name.casefold() for name in names if name.strip()})


def without_names(text: str, names: Sequence[str]) -> str:
    """Return `text` without the names and their possessive 's, or unchanged if nothing else is in it."""
    found = _find_names(text, tuple(names))
    if not found:
        return text
    pieces, at = [], 0
    for first, last, _ in found:
        pieces.append(text[at:first])
        at = last
    rest = _SPACE_BEFORE_MARK.sub(r"\1", " ".join(" ".join((*pieces, text[at:])).split())).strip(" ,")
    return rest if any(map(str.isalnum, rest)) else text


def _find_names(text: str, names: tuple[str, ...]) -> tuple[tuple[int, int, int | None], ...]:
    """Find all names in the text: (where a name begins, where it and its 's end, its index)."""
    pattern, numbers = _name_pattern(names)
    if pattern is None:
        return ()
    return tuple(
        (*match.span(), numbers.get(" ".join(match[1].casefold().split())))
        for match in pattern.finditer(text)
        if not match[1].islower() or match[1] not in _ORDINARY  # ordinary words are names with a capital letter
    )


@functools.lru_cache(maxsize=256)
def _name_pattern(names: tuple[str, ...]) -> tuple[re.Pattern[str] | None, dict[str, int]]:
    """Build (a pattern that matches any of the names, name -> index).

    A name of several words also matches by its first word, if no other name begins with it.
    """
    numbers: dict[str, int] = {}
    firsts: dict[str, list[int]] = {}
    for number, name in enumerate(names):
        words = name.split()
        if words:
            numbers.setdefault(" ".join(words).casefold(), number)
            firsts.setdefault(words[0].casefold(), []).append(number)
    for first, indexes in firsts.items():
        if len(indexes) == 1 and len(first) > 2:
            numbers.setdefault(first, indexes[0])
    if not numbers:
        return None, {}
    longest_first = sorted(numbers, key=len, reverse=True)
    either = "|".join(re.escape(name).replace("\\ ", "\\s+") for name in longest_first)
    return re.compile(rf"(?<!\w)({either})(?!\w)(?:['’]s\b)?", re.IGNORECASE), numbers
