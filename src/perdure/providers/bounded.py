"""Limits on answers, and on addresses: a provider may be anybody's server, and a client may have chosen it."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import urllib.parse
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any, Protocol

from perdure.core.errors import BodyUnreadable, DataTooLarge
from perdure.core.incoming.bodies import read_body, unpack
from perdure.core.incoming.json_limits import JsonLimits, parse_json

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


async def json_of(response: httpx.Response, limits: JsonLimits) -> Any:
    """The JSON of a streamed response. Raises: ValueError, of which DataTooLarge is one; of httpx."""
    return parse_json(await read_answer(response, limits.size_bytes), limits)


async def error_body(response: httpx.Response, deadline: float | None = None) -> str:
    """The body of a streamed response that is no success, as far as it comes and can be read.

    Args:
        deadline: when reading ends, by the clock of the event loop.
    """
    import httpx

    body = bytearray()
    with contextlib.suppress(httpx.HTTPError, TimeoutError, DataTooLarge, BodyUnreadable):
        async with asyncio.timeout_at(deadline):
            async for piece in answer_pieces(response, ERROR_BYTES):
                body += piece
    return body.decode("utf-8", "replace")


class Guard(Protocol):
    """Makes transports that connect only where a provider may be that a client registered."""

    def transport(self, verify: ssl.SSLContext) -> httpx.AsyncBaseTransport:
        """A transport for clients of `httpx`. It raises AddressRefused."""

    def transport2(self, verify: ssl.SSLContext) -> httpx2.AsyncBaseTransport:
        """A transport for clients of `httpx2`. It raises AddressRefused."""


_NEAR_NAMES = ("localhost", "host.docker.internal", "host.containers.internal")
_NEAR_ENDS = (".local", ".lan", ".home", ".internal")


def api_path(path: str) -> str:
    """The path of a chat API, without `/chat/completions` and a / at the end.

    >>> api_path("/v1/chat/completions/")
    '/v1'
    """
    return path.rstrip("/").removesuffix("/chat/completions").rstrip("/")


def without_secrets(url: str) -> str:
    """The address without user, password and query."""
    scheme, separator, rest = url.partition("://")
    if not separator:
        scheme, rest = "", url
    place, slash, path = rest.partition("/")
    return f"{scheme}{separator}{place.rpartition('@')[2].partition('?')[0]}{slash}{path.partition('?')[0]}"


def is_loopback(url: str) -> bool:
    """Whether an address is one of this machine's own."""
    host = urllib.parse.urlsplit(url).hostname or ""
    return host in ("localhost", "::1") or host.startswith("127.")


def is_near(url: str) -> bool:
    """Whether an address is of this machine or its network: who runs a server there has chosen its models.

    >>> is_near("http://192.168.1.5:8080/v1"), is_near("http://llama:8080/v1"), is_near("https://api.groq.com/v1")
    (True, True, False)
    """
    host = (urllib.parse.urlsplit(url).hostname or "").lower()
    try:
        return ipaddress.ip_address(host).is_private
    except ValueError:
        return host in _NEAR_NAMES or host.endswith(_NEAR_ENDS) or bool(host and "." not in host)


def beside_api(url: str, path: str) -> str:
    """The address of what a server has beside its API, which is under `/v1`.

    >>> beside_api("http://127.0.0.1:8080/v1", "/props")
    'http://127.0.0.1:8080/props'
    """
    parts = urllib.parse.urlsplit(url)
    return urllib.parse.urlunsplit(parts._replace(path=f"{parts.path.rstrip('/').removesuffix('/v1')}{path}"))
