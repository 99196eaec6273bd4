"""JSON text without escapes for other scripts' letters, and text that UTF-8 can hold."""

from __future__ import annotations

import json

compact_json = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
"""Return a value as JSON without spaces."""

sorted_json = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), sort_keys=True).encode
"""Return a value as JSON without spaces, the same whatever order its keys came in."""

spaced_json = json.JSONEncoder(ensure_ascii=False, separators=(", ", ": ")).encode
"""Return a value as JSON with a space after each comma and colon."""


def json_start(value: object, chars: int = 80) -> str:
    """The beginning of a value's JSON, for an error text; of a value without JSON its `repr`."""
    try:
        return encodable(json.dumps(value, ensure_ascii=False))[:chars]
    except (TypeError, ValueError):
        return repr(value)[:chars]


def encodable(text: str) -> str:
    """The text with U+FFFD for each lone surrogate; surrogate pairs become their character."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text
