"""Mask secrets in what is shown, logged or stored: headers, addresses, request fields, and texts of errors; and limits
on answers, and on addresses: a provider may be anybody's server, and a client may have chosen it."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import parse_qsl, unquote, urlsplit

from perdure.core.errors import BodyUnreadable, DataTooLarge
from perdure.core.incoming.bodies import read_body, unpack
from perdure.core.incoming.json_limits import JsonLimits
from perdure.core.secrets import HIDDEN_QUERY, hide_secret

if TYPE_CHECKING:
    import ssl

    import httpx
    import httpx2

ANSWER_BYTES = 64 << 20
"""One answer, all its events together: about 200,000 tokens, each in an event of its own."""

ERROR_BYTES = 64_000

EVENT = JsonLimits(size_bytes=8 << 20, containers=20_000)
"""One event of a streamed answer."""

WHOLE = JsonLimits(size_bytes=16 << 20)
"""An answer that comes in one piece: a reply, or the vectors of one batch."""

LISTING = JsonLimits(size_bytes=8 << 20)
"""A list of models, the answer to a probe."""


def answer_pieces(response: httpx.Response, size_bytes: int = ANSWER_BYTES) -> AsyncIterator[bytes]:
    """The body of a streamed response, in pieces. Raises: DataTooLarge, BodyUnreadable, errors of httpx."""
    return unpack(response.aiter_raw(), response.headers.get("content-encoding", ""), size_bytes)


async def read_answer(response: httpx.Response, size_bytes: int) -> bytes:
    """The whole body of a response that is streamed. Raises: as `answer_pieces`."""
    return await read_body(response.aiter_raw(), response.headers.get("content-encoding", ""), size_bytes)


async def error_body(response: httpx.Response, deadline: float | None = None) -> str:
    """Read the body of a failed streamed response as far as it comes until `deadline` (event loop's clock)."""
    import httpx

    body = bytearray()
    with contextlib.suppress(httpx.HTTPError, TimeoutError, DataTooLarge, BodyUnreadable):
        async with asyncio.timeout_at(deadline):
            async for piece in answer_pieces(response, ERROR_BYTES):
                body += piece
    return body.decode("utf-8", "replace")


class HostGuard(Protocol):
    """Makes transports that connect only where a provider may be that a client registered."""

    def transport(self, verify: ssl.SSLContext) -> httpx.AsyncBaseTransport:
        """A transport for clients of `httpx`. It raises AddressRefused."""

    def transport2(self, verify: ssl.SSLContext) -> httpx2.AsyncBaseTransport:
        """A transport for clients of `httpx2`. It raises AddressRefused."""


def api_path(path: str) -> str:
    """The path of a chat API, without `/chat/completions` and a / at the end.

    >>> api_path("/v1/chat/completions/") '/v1'
    """
    return path.rstrip("/").removesuffix("/chat/completions").rstrip("/")


def without_secrets(url: str) -> str:
    """The address without user, password, and what may hold a key."""
    scheme, separator, rest = url.partition("://") if "://" in url else ("", "", url)
    place, slash, path = rest.partition("/")
    return hide_secret(f"{scheme}{separator}{place.rpartition('@')[2]}{slash}{path}")[0].removesuffix(HIDDEN_QUERY)


MASK = "***"

SECRET_CHARS_MIN = 4
"""A shorter secret would mask half of every text, and protects nothing."""

_SECRET_NAME = re.compile(
    r"auth|cookie|credential|passw|secret|signature|(?:api|access|private)[-_]?key|^key$|(?<![a-z])token$",
    re.IGNORECASE,
)
_SECRET_VARIABLE = re.compile(r"(?:^|_)(?:KEY|TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIALS?)$", re.IGNORECASE)
_PASSWORD = re.compile(r"(?s)\w+://[^/]*?:(.*)@")
_SCHEME_START = re.compile(r"(?i)^(?:bearer|basic|token)\s+")
_SCHEME = re.compile(r"(?i)(bearer|basic|token)\s+\S")
_IN_TEXT = (
    (re.compile(r"(?i)\b(bearer|basic)\s+[\w.~+/=-]{8,}"), rf"\1 {MASK}"),
    (re.compile(r"\b(?:sk|pk|gsk|xai|hf|AIza)[-_][\w*-]{6,}"), MASK),
    (
        re.compile(
            r"(?i)([?&](?:api[-_]?key|key|token|access[-_]token|sig|signature|secret|(?:ssl)?password)=)[^&\s\"'<>]+"
        ),
        rf"\1{MASK}",
    ),
    (re.compile(r"(://)[^/\s@\"'<>]+@"), rf"\1{MASK}@"),
)


def mask_headers(headers: Mapping[str, str], secrets: Iterable[str] = ()) -> dict[str, str]:
    """The headers, names in lower case, with *** for secrets; of an authorization its scheme stays."""
    secrets = tuple(secrets)
    return {name.lower(): _mask_header(name, value, secrets) for name, value in headers.items()}


def request_secrets(headers: Mapping[str, str], url: str) -> tuple[str, ...]:
    """Return a request's secrets: in headers, query fields, the address's password, and keys in its path."""
    parts = urlsplit(url)
    named = (*headers.items(), *parse_qsl(parts.query))
    values = [value for name, value in named if _SECRET_NAME.search(name)]
    values += [_SCHEME_START.sub("", value) for value in values]
    values += [part for part in parts.path.split("/") if hide_secret(f"//x/{part}")[1]]
    return tuple(dict.fromkeys(filter(None, (*values, parts.password, unquote(parts.password or "")))))


def environment_secrets(environment: Mapping[str, str]) -> tuple[str, ...]:
    """The values of environment variables with secret names, and the passwords in addresses."""
    named = [value for name, value in environment.items() if _SECRET_VARIABLE.search(name)]
    passwords = [match[1] for value in environment.values() if (match := _PASSWORD.match(value))]
    return tuple(value for value in (*named, *passwords, *map(unquote, passwords)) if len(value) >= 8)


def mask_text(text: str, secrets: Iterable[str] = ()) -> str:
    """The text without these secrets and what looks like one: bearer tokens, `sk-...`, passwords and keys in addresses.
    Providers repeat keys in their errors."""
    # Errors quote a header by its `repr`, in which a line break of a key is escaped.
    forms = {form for secret in secrets if len(secret) >= SECRET_CHARS_MIN for form in (secret, repr(secret)[1:-1])}
    for form in sorted(forms, key=len, reverse=True):
        text = text.replace(form, MASK)
    for pattern, replacement in _IN_TEXT:
        text = pattern.sub(replacement, text)
    return text


def mask_fields(fields: Mapping[str, Any], secrets: Iterable[str] = ()) -> dict[str, Any]:
    """The fields of a request body, at any depth, with the values of secret names and the secrets replaced."""
    secrets = tuple(secrets)
    return {
        name: MASK if isinstance(value, str) and _SECRET_NAME.search(name) else _mask_value(value, secrets)
        for name, value in fields.items()
    }


def _mask_value(value: Any, secrets: tuple[str, ...]) -> Any:
    """A value of a request body without secrets."""
    match value:
        case str():
            return mask_text(value, secrets)
        case Mapping():
            return mask_fields({str(name): inner for name, inner in value.items()}, secrets)
        case list() | tuple():
            return [_mask_value(inner, secrets) for inner in value]
        case _:
            return value


def _mask_header(name: str, value: str, secrets: tuple[str, ...]) -> str:
    if not _SECRET_NAME.search(name):
        return mask_text(value, secrets)
    return f"{value.split()[0]} {MASK}" if _SCHEME.match(value) else MASK
