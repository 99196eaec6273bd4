"""How a text of JSON is written: the styles of common encoders, so that a value can be written back byte for byte."""

from __future__ import annotations

import json
from typing import Any

STYLES: tuple[dict[str, Any], ...] = tuple(
    {"ensure_ascii": ascii_only, **layout}
    for layout in (
        {"separators": (", ", ": ")},
        {"separators": (",", ":")},
        {"indent": 2, "separators": (",", ": ")},
        {"indent": 4, "separators": (",", ": ")},
    )
    for ascii_only in (True, False)
)


def find_style(value: Any, text: str) -> int | None:
    """Return the number of the style in which the value is exactly this text; None: of none."""
    for number, style in enumerate(STYLES):
        if ("\n" in text) == ("indent" in style) and json.dumps(value, **style) == text:
            return number
    return None


def write_style(value: Any, number: int) -> str:
    """Return a value as JSON in a style."""
    return json.dumps(value, **STYLES[number])
