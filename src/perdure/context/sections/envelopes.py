"""Envelopes: the engine's messages are JSON with a `type`, never plain text."""

from __future__ import annotations

from typing import Any

from perdure.core.text.json_encoder import spaced_json


def envelope(kind: str, **fields: Any) -> str:
    """Return one line of JSON, `type` first, then the fields in order, without those that are None."""
    if None in fields.values():
        fields = {name: value for name, value in fields.items() if value is not None}
    return spaced_json({"type": kind, **fields})
