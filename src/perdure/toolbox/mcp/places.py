"""Where an MCP server over HTTP may be: its addresses are looked up once for a connection, and judged.

A private network is allowed to a server that was registered there. A name that was registered as one of the outside
and leads inside later is not followed there: whoever answers for the name is not who registered it.
"""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import urlsplit

from perdure.core.mcp import is_allowed
from perdure.toolbox.web_guard import Resolve, is_address, refusal_of, resolve, untranslated


async def addresses_of(host: str, port: int, *, private: bool | None, resolver: Resolve = resolve) -> Sequence[str]:
    """The addresses of a server's host, judged, the best first.

    Args:
        private: whether they may be on this machine or in a private network; None: it is not settled, so they may.
    Raises: ConnectionError: it can't be resolved, or one of them leads where the server may not be.
    """
    bare = host.strip("[]")
    try:
        found = (bare,) if is_address(bare) else await resolver(bare, port)
    except OSError as error:
        raise ConnectionError(f"the host {host} can't be resolved: {error.strerror or error}") from error
    if not found:
        raise ConnectionError(f"the host {host} has no address")
    for address in found:
        real = untranslated(address)
        if not is_allowed(real):
            raise ConnectionError(f"the host {host} leads to {real}, where no MCP server is looked for")
        if private is False and (what := refusal_of(address)) is not None:
            raise ConnectionError(
                f"the host {host} leads to {real} now, which is {what}, and the server was registered as one outside:"
                " if it may be there, say so with `private=True`, or register it anew with `--private`"
            )
    return found


async def leads_inside(url: str, *, resolver: Resolve = resolve) -> bool:
    """Whether an address of the web leads to this machine or a private network now. False: it does not, or it can't be
    resolved."""
    parts = urlsplit(url)
    host = (parts.hostname or "").rstrip(".")
    try:
        found = (host,) if is_address(host) else await resolver(host, parts.port or 443)
    except OSError:
        return False
    return is_inside(found)


def is_inside(addresses: Sequence[str]) -> bool:
    """Whether one of these addresses is on this machine or in a private network."""
    return any(refusal_of(address) is not None for address in addresses)
