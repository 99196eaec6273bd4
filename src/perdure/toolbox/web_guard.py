"""What keeps a request that somebody else chose from reaching this machine, its network, or the cloud's metadata.

A name is resolved once, its addresses are judged, and the connection goes to the very address that was judged, so that
a second answer of the name server can't lead elsewhere. Each hop of a redirect passes here again. Proxies and
certificates that the environment names are not used.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
import ssl
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial

import httpx

from perdure.core.errors import AddressRefused

Resolve = Callable[[str, int], Awaitable[Sequence[str]]]
"""(host, port) -> its addresses, the best first. Raises: OSError."""

PORTS = frozenset({80, 443, 8080, 8443})
"""Where web pages are. Behind any other port a request would more likely talk to something that is no web server."""

ADDRESSES_TRIED = 4

_REFUSED_V4 = tuple(
    (ipaddress.IPv4Network(network), what)
    for network, what in (
        ("127.0.0.0/8", "this machine"),
        ("10.0.0.0/8", "a private network"),
        ("172.16.0.0/12", "a private network"),
        ("192.168.0.0/16", "a private network"),
        ("169.254.0.0/16", "the local link, where clouds keep their metadata"),
        ("100.64.0.0/10", "a provider's inner network"),
        ("168.63.129.16/32", "a cloud's host"),
        ("0.0.0.0/8", "no host"),
        ("192.0.0.0/24", "a reserved range"),
        ("192.0.2.0/24", "a range for examples"),
        ("192.88.99.0/24", "a reserved range"),
        ("198.18.0.0/15", "a range for measurements"),
        ("198.51.100.0/24", "a range for examples"),
        ("203.0.113.0/24", "a range for examples"),
        ("224.0.0.0/4", "many hosts at once"),
        ("240.0.0.0/4", "a reserved range"),
    )
)
_PUBLIC_V6 = ipaddress.IPv6Network("2000::/3")
_REFUSED_V6 = tuple(
    (ipaddress.IPv6Network(network), what)
    for network, what in (
        ("::1/128", "this machine"),
        ("fc00::/7", "a private network"),
        ("fe80::/10", "the local link"),
        ("ff00::/8", "many hosts at once"),
        ("64:ff9b:1::/48", "a translated private address"),
        ("2001::/23", "a reserved range"),
        ("2001:db8::/32", "a range for examples"),
        ("3fff::/20", "a range for examples"),
    )
)
# Networks whose addresses carry an IPv4 address, and how far from the end that stands.
_CARRIES_V4 = (
    (ipaddress.IPv6Network("::ffff:0:0/96"), 0),
    (ipaddress.IPv6Network("64:ff9b::/96"), 0),
    (ipaddress.IPv6Network("2002::/16"), 80),
)


def refusal_of(address: str) -> str | None:
    """What an address leads to that nothing from outside may reach; None: it is a public one.

    Raises: ValueError: it is no address.
    """
    found = untranslated(address)
    if isinstance(found, ipaddress.IPv6Address):
        if found.scope_id is not None:
            return "the local link"
        refused = next((what for network, what in _REFUSED_V6 if found in network), None)
        return refused or (None if found in _PUBLIC_V6 else "a reserved range")
    return next((what for network, what in _REFUSED_V4 if found in network), None)


def untranslated(address: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    """The address, or the IPv4 one that it carries, as mapped, NAT64 and 6to4 addresses do.

    Raises: ValueError: it is no address.
    """
    found = ipaddress.ip_address(address)
    if isinstance(found, ipaddress.IPv6Address) and found.scope_id is None:
        for network, bits in _CARRIES_V4:
            if found in network:
                return ipaddress.IPv4Address(int(found) >> bits & 0xFFFFFFFF)
    return found


class SystemResolver:
    """The addresses of a host, as this system resolves it, in threads of its own.

    A name server that somebody else chose may take its time, and a look-up can't be ended: in the threads that all of
    the process shares a few of them would hold up everything.
    """

    def __init__(self, threads: int) -> None:
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix="perdure-names")

    async def __call__(self, host: str, port: int) -> Sequence[str]:
        """Raises: OSError."""
        look_up = partial(socket.getaddrinfo, host, port, type=socket.SOCK_STREAM)
        found = await asyncio.get_running_loop().run_in_executor(self._threads, look_up)
        return list(dict.fromkeys(str(entry[4][0]) for entry in found))


resolve = SystemResolver(8)


@dataclass(frozen=True, slots=True)
class CheckedHost:
    """The host of a URL and its IP addresses, all allowed by the guard. A request connects to no other address."""

    host: str
    addresses: tuple[str, ...]


class WebGuard:
    """Judges addresses of the web.

    Args:
        allowed: hosts, as `name` or `name:port`, that may be reached wherever they are and at any port (or that one):
            those of an intranet.
        resolver: how names become addresses.
    """

    def __init__(self, allowed: Iterable[str] = (), *, resolver: Resolve = resolve) -> None:
        self._allowed = frozenset(entry.strip().lower() for entry in allowed if entry.strip())
        self._resolve = resolver

    async def place_of(self, url: httpx.URL) -> CheckedHost:
        """Where a request for this address goes. Raises: AddressRefused; OSError: the name leads nowhere."""
        if url.scheme not in ("http", "https"):
            raise AddressRefused(_shown(url), f"only http and https are fetched, not {url.scheme or 'a bare name'}")
        if url.userinfo:
            raise AddressRefused(_shown(url), "it holds a user name or password")
        host = url.raw_host.decode("ascii").rstrip(".").lower()
        if not host:
            raise AddressRefused(_shown(url), "it names no host")
        port = url.port or (443 if url.scheme == "https" else 80)
        return CheckedHost(host.strip("[]"), await self.addresses_of(host.strip("[]"), port, shown=_shown(url)))

    async def addresses_of(
        self, host: str, port: int, *, ports: Collection[int] = PORTS, shown: str | None = None
    ) -> tuple[str, ...]:
        """Where a connection to this host and port goes: an address to try first, and others.

        Args:
            host: in lower case, an IPv6 address without brackets.
            ports: those that a host which is not among the allowed ones may be reached at.
            shown: how an error calls it.
        Raises: AddressRefused; OSError: the name leads nowhere.
        """
        shown = shown or _place(host, port)
        allowed = not self._allowed.isdisjoint({host, f"[{host}]", _place(host, port)})
        if not allowed and port not in ports:
            known = ", ".join(map(str, sorted(ports)))
            raise AddressRefused(shown, f"port {port} is not one of those of web pages: {known}")
        addresses = (host,) if is_address(host) else await self._addresses(host, port, shown)
        if not allowed:
            for address in addresses:
                if (what := refusal_of(address)) is not None:
                    raise AddressRefused(shown, f"it leads to {address}, which is {what}")
        return tuple(addresses)

    async def _addresses(self, host: str, port: int, shown: str) -> Sequence[str]:
        # Systems read 2130706433, 0x7f.1 and 017700000001 as addresses too; a person who means a page writes none.
        last = host.rsplit(".", 1)[-1]
        if last.isdigit() or last.startswith("0x"):
            raise AddressRefused(shown, "its address is written in an unusual way: write four decimal numbers")
        addresses = await self._resolve(host, port)
        if not addresses:
            raise OSError(f"{host} has no address")
        return addresses


class GuardedTransport(httpx.AsyncBaseTransport):
    """A transport of `httpx` that goes only where its guard allows, at each hop.

    Connections are not kept: over one that is open to an address another name's certificate would not be looked at.

    Args:
        verify: the certificates that are trusted; None: those that every client of `httpx` trusts.
        inner: what connects, in place of one that takes no proxy from the environment and keeps no connection.
    """

    def __init__(
        self, guard: WebGuard, *, verify: ssl.SSLContext | None = None, inner: httpx.AsyncBaseTransport | None = None
    ) -> None:
        self._guard = guard
        self._inner = inner or httpx.AsyncHTTPTransport(
            verify=verify or httpx.create_ssl_context(trust_env=False),
            trust_env=False,
            limits=httpx.Limits(max_connections=8, max_keepalive_connections=0),
        )

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Raises: AddressRefused; httpx.TransportError."""
        try:
            place = await self._guard.place_of(request.url)
        except OSError as error:
            raise httpx.ConnectError(f"{request.url.host} could not be resolved: {error}", request=request) from error
        extensions = dict(request.extensions)
        if not is_address(place.host):
            extensions["sni_hostname"] = place.host  # also what the certificate is compared with
        failed: httpx.TransportError | None = None
        for address in place.addresses[:ADDRESSES_TRIED]:
            pinned = httpx.Request(
                request.method,
                request.url.copy_with(host=address),
                headers=request.headers,  # with the Host that was asked for
                stream=request.stream,
                extensions=extensions,
            )
            try:
                return await self._inner.handle_async_request(pinned)
            except (httpx.ConnectError, httpx.ConnectTimeout) as error:
                failed = error
        raise failed or httpx.ConnectError(f"{place.host} has no address", request=request)

    async def aclose(self) -> None:
        await self._inner.aclose()


def is_address(host: str) -> bool:
    """Whether a host is named by its number, and not by a name to resolve."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def _place(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _shown(url: httpx.URL) -> str:
    """The address for an error, without what may be secret in it."""
    return str(url.copy_with(userinfo=b"", query=None, fragment=None))[:200]
