"""Limits on answers, and on addresses: a provider may be anybody's server, and a client may have chosen it."""

from __future__ import annotations

import asyncio
import contextlib
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
