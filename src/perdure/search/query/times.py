"""Times in the arguments of a search, as models and people write them."""

from __future__ import annotations

from datetime import UTC, date, datetime, time

from perdure.core.errors import InvalidInput
from perdure.core.text.zones import zone


def parse_time(text: str | None, *, timezone: str = "UTC", end: bool = False) -> datetime | None:
    """Parse an ISO 8601 date or time into a moment in UTC; None for None or an empty text.

    A date alone means its beginning or, with `end`, its last microsecond, where the agent lives. A time without an
    offset is in the agent's time zone too.

    Raises: InvalidInput: for anything else.
    """
    if text is None or not text.strip():
        return None
    here = zone(timezone)
    text = text.strip()
    try:
        try:
            day = date.fromisoformat(text)
        except ValueError:
            moment = datetime.fromisoformat(text)
        else:
            # `fold`: where clocks go back at midnight, a day's last hour is there twice.
            moment = datetime.combine(day, time.max.replace(fold=1) if end else time.min)
        return (moment if moment.tzinfo else moment.replace(tzinfo=here)).astimezone(UTC)
    except (ValueError, OverflowError) as error:
        raise InvalidInput(f"{text!r:.60} is no date: write it as 2026-11-20 or 2026-11-20T15:30") from error
