"""A transport of `httpx2` that goes to addresses of one host that were judged, whatever its name leads to later."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Sequence

import httpx2

from perdure.core.incoming.http_answers import bound_body
from perdure.toolbox.mcp.limits import ANSWER
from perdure.toolbox.mcp.places import addresses_of, is_inside
from perdure.toolbox.web_guard import Resolve, resolve

ADDRESSES_TRIED = 4


class PinnedTransport(httpx2.AsyncBaseTransport):
    """Requests of one connection to an MCP server: the name is resolved for the first, and the others go where that
    went; of answers no more is read than `limits` has. A proxy that the environment names is not used: it would resolve
    the name by itself.

    Args:
        url: where the server was registered; nothing goes to another host.
        private: whether it may be on this machine or in a private network; None: it is not settled.
        led: is told with the first answer whether the name leads inside.
        resolver: how names become addresses.
        inner: what connects.
        verify: the certificates that are trusted; None: those of this machine and its environment.
    """

    def __init__(
        self,
        url: str,
        *,
        private: bool | None,
        led: Callable[[bool], None] | None = None,
        resolver: Resolve = resolve,
        inner: httpx2.AsyncBaseTransport | None = None,
        verify: ssl.SSLContext | None = None,
    ) -> None:
        self._host = httpx2.URL(url).host
        self._private, self._led, self._resolve = private, led, resolver
        self._inner = inner or httpx2.AsyncHTTPTransport(verify=verify or True)
        self._addresses: Sequence[str] = ()
        self._inside = False

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Raises: ConnectionError: the place is none for a server; httpx2.TransportError."""
        host = request.url.host
        if host != self._host:
            raise ConnectionError(f"it leads to another host, {host}, which was not registered")
        if not self._addresses:
            port = request.url.port or (443 if request.url.scheme == "https" else 80)
            found = await addresses_of(host, port, private=self._private, resolver=self._resolve)
            self._addresses, self._inside = found[:ADDRESSES_TRIED], is_inside(found)
        failed: httpx2.TransportError | None = None
        for address in self._addresses:
            extensions = dict(request.extensions)
            if address != host:
                extensions["sni_hostname"] = request.url.raw_host.decode(
                    "ascii"
                )  # also what the certificate is compared with
            pinned = httpx2.Request(
                request.method,
                request.url.copy_with(host=address),
                headers=request.headers,  # with the Host that was asked for
                stream=request.stream,
                extensions=extensions,
            )
            try:
                response = await self._inner.handle_async_request(pinned)
            except (httpx2.ConnectError, httpx2.ConnectTimeout) as error:
                failed = error
            else:
                self._addresses = (address,)
                if self._led is not None:
                    self._led(self._inside)
                    self._led = None
                bound_body(response, whole=ANSWER, event=ANSWER)
                return response
        raise failed or ConnectionError(f"the host {host} has no address")

    async def aclose(self) -> None:
        await self._inner.aclose()
