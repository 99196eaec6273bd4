"""Addresses: of stores, a path of a file or `postgresql://...`, which may hold a password; and of hosts.

A host is given without port and, if it is not said otherwise, without the brackets of an IPv6 address.
"""

from __future__ import annotations

import re
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address, ip_network
from pathlib import Path

from perdure.core.errors import InvalidInput

POSTGRES = ("postgresql://", "postgres://")
MASK = "***"

_USER = re.compile(r"(?s)^(\w+://[^/]*?):.*@")
_ANY_USER = re.compile(r"(://[^/\s:@]*):[^/\s]*@")
_FOREIGN = re.compile(r"[A-Za-z][\w+.-]*://|postgres(?:ql)?(?:\+\w+)?:")
_KEYWORDS = re.compile(r"\s*(?:host|hostaddr|port|dbname|user|password|service|sslmode)\s*=")
_QUERY = re.compile(r"(?i)([?&](?:ssl)?password=)[^&]*")
_METADATA = frozenset({"168.63.129.16", "100.100.100.200", "192.0.0.192", "fd00:ec2::254", "fd20:ce::254"})
# Networks whose addresses hold an IPv4 address, and how many bits from the end it lies.
_WRAPS_V4 = ((IPv6Network("::ffff:0:0/96"), 0), (IPv6Network("64:ff9b::/96"), 0), (IPv6Network("2002::/16"), 80))
_NEAR_NAMES = ("host.docker.internal", "host.containers.internal")
_NEAR_ENDS = (".local", ".lan", ".home", ".internal")


def is_postgres(address: object) -> bool:
    """Whether this is the address of a PostgreSQL database."""
    return str(address).startswith(POSTGRES)


def check_store_address(name: str, address: str | Path) -> None:
    """Check that `address` can be the address of a store; `name` is the option or setting that gave it.

    Raises: InvalidInput, without what could be a password: it is of another database, or of a form that would be taken
        for the name of a file.
    """
    text = str(address)
    if is_postgres(text):
        return
    if found := _FOREIGN.match(text):
        raise InvalidInput(f"{name} begins with {found[0]!r}: the path of a file or postgresql://... is needed")
    if found := _KEYWORDS.match(text):
        raise InvalidInput(
            f"{name} begins with {found[0].strip()!r}: write postgresql://user@host:5432/database for a database"
        )


def without_password(address: str | Path) -> str:
    """Return `address`, or a text with addresses of the web, with a mask in place of each password."""
    if not is_postgres(address):
        return _ANY_USER.sub(rf"\1:{MASK}@", str(address))
    return _QUERY.sub(rf"\1{MASK}", _USER.sub(rf"\1:{MASK}@", str(address)))


def find_address(host: str) -> IPv4Address | IPv6Address | None:
    """Return the address that a host is written as, IPv4 for an IPv4-mapped one; None: it is a name to resolve."""
    try:
        address = ip_address(host)
    except ValueError:
        return None
    return getattr(address, "ipv4_mapped", None) or address


def unwrap_address(address: str) -> IPv4Address | IPv6Address:
    """Return the address, or the IPv4 address in it, as mapped, NAT64 and 6to4 addresses have one.

    Raises: ValueError: it is no address.
    """
    ip = ip_address(address)
    if isinstance(ip, IPv6Address) and ip.scope_id is None:
        for network, bits in _WRAPS_V4:
            if ip in network:
                return IPv4Address(int(ip) >> bits & 0xFFFFFFFF)
    return ip


def network_of(host: str) -> str:
    """Return what a client is counted by: an IPv4 address, or the 64 bits of IPv6 that one subscriber has."""
    address = find_address(host.partition("%")[0])
    if isinstance(address, IPv6Address) and not address.is_loopback:
        return str(ip_network((address, 64), strict=False))
    return str(address or host)


def is_loopback(host: str) -> bool:
    """Return whether a host, also one in brackets, is this machine and is reached from nowhere else."""
    name = host.strip("[]").rstrip(".").lower()
    address = find_address(name)
    return name == "localhost" if address is None else address.is_loopback


def is_near(host: str) -> bool:
    """Return whether a host is this machine or in its network: who runs a server there has chosen its models.

    >>> is_near("192.168.1.5"), is_near("llama"), is_near("api.groq.com")
    (True, True, False)
    """
    name = host.rstrip(".").lower()
    if address := find_address(name):
        return address.is_private
    return name in _NEAR_NAMES or name.endswith(_NEAR_ENDS) or bool(name and "." not in name)


def is_allowed(address: str) -> bool:
    """Return whether a server may be called at `address`: not where clouds serve metadata, nor at no host."""
    real = unwrap_address(address.partition("%")[0])  # a zone does not hide the address in an address
    return not (real.is_link_local or real.is_multicast or real.is_unspecified or str(real) in _METADATA)
