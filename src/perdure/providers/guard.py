"""How an address that a client chose is kept from leading inside: the port to the guard, which the tools have."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import ssl

    import httpx
    import httpx2


class Guard(Protocol):
    """Makes transports that connect only where a provider may be that a client registered."""

    def transport(self, verify: ssl.SSLContext) -> httpx.AsyncBaseTransport:
        """A transport for clients of `httpx`. It raises AddressRefused."""

    def transport2(self, verify: ssl.SSLContext) -> httpx2.AsyncBaseTransport:
        """A transport for clients of `httpx2`. It raises AddressRefused."""
