"""Addresses of stores: a path of a file, or `postgresql://...`, which may hold a password."""

from __future__ import annotations

import re
from pathlib import Path

POSTGRES = ("postgresql://", "postgres://")
MASK = "***"

_USER = re.compile(r"(?s)^(\w+://[^/]*?):.*@")
_ANY_USER = re.compile(r"(://[^/\s:@]*):[^/\s]*@")
_QUERY = re.compile(r"(?i)([?&](?:ssl)?password=)[^&]*")


def is_postgres(address: object) -> bool:
    """Whether this is the address of a PostgreSQL database."""
    return str(address).startswith(POSTGRES)


def without_password(address: str | Path) -> str:
    """The address for people and logs, with a mask in place of its password. A text may hold several of the web."""
    if not is_postgres(address):
        return _ANY_USER.sub(rf"\1:{MASK}@", str(address))
    return _QUERY.sub(rf"\1{MASK}", _USER.sub(rf"\1:{MASK}@", str(address)))
