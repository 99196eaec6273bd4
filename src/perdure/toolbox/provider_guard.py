"""Where the providers of models may be that clients registered: checked at registration, and for each request."""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from typing import TYPE_CHECKING

from perdure.core.errors import AddressRefused, InvalidInput

if TYPE_CHECKING:
    import httpx
    import httpx2

    from perdure.toolbox.web_guard import Resolve, WebGuard


@dataclass(frozen=True, slots=True)
class ProviderGuard:
    """Makes transports for the requests to one provider. Each request resolves the name anew and opens a connection of
    its own. Proxies of the environment are not used: they would resolve the name themselves.

    Args:
        private: whether the provider may be on this machine or in a private network. Link-local addresses, where
            clouds keep their metadata, are refused in any case.
        resolver: None: that of this system.
    """

    private: bool = False
    resolver: Resolve | None = None

    def transport(self, verify: ssl.SSLContext) -> httpx.AsyncBaseTransport:
        """A transport for clients of `httpx`."""
        import httpx

        from perdure.toolbox.web_guard import GuardedTransport

        limits = httpx.Limits(max_connections=None, max_keepalive_connections=0)
        inner = httpx.AsyncHTTPTransport(verify=verify, trust_env=False, limits=limits)
        return GuardedTransport(self._guard(), inner=inner)

    def transport2(self, verify: ssl.SSLContext) -> httpx2.AsyncBaseTransport:
        """A transport for clients of `httpx2`."""
        import httpx2

        from perdure.toolbox.guarded_httpx2 import GuardedTransport2

        limits = httpx2.Limits(max_connections=None, max_keepalive_connections=0)
        inner = httpx2.AsyncHTTPTransport(verify=verify, trust_env=False, limits=limits)
        return GuardedTransport2(self._guard(), inner)

    async def check(self, url: str) -> None:
        """Raises: AddressRefused: the provider may not be at this address; OSError: its name has no address;
        InvalidInput: it is no address."""
        import httpx

        try:
            parsed = httpx.URL(url)
            _ = parsed.host  # which fails for what only looks like IDNA
            await self._guard().resolve_url(parsed)
        except (httpx.InvalidURL, UnicodeError) as error:
            raise InvalidInput(f"base_url is no address: {error}") from error

    def _guard(self) -> WebGuard:
        from perdure.toolbox.web_guard import ANY_PORT, WebGuard, resolve

        return WebGuard(ports=ANY_PORT, private=self.private, resolver=self.resolver or resolve)


async def place_provider(url: str, *, private: bool) -> ProviderGuard:
    """The guard of a provider that a client registers at this address now.

    Args:
        private: whether clients may name addresses on this machine and in private networks.
    Raises: AddressRefused, InvalidInput.
    """
    guard = ProviderGuard()
    try:
        await guard.check(url)
    except AddressRefused:
        if not private:
            raise
        guard = ProviderGuard(private=True)
        await guard.check(url)
    except OSError:  # a name without an address yet may get one inside
        guard = ProviderGuard(private=private)
    return guard
