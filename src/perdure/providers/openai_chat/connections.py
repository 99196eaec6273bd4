"""The connections to one endpoint, shared by all models there."""

from __future__ import annotations

import asyncio
import functools
import ssl
from types import TracebackType

import httpx

from perdure.core.incoming.bodies import ACCEPT_ENCODING

__all__ = ["Connections"]

KEPT_OPEN = 100
KEPT_OPEN_S = 30.0


@functools.cache
def _tls() -> ssl.SSLContext:
    """The certificates, loaded once: that takes 40 ms, and httpx would do it for each client and each proxy."""
    return httpx.create_ssl_context()


class Connections:
    """An HTTP client, made when it is first needed and bound to the event loop that runs then.

    Proxies are those of the environment (`HTTPS_PROXY`, `NO_PROXY`), but for this machine's own addresses, which no
    proxy can reach. Redirects are not followed: they would carry the key to wherever they point.

    Args:
        connect_timeout_s: how long making a connection may take.
        client: a client of your own in place of that; `aclose` leaves it open.
    """

    def __init__(self, *, connect_timeout_s: float = 10.0, client: httpx.AsyncClient | None = None) -> None:
        self._connect_timeout_s = connect_timeout_s
        self._given = client
        self._made: tuple[asyncio.AbstractEventLoop, httpx.AsyncClient] | None = None

    def client(self) -> httpx.AsyncClient:
        """The client for the running loop."""
        if self._given is not None:
            return self._given
        loop = asyncio.get_running_loop()
        if self._made is None or self._made[0] is not loop or self._made[1].is_closed:
            # A client of another loop can't be closed from here; that loop is gone, and its connections with it.
            self._made = loop, self._new()
        return self._made[1]

    async def aclose(self) -> None:
        """Close the connections; the next request would open new ones."""
        made, self._made = self._made, None
        if made is not None and made[0] is asyncio.get_running_loop():
            await made[1].aclose()

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
            # How long an answer may take is each model's own business, see `OpenAIChat`.
            timeout=httpx.Timeout(None, connect=self._connect_timeout_s),
            headers={"Accept-Encoding": ACCEPT_ENCODING},
            # As many requests at once as there are runs; the engine bounds those.
            limits=httpx.Limits(
                max_connections=None, max_keepalive_connections=KEPT_OPEN, keepalive_expiry=KEPT_OPEN_S
            ),
        )
