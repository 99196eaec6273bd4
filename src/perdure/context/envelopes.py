"""Messages that the engine adds: JSON envelopes with a `type`, never plain text, so that nobody can mistake or forge
them."""

from __future__ import annotations

import json
from typing import Any

__all__ = ["envelope"]


def envelope(kind: str, **fields: Any) -> str:
    """One line of JSON, `type` first, then the fields in the order given; fields that are None are left out."""
    shape = {"type": kind} | {name: value for name, value in fields.items() if value is not None}
    return json.dumps(shape, ensure_ascii=False, separators=(", ", ": "))
