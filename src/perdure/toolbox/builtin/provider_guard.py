"""Addresses that clients chose, behind the web guard: of providers of models that they registered, checked then and for
each request; and of callbacks, which get reports."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from perdure.core.errors import AddressRefused, InvalidInput, ToolError
from perdure.core.runs import Callback

if TYPE_CHECKING:
    import httpx
    import httpx2

    from perdure.toolbox.web_guard import Resolve, WebGuard

USER_AGENT = "Perdure (+callback)"
REPORT_S = 15.0


class Reports:
    """Sends reports to callbacks. The bodies of answers are not read, and redirects are not followed. `allowed_hosts`:
    as the web guard takes them; receivers that may be private need not be among them."""

    def __init__(self, allowed_hosts: Iterable[str] = ()) -> None:
        self._allowed_hosts = tuple(allowed_hosts)

    async def send(self, callback: Callback, report: Mapping[str, Any]) -> int:
        """POST a report as JSON; return the status of the answer. Raises: AddressRefused; ToolError: no answer."""
        import httpx  # for those who use callbacks

        from perdure.toolbox.builtin.fetch_webpage import certificates
        from perdure.toolbox.web_guard import ANY_PORT, PORTS, GuardedTransport, WebGuard

        ports = ANY_PORT if callback.private else PORTS
        guard = WebGuard(self._allowed_hosts, ports=ports, private=callback.private)
        try:
            async with (
                asyncio.timeout(REPORT_S),
                httpx.AsyncClient(
                    transport=GuardedTransport(guard, verify=certificates()),
                    timeout=REPORT_S,
                    follow_redirects=False,
                    trust_env=False,
                    headers={"User-Agent": USER_AGENT},
                ) as client,
                client.stream("POST", callback.url, json=report) as response,
            ):
                return response.status_code
        except TimeoutError as error:
            raise ToolError(f"there was no answer within {REPORT_S:g} s") from error
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise ToolError(f"the report could not be sent: {str(error) or type(error).__name__}") from error


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
        """Check that the provider may use this address. Raises: AddressRefused; InvalidInput; OSError: unknown host."""
        import httpx

        try:
            parsed = httpx.URL(url)
            _ = parsed.host  # which fails for what only looks like IDNA
            await self._guard().resolve_url(parsed)
        except (httpx.InvalidURL, UnicodeError) as error:
            raise InvalidInput(f"base_url is not an address: {error}") from error

    def _guard(self) -> WebGuard:
        """The web guard, which lets a provider have any port."""
        from perdure.toolbox.web_guard import ANY_PORT, WebGuard, resolve

        return WebGuard(ports=ANY_PORT, private=self.private, resolver=self.resolver or resolve)


async def place_provider(url: str, *, private: bool) -> ProviderGuard:
    """The guard of a provider that a client registers at this address now; `private`: it may be on this machine or in a
    private network. Raises: AddressRefused, InvalidInput."""
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
