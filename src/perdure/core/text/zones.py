"""Time zones by name, with a safe answer for unknown names."""

from __future__ import annotations

import functools
from datetime import UTC, datetime, tzinfo
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError


@functools.lru_cache(maxsize=64)
def zone(name: str) -> tzinfo:
    """Return the time zone of this IANA name; UTC for a name that this machine doesn't know."""
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return UTC


def local(at: datetime, home: tzinfo) -> datetime:
    """Return `at` (UTC if it has no offset) in the time zone `home`; unchanged where that leaves the calendar."""
    if at.tzinfo is home:
        return at
    at = at.replace(tzinfo=at.tzinfo or UTC)
    try:
        return at.astimezone(home)
    except OverflowError:
        return at


def is_zone(name: str) -> bool:
    """Return whether this machine knows a time zone of this name."""
    return name == "UTC" or zone(name) is not UTC
