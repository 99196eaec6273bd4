"""JSON text without escapes for other scripts' letters."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any


def json_encoder(*, item_separator: str, key_separator: str) -> Callable[[Any], str]:
    """Return a function that writes JSON with these separators."""
    return json.JSONEncoder(ensure_ascii=False, separators=(item_separator, key_separator)).encode


compact_json = json_encoder(item_separator=",", key_separator=":")
