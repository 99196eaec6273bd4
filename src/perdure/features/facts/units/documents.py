"""JSON documents as an extractor reads them: one line for each value, with the path to it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Literal

from perdure.core.errors import InvalidInput


def document_kind(text: str, kind: Literal["text", "json"] | None) -> Literal["text", "json"]:
    """Return how to read a text: as `kind` says; for None as JSON if it is an object or list, else as text. Raises:
    InvalidInput: `kind` is `json`, but it is no JSON object or list."""
    if kind == "text":
        return kind
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        if kind is None:
            return "text"
        raise InvalidInput(f"the document is not JSON ({error}): give an object or a list, or kind='text'") from error
    if not isinstance(value, dict | list):
        if kind is None:
            return "text"
        raise InvalidInput(f"the document is {value!r:.80}: give a JSON object or list, or kind='text'")
    return "json"


def render_json(text: str) -> str:
    """Return a JSON document as lines such as `user, address, city: Turin`; list items are numbered from 1. Invalid
    JSON, which a replaced credential may cause, is returned unchanged."""
    try:
        return "\n".join(f"{path}: {value}" for path, value in _values(json.loads(text), ()))
    except (ValueError, RecursionError):
        return text


def _values(value: Any, path: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    """Yield (path, text) of the values in a JSON value that are not empty; `path`: that of `value` itself."""
    if isinstance(value, dict):
        for name, part in value.items():
            yield from _values(part, (*path, " ".join(name.replace("_", " ").split())))
    elif isinstance(value, list):
        if value and all(isinstance(part, str | int | float) for part in value):
            yield ", ".join(path) or "values", "; ".join(map(_text, value))
            return
        for number, part in enumerate(value, 1):
            yield from _values(part, (*path, str(number)))
    elif value is not None and value != "":
        yield ", ".join(path) or "value", _text(value)


def _text(value: str | float | bool) -> str:
    """Return a JSON value, no list or object, on one line."""
    return " ".join(value.split()) if isinstance(value, str) else json.dumps(value)
