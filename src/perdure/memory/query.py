"""What a search is asked: its text, and dates as models and people write them."""

from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta

from perdure.core.errors import InvalidInput
from perdure.core.zones import zone

__all__ = ["parse_time"]


def parse_time(text: str | None, *, timezone: str = "UTC", end: bool = False) -> datetime | None:
    """The moment that an ISO 8601 date or time stands for, in UTC; None for None or an empty text.

    A date alone means its beginning or, with `end`, its last microsecond, where the agent lives. A time without an
    offset is in the agent's time zone too.

    Raises: InvalidInput: for anything else.
    """
    if text is None or not text.strip():
        return None
    here = zone(timezone)
    text = text.strip()
    try:
        if len(text) == len("2026-11-20"):
            day = date.fromisoformat(text)
            moment = datetime.combine(day, time.min, tzinfo=here)
            return (moment + timedelta(days=1) - timedelta(microseconds=1) if end else moment).astimezone(UTC)
        moment = datetime.fromisoformat(text)
        return (moment if moment.tzinfo else moment.replace(tzinfo=here)).astimezone(UTC)
    except (ValueError, OverflowError) as error:
        raise InvalidInput(f"{text!r:.60} is no date: write it as 2026-11-20 or 2026-11-20T15:30") from error
