"""Addresses: of stores, a path of a file or `postgresql://...`, which may hold a password; and of hosts."""

from __future__ import annotations

import ipaddress
import re
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


def is_allowed(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> bool:
    """Return whether a server may be called at `address`: not where clouds serve metadata, nor at no host."""
    real = getattr(address, "ipv4_mapped", None) or address
    return not (real.is_link_local or real.is_multicast or real.is_unspecified or str(real) in _METADATA)
