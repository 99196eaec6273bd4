"""Envelopes: the engine's messages are JSON with a `type`, never plain text."""

from __future__ import annotations

from typing import Any

from perdure.core.text.json_encoder import json_encoder

_encode = json_encoder(item_separator=", ", key_separator=": ")


def envelope(kind: str, **fields: Any) -> str:
    """Return one line of JSON, `type` first, then the fields in order, without those that are None."""
    if None in fields.values():
        fields = {name: value for name, value in fields.items() if value is not None}
    return _encode({"type": kind, **fields})
