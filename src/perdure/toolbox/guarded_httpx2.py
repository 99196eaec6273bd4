"""The transport of the web guard for clients of `httpx2`, which is there with some extras only."""

from __future__ import annotations

import httpx2

from perdure.toolbox.web_guard import WebGuard, send_checked


class GuardedTransport2(httpx2.AsyncBaseTransport):
    """A transport of `httpx2` that connects by `inner`, but only where its guard allows; see `GuardedTransport`."""

    def __init__(self, guard: WebGuard, inner: httpx2.AsyncBaseTransport) -> None:
        self._guard, self._inner = guard, inner

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send a request. Raises: AddressRefused; httpx2.TransportError."""
        response: httpx2.Response = await send_checked(self._guard, self._inner, request, httpx2)
        return response

    async def aclose(self) -> None:
        await self._inner.aclose()
