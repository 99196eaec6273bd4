"""The hosts and origins that the server answers.

A web page can send requests to this machine's loopback, except those that need a preflight, which this server never
grants. `Host` is compared with a list, which stops DNS rebinding. `Origin` and `Sec-Fetch-Site` reveal a foreign page.
A body must have a type that no form and no plain `fetch` can send without a preflight.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from perdure.server.config import ANY, LOOPBACK_NAMES, NULL_ORIGIN, ServerConfig

HEADERS = frozenset(
    {b"host", b"origin", b"sec-fetch-site", b"content-type"}
    | {b"authorization", b"x-bare-password", b"x-stainless-lang", b"x-requested-with"}
)
"""The headers that this module reads."""

_HOST = re.compile(r"(?P<name>\[[0-9a-f:.]+\]|[^:\[\]/@?#\s]+)(?::(?P<port>\d{1,5}))?")
_ORIGIN = re.compile(r"(?P<scheme>https?)://(?P<host>[^/]+)")
_JSON = re.compile(rb"application/(?:json|[a-z0-9!#$&^_.+-]+\+json)")

DEFAULT_PORTS = {"http": "80", "https": "443"}

SCRIPT_HEADERS = (b"x-bare-password", b"x-stainless-lang", b"x-requested-with")
"""Headers that a page of another origin can't send without a preflight."""

CACHE_MAX = 1_000


class Origins:
    """The hosts and origins that a configuration allows."""

    def __init__(self, config: ServerConfig) -> None:
        self._origins = frozenset(name.lower() for name in config.allowed_hosts if name == NULL_ORIGIN or "://" in name)
        self._allowed = frozenset(map(_normalized, config.allowed_hosts)) - self._origins
        self._names = {*LOOPBACK_NAMES, config.host.strip("[]").lower(), *self._allowed}
        self._any = ANY in config.allowed_hosts
        self._cache: dict[bytes, bool] = {}  # by the Host header: clients repeat few different ones

    def problem(self, headers: Mapping[bytes, bytes]) -> str | None:
        """Why a request with these headers is refused; None: it is allowed."""
        host = headers.get(b"host", b"")
        if not self._is_known_host(host):
            if not host:
                return "the request has no Host header"
            return f"Host {_quoted(host)} is not allowed here; add it to PERDURE_ALLOWED_HOSTS if it is yours"
        origin = headers.get(b"origin")
        allowed = origin is not None and self._is_allowed(origin)
        if origin is not None and not allowed and not _is_same(origin, host):
            return (
                f"Origin {_quoted(origin)} is not allowed here: it is not the server's own; add its host (and port) to"
                " PERDURE_ALLOWED_HOSTS if it is yours"
            )
        site = headers.get(b"sec-fetch-site", b"none").lower()
        if site not in (b"same-origin", b"none") and not allowed:
            return (
                f"Sec-Fetch-Site {_quoted(site)} is not allowed here: a page of another origin sent the request; add"
                " its host (and port) to PERDURE_ALLOWED_HOSTS if it is yours"
            )
        return None

    def _is_known_host(self, host: bytes) -> bool:
        """Whether `Host` names this server."""
        is_known = self._cache.get(host)
        if is_known is None:
            match = _HOST.fullmatch(host.decode("latin-1").lower())
            is_known = match is not None and (self._any or _matches_any(match, self._names, *DEFAULT_PORTS.values()))
            if len(self._cache) < CACHE_MAX:  # ever new names must not fill the memory
                self._cache[host] = is_known
        return is_known

    def _is_allowed(self, origin: bytes) -> bool:
        """Whether `allowed_hosts` names this origin or its host."""
        text = origin.decode("latin-1").lower()
        if not self._origins.isdisjoint((text, f"{text.partition('://')[0]}://{ANY}")):
            return True
        parts = _parts(origin)
        return parts is not None and (self._any or _matches_any(parts[1], self._allowed, DEFAULT_PORTS[parts[0]]))


def body_type_problem(headers: Mapping[bytes, bytes]) -> str | None:
    """Why a body of this type is refused, since any web page could send it; None: its type is JSON."""
    kind = headers.get(b"content-type", b"").partition(b";")[0].strip().lower()
    if _JSON.fullmatch(kind):
        return None
    problem = f"the body's Content-Type is {_quoted(kind)}" if kind else "the request has a body and no Content-Type"
    return f"{problem}: send JSON with `Content-Type: application/json`"


def upload_problem(headers: Mapping[bytes, bytes]) -> str | None:
    """Why an upload is refused; None: it is allowed.

    A form on any web page can send a multipart body, but not set a header. So one such header is required.
    """
    if any(name in headers for name in SCRIPT_HEADERS) or headers.get(b"authorization", b"")[:7].lower() == b"bearer ":
        return None
    return (
        "an upload needs a header that no web page's form can send: the API key as `Authorization: Bearer`, or"
        " `X-Requested-With` with any value"
    )


def _parts(origin: bytes) -> tuple[str, re.Match[str]] | None:
    """The scheme and the host of an origin; None: it is not one of a web page."""
    match = _ORIGIN.fullmatch(origin.decode("latin-1").lower())
    host = match and _HOST.fullmatch(match["host"])
    return (match["scheme"], host) if match and host else None


def _is_same(origin: bytes, host: bytes) -> bool:
    """Whether a page's origin has the same name and port as the request's host."""
    parts, target = _parts(origin), _HOST.fullmatch(host.decode("latin-1").lower())
    if parts is None or target is None:
        return False
    default = DEFAULT_PORTS[parts[0]]
    return (_name(parts[1]), parts[1]["port"] or default) == (_name(target), target["port"] or default)


def _matches_any(match: re.Match[str], names: frozenset[str] | set[str], *default_ports: str) -> bool:
    """Whether a host is one of `names`, which may have a port. `default_ports`: those that clients leave out."""
    name = _name(match)
    ports = default_ports if match["port"] is None else (match["port"],)
    return name in names or any(f"{name}:{port}" in names for port in ports)


def _name(match: re.Match[str]) -> str:
    """The name of a host, without brackets and a final dot."""
    return match["name"].strip("[]").rstrip(".")


def _normalized(allowed: str) -> str:
    """An allowed host in the form that requests are compared in: without brackets and without a final dot."""
    match = _HOST.fullmatch(allowed)
    if match is None:
        return allowed
    return _name(match) if match["port"] is None else f"{_name(match)}:{match['port']}"


def _quoted(value: bytes) -> str:
    """The beginning of a header's value, for an error text."""
    return repr(value.decode("latin-1")[:80])
