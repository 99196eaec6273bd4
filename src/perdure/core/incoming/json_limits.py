"""How large, how deep and how full of arrays a JSON text from outside may be, checked before it becomes objects.

A byte of JSON can become 300 bytes of objects (`{"":[]}`), in one go that stops every other thread. Counting brackets
in bytes costs a few milliseconds for a megabyte and takes no more memory than the text.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from perdure.core.errors import DataTooLarge

CONTAINERS_MAX = 200_000
"""Arrays and objects in one text. Parsing stops everything else, in whichever thread it is done: 5 MB take 10 ms as one
string, and 0.7 s as empty arrays."""

DEPTH_MAX = 100

_BLOCK_BYTES = 1 << 16
_NOT_BRACKETS = bytes(set(range(256)) - set(b'[]{}"'))
_NOT_COMMAS = bytes(set(range(256)) - set(b',"'))


@dataclass(frozen=True, slots=True, kw_only=True)
class JsonLimits:
    """What one JSON text may hold.

    Args:
        size_bytes: its length in UTF-8.
        depth: how deep arrays and objects nest.
        containers: how many arrays and objects there are.
        values: how many commas stand between members and items; None: any number.
    """

    size_bytes: int
    depth: int = DEPTH_MAX
    containers: int = CONTAINERS_MAX
    values: int | None = None


def check_json(data: bytes, limits: JsonLimits) -> None:
    """Check that a text keeps the limits, JSON or not. Linear in its length, without a loop over its bytes. Raises:
    DataTooLarge: it is larger, nests deeper, or is in another encoding than UTF-8, where brackets can't be counted."""
    if len(data) > limits.size_bytes:
        raise DataTooLarge(f"larger than {limits.size_bytes:,} bytes")
    if json.detect_encoding(data) not in ("utf-8", "utf-8-sig"):
        raise DataTooLarge("JSON must be encoded as UTF-8")
    # Most texts have fewer brackets than they may have levels, and need no closer look.
    if data.count(b"[") + data.count(b"{") > min(limits.depth, limits.containers):
        brackets = _outside_strings(data, _NOT_BRACKETS)
        if brackets.count(b"[") + brackets.count(b"{") > limits.containers:
            raise DataTooLarge(f"more than {limits.containers:,} arrays and objects")
        if _depth(brackets) > limits.depth:
            raise DataTooLarge(f"nested deeper than {limits.depth} levels")
    if limits.values is None or data.count(b",") <= limits.values:
        return
    if _outside_strings(data, _NOT_COMMAS).count(b",") > limits.values:
        raise DataTooLarge(f"more than {limits.values:,} values")


def parse_json(data: bytes | str, limits: JsonLimits, *, parse_constant: Callable[[str], Any] | None = None) -> Any:
    """Return the value of a JSON text from outside; `parse_constant` makes `NaN` and the like, as for `json.loads`.
    Raises: ValueError: it is no JSON; DataTooLarge, a ValueError: it passes a limit."""
    text = data.encode("utf-8", "surrogatepass") if isinstance(data, str) else data
    check_json(text, limits)
    return json.loads(data if isinstance(data, str) else text, parse_constant=parse_constant)


def _outside_strings(data: bytes, others: bytes) -> bytes:
    """Return the bytes of a JSON text outside its strings, without `others`. A string without end goes to the end."""
    if b"\\" in data:
        # In this order: the pairs are taken from the left, as a parser does, and no quote that is left is escaped.
        data = data.replace(b"\\\\", b"").replace(b'\\"', b"")
    # Two quotes side by side open and close nothing, whatever they belong to: what is around them stays where it is.
    structure = data.translate(None, others).replace(b'""', b"")
    outside: list[bytes] = []
    first = 0  # of the pieces between quotes each second one is outside
    for start in range(0, len(structure), _BLOCK_BYTES):  # millions of pieces at once would take twenty times the text
        pieces = structure[start : start + _BLOCK_BYTES].split(b'"')
        outside.append(b"".join(pieces[first::2]))
        first = (first + len(pieces) - 1) % 2
    return b"".join(outside)


def _depth(brackets: bytes) -> int:
    """Return how deep brackets nest."""
    depth = deepest = 0
    for bracket in brackets:
        if bracket in b"[{":
            depth += 1
            if depth > deepest:  # `max` takes twice the time of the whole loop
                deepest = depth
        else:
            depth -= 1
    return deepest
