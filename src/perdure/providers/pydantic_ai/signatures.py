"""Signed or encrypted reasoning of a provider, as the one string that our log stores.

A provider refuses the signatures of others, so the string names the provider.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
_FIELDS = ("provider", "id", "signature")


@dataclass(frozen=True, slots=True, kw_only=True)
class Signature:
    """Args:
    provider: the name under which pydantic-ai keeps it.
    id: the provider's id of the reasoning item, or its mark for redacted reasoning.
    raw: reasoning texts that a provider sends beside the summary, and wants back.
    """

    provider: str
    id: str | None = None
    signature: str | None = None
    raw: tuple[str, ...] = ()


def pack(signed: Signature) -> str | None:
    """The string for the log; None if there is nothing to send back.

    >>> pack(Signature(provider="anthropic", signature="EqoB"))
    '{"provider":"anthropic","signature":"EqoB"}'
    """
    if not (signed.id or signed.signature or signed.raw):
        return None
    shape = {name: value for name in _FIELDS if (value := getattr(signed, name)) is not None}
    return _encode(shape | ({"raw": list(signed.raw)} if signed.raw else {}))


def unpack(text: str | None) -> Signature | None:
    """The signature in a string of `pack`; None for anything else, such as a signature of an unknown provider."""
    if text is None or not text.startswith("{"):
        return None
    try:
        shape = json.loads(text)
        values = {name: shape.get(name) for name in _FIELDS}
        raw = tuple(shape.get("raw", ()))
    except (ValueError, TypeError):
        return None
    if not isinstance(values["provider"], str) or not all(
        value is None or isinstance(value, str) for value in values.values()
    ):
        return None
    return Signature(**values, raw=raw)
