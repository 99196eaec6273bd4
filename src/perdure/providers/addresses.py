"""Addresses of servers: their paths, what may be shown of them, and whether they are near."""

from __future__ import annotations

import ipaddress
import urllib.parse

_NEAR_NAMES = ("localhost", "host.docker.internal", "host.containers.internal")
_NEAR_ENDS = (".local", ".lan", ".home", ".internal")


def api_path(path: str) -> str:
    """The path of a chat API, without `/chat/completions` and a / at the end.

    >>> api_path("/v1/chat/completions/")
    '/v1'
    """
    return path.rstrip("/").removesuffix("/chat/completions").rstrip("/")


def without_secrets(url: str) -> str:
    """The address without user, password and query."""
    scheme, separator, rest = url.partition("://")
    if not separator:
        scheme, rest = "", url
    place, slash, path = rest.partition("/")
    return f"{scheme}{separator}{place.rpartition('@')[2].partition('?')[0]}{slash}{path.partition('?')[0]}"


def is_loopback(url: str) -> bool:
    """Whether an address is one of this machine's own."""
    host = urllib.parse.urlsplit(url).hostname or ""
    return host in ("localhost", "::1") or host.startswith("127.")


def is_near(url: str) -> bool:
    """Whether an address is of this machine or its network: who runs a server there has chosen its models.

    >>> is_near("http://192.168.1.5:8080/v1"), is_near("http://llama:8080/v1"), is_near("https://api.groq.com/v1")
    (True, True, False)
    """
    host = (urllib.parse.urlsplit(url).hostname or "").lower()
    try:
        return ipaddress.ip_address(host).is_private
    except ValueError:
        return host in _NEAR_NAMES or host.endswith(_NEAR_ENDS) or bool(host and "." not in host)


def beside_api(url: str, path: str) -> str:
    """The address of what a server has beside its API, which is under `/v1`.

    >>> beside_api("http://127.0.0.1:8080/v1", "/props")
    'http://127.0.0.1:8080/props'
    """
    parts = urllib.parse.urlsplit(url)
    return urllib.parse.urlunsplit(parts._replace(path=f"{parts.path.rstrip('/').removesuffix('/v1')}{path}"))
