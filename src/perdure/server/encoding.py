"""JSON bytes of answers."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from starlette.responses import Response

_encode: Callable[[Any], str] = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), default=dict).encode
_encode_ascii: Callable[[Any], str] = json.JSONEncoder(separators=(",", ":"), default=dict).encode

# Some clients split event streams at these characters too. JSON has them in strings only, so they can be escaped.
_LINE_ENDS = (("\u2028", "\\u2028"), ("\u2029", "\\u2029"), ("\x85", "\\u0085"))


def json_bytes(value: Any) -> bytes:
    """Compact JSON in UTF-8, on one line. Half a surrogate pair, which has no UTF-8, is escaped."""
    text = _encode(value)
    if not text.isascii():
        for character, escaped in _LINE_ENDS:
            if character in text:
                text = text.replace(character, escaped)
    try:
        return text.encode()
    except UnicodeEncodeError:
        return _encode_ascii(value).encode()


def json_answer(value: Any, status: int = 200) -> Response:
    """A JSON answer without the framework's validation."""
    return Response(json_bytes(value), status, media_type="application/json")
