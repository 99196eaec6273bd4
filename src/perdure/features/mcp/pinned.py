"""A transport of `httpx2` that connects to the checked addresses of one host, whatever its name leads to later; and
limits of what MCP servers send, before the SDK parses it, which has no limits of its own.

The SDK reads a child's lines through the codec of this module, and HTTP through `PinnedTransport`.
"""

from __future__ import annotations

import codecs
import ssl
from collections.abc import Callable, Sequence

import httpx2

from perdure.core.errors import DataTooLarge
from perdure.core.incoming.http_answers import bound_body
from perdure.core.incoming.json_limits import JsonLimits, check_json
from perdure.features.mcp.places import is_inside, resolve_host
from perdure.toolbox.web_guard import ADDRESSES_MAX, Resolve, pin_request, resolve

ANSWER = JsonLimits(size_bytes=16 << 20)
"""The limits of one message of a server. A listing of 1,000 tools with large schemas has a few MB."""

LINES = "perdure-json-lines"
"""The codec for a child's output: UTF-8, whole lines only; a line over the limits becomes `TOO_LARGE`."""

TOO_LARGE = "perdure: too large"


def is_too_large(message: object) -> bool:
    """Whether a message is the SDK's error about a line that was replaced by `TOO_LARGE`."""
    return isinstance(message, Exception) and TOO_LARGE in str(message)


class _LineDecoder(codecs.IncrementalDecoder):
    """Decodes whole lines only. A reader that joined the parts itself would need quadratic time."""

    def __init__(self, errors: str = "strict") -> None:
        super().__init__(errors)
        self._parts: list[bytes] = []
        self._size = 0

    def decode(self, data: bytes, final: bool = False) -> str:  # type: ignore[override]  # bytes are all it gets
        """Return the whole lines among these bytes."""
        *lines, rest = bytes(data).split(b"\n")
        text = [self._end_line(line) for line in lines]
        self._append(rest)
        if final and self._parts:
            text.append(self._end_line(b""))
        return "".join(text)

    def reset(self) -> None:
        self._parts, self._size = [], 0

    def _append(self, part: bytes) -> None:
        """Add a part to the current line; of a line over the limit only the size is counted."""
        self._size += len(part)
        if self._size > ANSWER.size_bytes:
            self._parts.clear()
        elif part:
            self._parts.append(part)

    def _end_line(self, end: bytes) -> str:
        """The line that ends here, or `TOO_LARGE`."""
        self._append(end)
        line, size = b"".join(self._parts), self._size
        self.reset()
        try:
            if size > ANSWER.size_bytes:
                raise DataTooLarge
            check_json(line, ANSWER)
        except DataTooLarge:
            return TOO_LARGE + "\n"
        return line.decode("utf-8", self.errors) + "\n"


def _find_codec(name: str) -> codecs.CodecInfo | None:
    """Return the codec named `LINES` to Python's registry of codecs; None: it asks for another one."""
    if name.replace("_", "-") != LINES:
        return None
    return codecs.CodecInfo(codecs.utf_8_encode, codecs.utf_8_decode, incrementaldecoder=_LineDecoder, name=LINES)


codecs.register(_find_codec)


class PinnedTransport(httpx2.AsyncBaseTransport):
    """Sends the requests of one connection to an MCP server.

    The name is resolved for the first request, and the others go to the same address. Answers are read up to a limit. A
    proxy that the environment names is not used: it would resolve the name itself.

    Args:
        url: the registered URL of the server; requests to another host are refused.
        private: whether it may be on this machine or in a private network; None: it is not settled.
        on_address: called with the first answer, with whether the address is on this machine or in a private network.
        inner: the transport that connects.
        verify: the trusted certificates; None: those of this machine and its environment.
    """

    def __init__(
        self,
        url: str,
        *,
        private: bool | None,
        on_address: Callable[[bool], None] | None = None,
        resolver: Resolve = resolve,
        inner: httpx2.AsyncBaseTransport | None = None,
        verify: ssl.SSLContext | None = None,
    ) -> None:
        self._host = httpx2.URL(url).host
        self._private, self._on_address, self._resolve = private, on_address, resolver
        self._inner = inner or httpx2.AsyncHTTPTransport(verify=verify or True)
        self._addresses: Sequence[str] = ()
        self._inside = False

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send a request to a checked address. Raises: ConnectionError: where the server may not be; TransportError."""
        host = request.url.host
        if host != self._host:
            raise ConnectionError(f"it leads to another host, {host}, which was not registered")
        if not self._addresses:
            port = request.url.port or (443 if request.url.scheme == "https" else 80)
            addresses = await resolve_host(host, port, private=self._private, resolver=self._resolve)
            self._addresses, self._inside = addresses[:ADDRESSES_MAX], is_inside(addresses)
        failure: httpx2.TransportError | None = None
        for address in self._addresses:
            pinned = pin_request(request, host if address == host else request.url.raw_host.decode("ascii"), address)
            try:
                response = await self._inner.handle_async_request(pinned)
            except (httpx2.ConnectError, httpx2.ConnectTimeout) as error:
                failure = error
            else:
                self._addresses = (address,)
                if self._on_address is not None:
                    self._on_address(self._inside)
                    self._on_address = None
                bound_body(response, whole=ANSWER, event=ANSWER)
                return response
        raise failure or ConnectionError(f"the host {host} has no address")

    async def aclose(self) -> None:
        await self._inner.aclose()
