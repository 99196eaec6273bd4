"""Resolve the host of an MCP server and check its addresses, once for each connection.

Only a server that was registered as private may be on this machine or in a private network ("inside"). A name that was
registered as public and leads inside later is refused: somebody else may answer for the name by then.
"""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import urlsplit

from perdure.core.incoming.addresses import find_address, is_allowed, unwrap_address
from perdure.toolbox.web_guard import Resolve, nonpublic_range, resolve


async def resolve_host(host: str, port: int, *, private: bool | None, resolver: Resolve = resolve) -> Sequence[str]:
    """The addresses of a server's host, the best first.

    Args:
        private: whether they may be inside; None: it is not settled, so they may.
    Raises: ConnectionError: it can't be resolved, or one of them is where the server may not be.
    """
    name = host.strip("[]")
    try:
        addresses = (name,) if find_address(name) else await resolver(name, port)
    except OSError as error:
        raise ConnectionError(f"the host {host} can't be resolved: {error.strerror or error}") from error
    if not addresses:
        raise ConnectionError(f"the host {host} has no address")
    for address in addresses:
        real = unwrap_address(address)
        if not is_allowed(address):
            raise ConnectionError(f"the host {host} leads to {real}, where no MCP server is looked for")
        if private is False and (kind := nonpublic_range(address)) is not None:
            raise ConnectionError(
                f"the host {host} leads to {real} now, which is {kind}, and the server was registered as one outside:"
                " if it may be there, say so with `private=True`, or register it anew with `--private`"
            )
    return addresses


async def leads_inside(url: str, *, resolver: Resolve = resolve) -> bool:
    """Whether the host of a URL has an address inside now. False: it has none, or can't be resolved."""
    parts = urlsplit(url)
    host = (parts.hostname or "").rstrip(".")
    try:
        addresses = (host,) if find_address(host) else await resolver(host, parts.port or 443)
    except OSError:
        return False
    return is_inside(addresses)


def is_inside(addresses: Sequence[str]) -> bool:
    """Whether one of these addresses is on this machine or in a private network."""
    return any(nonpublic_range(address) is not None for address in addresses)
