"""Time zones by name, with a safe answer for unknown names."""

from __future__ import annotations

import functools
from datetime import UTC, datetime, tzinfo
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from perdure.core.errors import TimeZoneUnknown


@functools.lru_cache(maxsize=64)
def zone(name: str) -> tzinfo:
    """The time zone of this IANA name; UTC for a name this machine doesn't know."""
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return UTC


def local(at: datetime, home: tzinfo) -> datetime:
    """Return a time as clocks show it there; where the calendar ends, as it is. One without an offset is UTC."""
    at = at.replace(tzinfo=at.tzinfo or UTC)
    try:
        return at.astimezone(home)
    except OverflowError:
        return at


def is_zone(name: str) -> bool:
    """Return whether this machine knows a time zone of this name."""
    return name == "UTC" or zone(name) is not UTC


def check_zone(name: str) -> None:
    """Check that there is a time zone of this name. Raises: TimeZoneUnknown, with near names."""
    if isinstance(name, str) and name and is_zone(name):
        return
    import difflib
    import zoneinfo

    zones = {one.lower(): one for one in zoneinfo.available_timezones()}
    wanted = str(name).strip().lower().replace(" ", "_")
    cities = [one for lower, one in zones.items() if wanted and lower.rpartition("/")[2] == wanted.rpartition("/")[2]]
    near = [zones[one] for one in difflib.get_close_matches(wanted, zones, n=3)]
    raise TimeZoneUnknown(str(name), near=list(dict.fromkeys([*sorted(cities), *near]))[:3])
