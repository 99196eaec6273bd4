"""Errors of MCP servers as text without secrets."""

from __future__ import annotations

import re
from collections.abc import Iterable
from urllib.parse import urlsplit

from perdure.core.errors import McpUnreachable

WHY_CHARS = 300
PLACES_MAX = 3
MASK = "***"
SECRET_CHARS_MIN = 4
"""A shorter value would mask half of every text."""

_ADDRESS = re.compile(r"https?://[^\s'\"<>]+")


class McpGone(McpUnreachable):
    """The connection ended before the answer."""

    code = McpUnreachable.code


class McpLate(McpUnreachable):
    """No answer came in time."""

    code = McpUnreachable.code


def why_of(error: BaseException, secrets: Iterable[str] = ()) -> str:
    """An error on one line; addresses without query, secrets masked."""
    while isinstance(error, BaseExceptionGroup) and error.exceptions:
        error = error.exceptions[0]
    status = getattr(getattr(error, "response", None), "status_code", None)
    text = f"it answered with HTTP status {status}" if status else _describe(error)
    for secret in sorted(secrets, key=len, reverse=True):
        if len(secret) >= SECRET_CHARS_MIN:
            text = text.replace(secret, MASK)
    text = _ADDRESS.sub(lambda found: _without_query(found[0]), text)
    return " ".join(text.split())[:WHY_CHARS]


def _describe(error: BaseException) -> str:
    match error:
        case FileNotFoundError():
            return f"there is no program {error.filename!r}" if error.filename else str(error)
        case TimeoutError():
            return str(error) or "it did not answer in time"
        case _ if (places := _places(error)) is not None:
            return f"what it answered breaks the protocol{places}"
        case _:
            return str(error) or type(error).__name__


def _places(error: BaseException) -> str | None:
    """The places of a validation error, without the words of the validator; None for another error."""
    entries = getattr(error, "errors", None)
    if type(error).__name__ != "ValidationError" or not callable(entries):
        return None
    found = [
        "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in entry["loc"]) for entry in entries()
    ]
    places = [*dict.fromkeys(place.lstrip(".") for place in found if place)]
    return f" at {', '.join(places[:PLACES_MAX])}" if places else ""


def _without_query(address: str) -> str:
    try:
        parts = urlsplit(address)
        return f"{parts.scheme}://{parts.hostname}{f':{parts.port}' if parts.port else ''}{parts.path}"
    except ValueError:
        return MASK
