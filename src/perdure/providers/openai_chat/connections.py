"""The connections to one endpoint, shared by all models there."""

from __future__ import annotations

import asyncio
import functools
import ssl
from types import TracebackType

import httpx

from perdure.core.incoming.bodies import ACCEPT_ENCODING

IDLE_MAX = 100
IDLE_S = 30.0


@functools.cache
def _tls() -> ssl.SSLContext:
    """The certificates, loaded once: httpx would load them for each client and proxy, 40 ms each."""
    return httpx.create_ssl_context()


class Connections:
    """An HTTP client for each event loop, made at its first use.

    Proxies come from the environment (`HTTPS_PROXY`, `NO_PROXY`), except for this machine's own addresses. Redirects
    are not followed: they would carry the key to their target.

    Args:
        connect_timeout_s: how long making a connection may take.
        client: used in place of a new one; `aclose` leaves it open.
    """

    def __init__(self, *, connect_timeout_s: float = 10.0, client: httpx.AsyncClient | None = None) -> None:
        self._connect_timeout_s = connect_timeout_s
        self._own_client = client
        self._pooled: tuple[asyncio.AbstractEventLoop, httpx.AsyncClient] | None = None

    def client(self) -> httpx.AsyncClient:
        """The client for the running loop."""
        if self._own_client is not None:
            return self._own_client
        loop = asyncio.get_running_loop()
        if self._pooled is None or self._pooled[0] is not loop or self._pooled[1].is_closed:
            # The client of another loop can't be closed from this one; its connections went with its loop.
            self._pooled = loop, self._new()
        return self._pooled[1]

    async def aclose(self) -> None:
        """Close the connections; the next request would open new ones."""
        pooled, self._pooled = self._pooled, None
        if pooled is not None and pooled[0] is asyncio.get_running_loop():
            await pooled[1].aclose()

    async def __aenter__(self) -> Connections:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    def _new(self) -> httpx.AsyncClient:
        return httpx.AsyncClient(
            verify=_tls(),
            trust_env=True,
            mounts=dict.fromkeys(("all://localhost", "all://127.0.0.1", "all://[::1]")),
            # Each model limits the time of its answer, see `OpenAIChat`.
            timeout=httpx.Timeout(None, connect=self._connect_timeout_s),
            headers={"Accept-Encoding": ACCEPT_ENCODING},
            # The engine limits how many runs, and so requests, there are at once.
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=IDLE_MAX, keepalive_expiry=IDLE_S),
        )
