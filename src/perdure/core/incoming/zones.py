"""Time zones that somebody names."""

from __future__ import annotations

from perdure.core.errors import TimeZoneUnknown
from perdure.core.text.zones import is_zone


def check_zone(name: str) -> None:
    """Check that there is a time zone of this name. Raises: TimeZoneUnknown, with near names."""
    if isinstance(name, str) and name and is_zone(name):
        return
    import difflib
    import zoneinfo

    zones = {timezone.lower(): timezone for timezone in zoneinfo.available_timezones()}
    query = str(name).strip().lower().replace(" ", "_")
    cities = [one for lower, one in zones.items() if query and lower.rpartition("/")[2] == query.rpartition("/")[2]]
    near = [zones[name] for name in difflib.get_close_matches(query, zones, n=3)]
    raise TimeZoneUnknown(str(name), near=list(dict.fromkeys([*sorted(cities), *near]))[:3])
