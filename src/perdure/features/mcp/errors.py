"""Errors of MCP servers as text without secrets."""

from __future__ import annotations

import re
from collections.abc import Iterable
from urllib.parse import urlsplit

from perdure.core.errors import McpUnreachable
from perdure.features.mcp.values import ServerSecrets

ERROR_CHARS = 300
PLACES_MAX = 3
MASK = "***"
SECRET_CHARS_MIN = 4
"""Shorter secrets are not masked: they would mask half of every text."""

_ADDRESS = re.compile(r"https?://[^\s'\"<>]+")


class McpGone(McpUnreachable):
    """The connection ended before the answer."""

    code = McpUnreachable.code


class McpLate(McpUnreachable):
    """No answer came in time."""

    code = McpUnreachable.code


def secret_values(secrets: ServerSecrets) -> list[str]:
    """The secrets of a server that must not appear in any text."""
    query = (part.partition("=")[2] for part in secrets.query.split("&"))
    named = (*secrets.headers.values(), *secrets.environment.values())
    return [*filter(None, (secrets.token, secrets.query, *query)), *named]


def describe_error(error: BaseException, secrets: Iterable[str] = ()) -> str:
    """One line about an error; addresses have no query, secrets are masked."""
    while isinstance(error, BaseExceptionGroup) and error.exceptions:
        error = error.exceptions[0]
    status = getattr(getattr(error, "response", None), "status_code", None)
    text = f"it answered with HTTP status {status}" if status else _error_text(error)
    for secret in sorted(secrets, key=len, reverse=True):
        if len(secret) >= SECRET_CHARS_MIN:
            text = text.replace(secret, MASK)
    text = _ADDRESS.sub(lambda match: _strip_address(match[0]), text)
    return " ".join(text.split())[:ERROR_CHARS]


def _error_text(error: BaseException) -> str:
    """The message of an error, in plainer words where its own are unclear."""
    match error:
        case FileNotFoundError():
            return f"there is no program {error.filename!r}" if error.filename else str(error)
        case TimeoutError():
            return str(error) or "it did not answer in time"
        case _ if (places := _invalid_places(error)) is not None:
            return f"what it answered breaks the protocol{places}"
        case _:
            return str(error) or type(error).__name__


def _invalid_places(error: BaseException) -> str | None:
    """The places in the data that a validation error names, as text; None for another error."""
    entries = getattr(error, "errors", None)
    if type(error).__name__ != "ValidationError" or not callable(entries):
        return None
    paths = [
        "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in entry["loc"]) for entry in entries()
    ]
    places = [*dict.fromkeys(path.lstrip(".") for path in paths if path)]
    return f" at {', '.join(places[:PLACES_MAX])}" if places else ""


def _strip_address(address: str) -> str:
    """An address without user, query and fragment, where secrets may be."""
    try:
        parts = urlsplit(address)
        return f"{parts.scheme}://{parts.hostname}{f':{parts.port}' if parts.port else ''}{parts.path}"
    except ValueError:
        return MASK
