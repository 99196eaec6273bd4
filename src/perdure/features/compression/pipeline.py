"""Compress the text of a tool's result: a lossless form that decodes to the same, then a shortened one if it is long.

The kind of a text is found by looking at it. The same text always gives the same bytes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, Literal

from perdure.context.sections.tokens import ScriptTokenCounter
from perdure.features.compression.constants import (
    BUDGET_FLOOR,
    BUDGET_LEAST,
    BUDGET_SHARE,
    EXCERPT_FLOOR,
    ITEM_LIMITS,
    LEAST_CHARS,
    LOSSLESS_SHARE,
    PROSE_BUDGET,
    ROOM_SHARE,
    SAMPLE_CHARS,
    SAMPLES,
    SURE_SHARE,
)
from perdure.features.compression.excerpt import excerpt
from perdure.features.compression.lookup import pieces_of
from perdure.features.compression.shorten import Compressed, Family, TokenRoom

Level = Literal["off", "lossless", "full"]
LEVELS: tuple[Level, ...] = ("off", "lossless", "full")

_HEADER = re.compile(r"\[perdure (?P<kind>[a-z]+) (?P<form>lossless|short)[:\]]")
DEFAULT_HANDLE = "original"


def compress_text(
    text: str,
    families: Sequence[Family],
    *,
    level: Level = "full",
    budget: int | None = None,
    handle: str = DEFAULT_HANDLE,
    count: Callable[[str], int] | None = None,
    is_over: Callable[[], bool] | None = None,
) -> Compressed:
    """Return the text in fewer tokens, or unchanged.

    Args:
        families: the kinds of text to try, in order.
        level, budget, handle, count, is_over: as of `compress`.
    """
    whole = Compressed(text, text)
    if level == "off" or len(text) < LEAST_CHARS or _HEADER.match(text):
        return whole
    count = count or ScriptTokenCounter().count
    best = whole
    readings: list[tuple[Family, Any]] = []
    for family in families:
        if is_over is not None and is_over():
            return best
        parsed = family.parse(text)
        if parsed is None:
            continue
        readings.append((family, parsed))
        body = family.encode(parsed)
        if body is None:
            continue
        shown = f"[perdure {family.name} lossless: {family.note}]\n{body}"
        if _is_smaller(shown, text, family.sure_share, count) and family.equals(text, parsed, family.decode(body)):
            best = Compressed(shown, text, None, family.name, "lossless")
            break
    return best if level == "lossless" else _shorten(best, readings, budget, handle, count)


def _shorten(
    best: Compressed,
    readings: Sequence[tuple[Family, Any]],
    budget: int | None,
    handle: str,
    count: Callable[[str], int],
) -> Compressed:
    """Return the text without what is typical, if the lossless form `best` is over the budget and that makes it
    smaller. A text of no kind that fits is shortened to the pieces that matter most.

    Args:
        readings: the kinds of text that it was found to be, each with what it parsed.
        budget, handle, count: as of `compress`.
    """
    text = best.original
    tokens = _estimate(text, count)
    size = _estimate(best.text, count) if budget is None else count(best.text)
    for family, parsed in readings:
        share = max(BUDGET_LEAST if family.repeats else PROSE_BUDGET, int(tokens * BUDGET_SHARE))
        wanted = share if budget is None else budget
        if size <= wanted:
            return best
        room = wanted if budget is not None else max(wanted, int(tokens * ROOM_SHARE))
        head = _first_line(family.name, text, handle)
        body = family.shorten(parsed, TokenRoom(room - (0 if budget is None else count(head)), count, handle))
        if body is None or not _is_smaller(head + body, best.text, SURE_SHARE, count):
            continue
        if budget is None or count(head + body) <= max(budget, BUDGET_FLOOR):
            return Compressed(head + body, text, handle, family.name, "short")
    kind = readings[0][0].name if readings else "lines"
    room = max(PROSE_BUDGET, int(tokens * ROOM_SHARE)) if budget is None else max(budget, EXCERPT_FLOOR)
    if size <= room:
        return best
    head = _first_line(kind, text, handle)
    item_chars = max(ITEM_LIMITS[0], min(ITEM_LIMITS[1], room // 2))
    shown = head + excerpt(pieces_of(text, item_chars, len(text)), TokenRoom(room - count(head), count, handle))
    is_smaller = (budget is not None or len(shown) < len(text)) and count(shown) < size
    return Compressed(shown, text, handle, kind, "short") if is_smaller else best


def _first_line(kind: str, text: str, handle: str) -> str:
    """Return the first line of a shortened text of this kind, which tells how to open the original."""
    opens = f'context_expand("{handle}", grep= | lines= | rows= | path= | where=)'
    return f"[perdure {kind} short: the original has {len(text):,} characters; {opens}]\n"


def decode_text(text: str, families: Sequence[Family]) -> Any:
    """Return what a lossless text was made from: the text, or the value of a JSON document. `families` are those of
    `compress_text`. Raises: ValueError: something was left out of it, or its kind is unknown."""
    header = _HEADER.match(text)
    if header is None:
        return text
    if header["form"] == "short":
        raise ValueError("a shortened text has no inverse: open the original by its handle")
    body = text.partition("\n")[2]
    family = next((one for one in families if one.name == header["kind"]), None)
    if family is None:
        raise ValueError(f"{header['kind']!r} is not a kind of text")
    return family.decode(body)


def _is_smaller(shown: str, text: str, sure_share: float, count: Callable[[str], int]) -> bool:
    """Return whether a form is smaller than a text by a margin, in characters and in tokens, which `count` estimates.
    Up to `sure_share` of the characters they are not counted."""
    if len(shown) <= sure_share * len(text):
        return True
    return len(shown) <= LOSSLESS_SHARE * len(text) and count(shown) <= LOSSLESS_SHARE * count(text)


def _estimate(text: str, count: Callable[[str], int]) -> int:
    """Return about how many tokens a text has; of a long one only samples are counted, so that the cost has a bound."""
    if len(text) <= SAMPLES * SAMPLE_CHARS:
        return count(text)
    step = len(text) // SAMPLES
    sample = "".join([text[start : start + SAMPLE_CHARS] for start in range(0, step * SAMPLES, step)])
    return count(sample) * len(text) // len(sample)
