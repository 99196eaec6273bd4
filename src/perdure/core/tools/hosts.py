"""The list of hosts that a tool may reach: check it, and match hosts against it."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Collection, Sequence

from perdure.core.errors import InvalidInput
from perdure.core.text.json_strings import json_start

EVERY_HOST = "*"
HOSTS_MAX = 100
_ENTRY_CHARS = 262
_LABEL = r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?"
_ENTRY = re.compile(rf"(?P<host>\*|(?:\*\.)?{_LABEL}(?:\.{_LABEL})*|\[[0-9a-f:.]+\])(?::(?P<port>[0-9]{{1,5}}))?")

_FORM = (
    "give a list of hosts, such as ['api.example.org', '*.example.com', 'db.example.net:5432'],"
    " or ['*'] for every public host"
)


def check_hosts(value: object) -> tuple[str, ...]:
    """Return the hosts of a tool's `network`, in lower case, each once. None and False: no hosts.

    Raises: InvalidInput: no list of hosts; also for True, from older tools.
    """
    if value is None or value is False:
        return ()
    if value is True:
        raise InvalidInput(f"network is true, which does not say where a tool may connect to: {_FORM}")
    if isinstance(value, str) or not isinstance(value, Collection):
        raise InvalidInput(f"network is {json_start(value)}: {_FORM}")
    if len(value) > HOSTS_MAX:
        raise InvalidInput(f"network lists {len(value):,} hosts, the limit is {HOSTS_MAX}")
    return tuple(dict.fromkeys(_check(entry) for entry in value))


def listed_ports(hosts: Sequence[str], host: str, *, web: Collection[int]) -> tuple[frozenset[int], bool]:
    """Return the ports of a host that a list allows, and whether an entry names it exactly.

    Args:
        hosts: from `check_hosts`.
        host: in lower case, an IPv6 address without brackets.
        web: the ports of an entry without a port.
    """
    ports: set[int] = set()
    named = False
    for entry in hosts:
        match = _ENTRY.fullmatch(entry)
        if match is None:
            continue
        pattern = match["host"].strip("[]")
        exact = pattern == host
        if exact or pattern == EVERY_HOST or (pattern.startswith("*.") and host.endswith(pattern[1:])):
            ports |= set(web) if match["port"] is None else {int(match["port"])}
            named = named or exact
    return frozenset(ports), named


def _check(entry: object) -> str:
    if isinstance(entry, str) and len(entry) <= _ENTRY_CHARS:
        text = entry.strip().lower()
        match = _ENTRY.fullmatch(text)
        if match is not None and _is_host(match["host"]) and 0 < int(match["port"] or 1) <= 65_535:
            return text
    raise InvalidInput(f"network lists {entry!r:.80}, which is no host: {_FORM}")


def _is_host(text: str) -> bool:
    """Return whether the text is a name, a pattern or an address; 1.2.3 and 0x7f.1 are none."""
    last = text.rsplit(".", 1)[-1]
    if text.startswith("[") or last.isdigit() or last.startswith("0x"):
        try:
            address = ipaddress.ip_address(text.strip("[]"))
        except ValueError:
            return False
        return (address.version == 6) == text.startswith("[")
    return True
