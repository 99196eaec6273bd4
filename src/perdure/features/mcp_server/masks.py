"""Credentials in what a client has kept: a note stands in their place."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from perdure.core.text.credentials import without_credentials

MASKED = "A credential was masked: keep it with `perdure secret`."
_ARGUMENTS = {
    "memory_remember": ("text", "tags"),
    "memory_edit_block": ("append", "new", "value"),
    "note": ("title", "fields"),
    "index_output": ("title",),
}
SLICE_CHARS = 50_000
"""An output is masked in parts of about this length: others are answered meanwhile."""


def mask_arguments(tool: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return a call's arguments, without credentials in those that are kept."""
    kept = _ARGUMENTS.get(tool, ())
    return {name: _mask(value) if name in kept else value for name, value in arguments.items()}


def _mask(value: Any) -> Any:
    if isinstance(value, str):
        return without_credentials(value)
    if isinstance(value, Mapping):
        return {name: _mask(one) for name, one in value.items()}
    return [_mask(one) for one in value] if isinstance(value, list) else value


def mask_output(text: str) -> str:
    """Return an output without what has the form of a credential. What a word beside it calls one stays: such words are
    everywhere in logs, as in `tokens=1500`."""
    parts, start = list[str](), 0
    size = len(text) if "PRIVATE KEY" in text else SLICE_CHARS  # a key has many lines
    while start < len(text):
        end = text.find("\n", start + size) + 1 or len(text)
        parts.append(without_credentials(text[start:end], named=False))
        start = end
    return "".join(parts)
