"""The limits of keys: requests a minute, tokens and dollars a day, over all processes.

Each process counts by itself and exchanges its counts with the others through the store every `EXCHANGED_S`, so that a
request pays no commit. Between two exchanges several processes together may let a little more pass. Tokens and dollars
are counted by the engine, with each step (`engine.budget`), and there they end a run too.
"""

from __future__ import annotations

import asyncio
import logging
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from perdure.core.access.values import Principal, Used
from perdure.core.errors import StoreError
from perdure.core.ids import OrgId
from perdure.core.ports import Clock
from perdure.library.access import Directory, Store
from perdure.server.access.scopes import Refusal

log = logging.getLogger(__name__)

EXCHANGED_S = 1.0
KEPT_S = 120.0
"""How long a key is remembered that nobody uses."""
DAYS_KEPT = 40
"""How long the counts of days are kept."""


@dataclass(slots=True)
class _Counts:
    """What one key has used, as far as this process knows.

    Args:
        minute: the current minute; `requests` of it, of all processes as of the last exchange; `before` those of the
            minute before it.
        new: requests of this process since then.
    """

    org_id: OrgId
    minute: datetime
    requests: int = 0
    before: int = 0
    new: int = 0
    day: Used = field(default_factory=Used)
    exchanged_at: float = float("-inf")
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)


class Limiter:
    """Refuses requests of keys that have used what they may."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store, self._clock = store, clock
        self._counts: dict[str, _Counts] = {}
        self._trimmed_on = ""

    async def admit(self, principal: Principal) -> None:
        """Count a request of a key with limits. Raises: Refusal: 429, with how long to wait."""
        limits, key_id = principal.limits, principal.key_id
        if key_id is None or (limits.requests_per_minute is None and not limits.of_day):
            return
        now = self._clock.now().astimezone(UTC)
        counts = self._counts.setdefault(key_id, _Counts(principal.org_id, _minute(now)))
        if time.monotonic() - counts.exchanged_at >= EXCHANGED_S or counts.minute != _minute(now):
            async with counts.lock:
                if time.monotonic() - counts.exchanged_at >= EXCHANGED_S or counts.minute != _minute(now):
                    await self._exchange(key_id, counts, now)
        if (most := limits.requests_per_minute) is not None:
            # A window that slides: the minute before counts by the part of it that is within the last 60 s.
            passed = (now - counts.minute).total_seconds() / 60
            in_minute = counts.requests + counts.new
            if in_minute + counts.before * (1 - passed) >= most:
                raise _beyond(f"{most:,} requests a minute", 60 - int(passed * 60) if in_minute >= most else 1)
        midnight = (
            int((now.replace(hour=0, minute=0, second=0, microsecond=0) + timedelta(days=1) - now).total_seconds()) + 1
        )
        if limits.tokens_per_day is not None and counts.day.tokens >= limits.tokens_per_day:
            raise _beyond(f"{limits.tokens_per_day:,} tokens a day", midnight)
        if limits.cost_per_day is not None and counts.day.cost >= limits.cost_per_day:
            raise _beyond(f"${limits.cost_per_day:g} a day", midnight)
        counts.new += 1

    async def close(self) -> None:
        """Give the last counts to the store."""
        now = self._clock.now().astimezone(UTC)
        for key_id, counts in self._counts.items():
            if counts.new:
                await self._exchange(key_id, counts, now)

    async def _exchange(self, key_id: str, counts: _Counts, now: datetime) -> None:
        """Add what is new to the store's counts, and read those of all processes."""
        new, counts.new = counts.new, 0
        minute, day = _minute(now), now.date().isoformat()

        def exchange(directory: Directory) -> tuple[Used, Used, Used]:
            used = directory.used
            if new:
                used.add(counts.org_id, _name(counts.minute), {key_id: Used(requests=new)})
                used.add(counts.org_id, counts.minute.date().isoformat(), {key_id: Used(requests=new)})
            if self._trimmed_on != day:
                used.trim(before=(now - timedelta(days=DAYS_KEPT)).date().isoformat())
            before = minute - timedelta(minutes=1)
            return (
                used.get(counts.org_id, key_id, _name(minute)),
                used.get(counts.org_id, key_id, _name(before)),
                used.get(counts.org_id, key_id, day),
            )

        try:
            # Without anything new it is a read, which waits for no writer.
            run = self._store.write_directory if new or self._trimmed_on != day else self._store.read_directory
            of_minute, of_before, of_day = await run(exchange)
        except StoreError as error:
            counts.new += new
            log.warning("the counts of %s were not exchanged: %s", key_id, error)
            return
        self._trimmed_on = day
        counts.minute, counts.requests, counts.before, counts.day = (
            minute,
            of_minute.requests,
            of_before.requests,
            of_day,
        )
        counts.exchanged_at = time.monotonic()
        for other, one in list(self._counts.items()):
            if other != key_id and not one.new and time.monotonic() - one.exchanged_at > KEPT_S:
                del self._counts[other]


def _beyond(limit: str, wait_s: int) -> Refusal:
    text = f"this key may use {limit}, and has: wait, or ask an administrator for more"
    return Refusal(429, text, (b"retry-after", str(wait_s).encode()))


def _minute(now: datetime) -> datetime:
    return now.replace(second=0, microsecond=0)


def _name(minute: datetime) -> str:
    return minute.strftime("%Y-%m-%dT%H:%M")
