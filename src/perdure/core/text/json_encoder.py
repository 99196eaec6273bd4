"""JSON text without escapes for other scripts' letters, and text that UTF-8 can hold."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any


def json_encoder(*, item_separator: str, key_separator: str) -> Callable[[Any], str]:
    """Return a function that writes JSON with these separators."""
    return json.JSONEncoder(ensure_ascii=False, separators=(item_separator, key_separator)).encode


compact_json = json_encoder(item_separator=",", key_separator=":")


def encodable(text: str) -> str:
    """The text with U+FFFD for each lone surrogate; surrogate pairs become their character."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text
