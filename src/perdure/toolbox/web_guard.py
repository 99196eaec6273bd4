"""Keep requests to URLs that somebody else chose from reaching this machine, its network, or the cloud's metadata.

A name is resolved once, its addresses are checked, and the connection goes to a checked address, so that a second
answer of the name server can't lead elsewhere. Each hop of a redirect is checked again. Proxies and certificates that
the environment names are not used.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
import ssl
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import httpx

from perdure.core.errors import AddressRefused
from perdure.core.incoming.addresses import find_address, is_allowed, unwrap_address
from perdure.core.text.tables import read_table

if TYPE_CHECKING:
    import httpx2

R = TypeVar("R", httpx.Request, "httpx2.Request")

Resolve = Callable[[str, int], Awaitable[Sequence[str]]]
"""Resolves (host, port) to addresses, the best first. Raises: OSError."""

PORTS = frozenset({80, 443, 8080, 8443})
"""The ports of web pages. At any other port there is more likely something that is no web server."""

ADDRESSES_MAX = 4
"""How many addresses of a host are tried."""

ANY_PORT = range(1, 1 << 16)

_NETWORKS: Mapping[str, Mapping[str, str]] = read_table(__file__, "networks.toml")
_NONPUBLIC_V4 = [(ipaddress.IPv4Network(network), kind) for network, kind in _NETWORKS["v4"].items()]
_PUBLIC_V6 = ipaddress.IPv6Network("2000::/3")
_NONPUBLIC_V6 = [(ipaddress.IPv6Network(network), kind) for network, kind in _NETWORKS["v6"].items()]


def nonpublic_range(address: str) -> str | None:
    """What kind of range a non-public address is in, such as "a private network"; None: the address is public.

    Raises: ValueError: it is no address.
    """
    ip = unwrap_address(address)
    if isinstance(ip, ipaddress.IPv6Address):
        if ip.scope_id is not None:
            return "the local link"
        kind = next((kind for network, kind in _NONPUBLIC_V6 if ip in network), None)
        return kind or (None if ip in _PUBLIC_V6 else "a reserved range")
    return next((kind for network, kind in _NONPUBLIC_V4 if ip in network), None)


class SystemResolver:
    """Resolves hosts as this system does, in threads of its own.

    A name server that somebody else chose may be slow, and a look-up can't be cancelled: in the threads that the whole
    process shares, a few of them would hold up everything.
    """

    def __init__(self, threads: int) -> None:
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix="perdure-names")

    async def __call__(self, host: str, port: int) -> Sequence[str]:
        """The addresses of a host, each once, the best first. Raises: OSError: it has none."""
        look_up = partial(socket.getaddrinfo, host, port, type=socket.SOCK_STREAM)
        try:
            entries = await asyncio.get_running_loop().run_in_executor(self._threads, look_up)
        except UnicodeError as error:
            raise OSError(f"{host[:100]} is not the name of a host") from error
        return list(dict.fromkeys(str(entry[4][0]) for entry in entries))


resolve = SystemResolver(8)


class WebGuard:
    """Resolves hosts and refuses those with non-public addresses.

    Args:
        allowed: hosts, as `name` or `name:port`, that may be reached at any address and port (or that one), such as
            those of an intranet.
        ports: where hosts may be reached that are not among the allowed ones.
        private: whether they may be on this machine or in a private network. The local link may not be reached, nor
            the metadata of clouds.
    """

    def __init__(
        self,
        allowed: Iterable[str] = (),
        *,
        ports: Collection[int] = PORTS,
        private: bool = False,
        resolver: Resolve = resolve,
    ) -> None:
        self._allowed = frozenset(entry.strip().lower() for entry in allowed if entry.strip())
        self._ports, self._private, self._resolve = ports, private, resolver

    async def resolve_url(self, url: httpx.URL | httpx2.URL) -> tuple[str, tuple[str, ...]]:
        """(host of a URL, its addresses, the best first). Raises: AddressRefused; OSError: the name has no address."""
        if url.scheme not in ("http", "https"):
            raise AddressRefused(strip_url(url), f"only http and https are fetched, not {url.scheme or 'a bare name'}")
        if url.userinfo:
            raise AddressRefused(strip_url(url), "it holds a user name or password")
        host = url.raw_host.decode("ascii").rstrip(".").lower()
        if not host:
            raise AddressRefused(strip_url(url), "it names no host")
        port = url.port or (443 if url.scheme == "https" else 80)
        host = host.strip("[]")  # of an IPv6 address
        return host, await self.resolve_host(host, port, label=strip_url(url))

    async def resolve_host(
        self, host: str, port: int, *, ports: Collection[int] | None = None, label: str | None = None
    ) -> tuple[str, ...]:
        """The addresses of a host, the best first.

        Args:
            host: in lower case, an IPv6 address without brackets.
            ports: in place of those of the guard.
            label: what an error calls the host; by default `host:port`.
        Raises: AddressRefused; OSError: the name has no address.
        """
        label, ports = label or host_and_port(host, port), self._ports if ports is None else ports
        allowed = not self._allowed.isdisjoint({host, f"[{host}]", host_and_port(host, port)})
        if not allowed and port not in ports:
            names = ", ".join(map(str, sorted(ports)))
            raise AddressRefused(label, f"port {port} is not one of those of web pages: {names}")
        addresses = (host,) if find_address(host) else await self._resolve_name(host, port, label)
        if not allowed:
            for address in addresses:
                kind = nonpublic_range(address)
                if kind is not None and not (self._private and is_allowed(address)):
                    raise AddressRefused(label, f"it leads to {address}, which is {kind}")
        return tuple(addresses)

    async def _resolve_name(self, host: str, port: int, label: str) -> Sequence[str]:
        """The addresses of a name. Raises: AddressRefused: it is a number in an unusual form; OSError."""
        # Systems read 2130706433, 0x7f.1 and 017700000001 as addresses too; a person who means a page writes none.
        last = host.rsplit(".", 1)[-1]
        if last.isdigit() or last.startswith("0x"):
            raise AddressRefused(label, "its address is written in an unusual way: write four decimal numbers")
        addresses = await self._resolve(host, port)
        if not addresses:
            raise OSError(f"{host} has no address")
        return addresses


class GuardedTransport(httpx.AsyncBaseTransport):
    """A transport of `httpx` that connects only where its guard allows, at each hop.

    Connections are not kept: on a kept connection to an address, the certificate of another name would not be checked.

    Args:
        verify: the trusted certificates; None: those that every client of `httpx` trusts.
        inner: the transport that connects; by default one without proxies that keeps no connection.
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
        """Send a request. Raises: AddressRefused; httpx.TransportError."""
        response: httpx.Response = await send_checked(self._guard, self._inner, request, httpx)
        return response

    async def aclose(self) -> None:
        await self._inner.aclose()


async def send_checked(guard: WebGuard, inner: Any, request: R, http: Any) -> Any:
    """Send a request, by transport `inner`, to the first address of its host that answers, after the guard has checked
    all of them; return the response. `http`: the package of the request, `httpx` or `httpx2`. Raises: AddressRefused;
    the package's TransportError."""
    try:
        host, addresses = await guard.resolve_url(request.url)
    except OSError as error:
        name = request.url.raw_host.decode("ascii")  # `host` fails for what only looks like IDNA
        raise http.ConnectError(f"{name} could not be resolved: {error}", request=request) from error
    failure = http.ConnectError(f"{host} has no address", request=request)
    for address in addresses[:ADDRESSES_MAX]:
        try:
            return await inner.handle_async_request(pin_request(request, host, address))
        except (http.ConnectError, http.ConnectTimeout) as error:
            failure = error
    raise failure


def pin_request(request: R, host: str, address: str) -> R:
    """The request to one address of its host. The Host header and the name that the certificate must have stay."""
    extensions = dict(request.extensions) | ({} if address == host else {"sni_hostname": host})
    url = request.url.copy_with(host=address)
    return type(request)(request.method, url, headers=request.headers, stream=request.stream, extensions=extensions)


def host_and_port(host: str, port: int) -> str:
    """`host:port`, with an IPv6 address in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def strip_url(url: httpx.URL | httpx2.URL) -> str:
    """A URL without user, query and fragment, where secrets may be."""
    return str(url.copy_with(userinfo=b"", query=None, fragment=None))[:200]
