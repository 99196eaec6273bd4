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

from perdure.core.errors import StoreError
from perdure.core.ids import OrgId
from perdure.core.incoming.principals import PeriodUsage, Principal, day_of
from perdure.core.ports import Clock
from perdure.engine.budget import until_midnight_s
from perdure.features.access.directory import Keys
from perdure.server.access.gate import RequestRejected
from perdure.storage.store import Store
from perdure.storage.tx import Tx

log = logging.getLogger(__name__)

EXCHANGED_S = 1.0
KEPT_S = 120.0
"""How long a key is remembered that nobody uses."""
DAYS_KEPT = 40
"""How long the counts of days are kept."""


@dataclass(slots=True)
class _Counts:
    """What one key has used: in all processes as of the last exchange with the store, and here since then.

    Args:
        minute: the minute of that exchange; `requests` and `before` are the requests in it and in the one before it.
        new: requests to this process since that exchange.
        day: what was used on the day of that exchange, in UTC.
        exchanged_at: the second of that exchange, by the monotonic clock.
    """

    org_id: OrgId
    minute: datetime
    requests: int = 0
    before: int = 0
    new: int = 0
    day: PeriodUsage = field(default_factory=PeriodUsage)
    exchanged_at: float = float("-inf")
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)


class Limiter:
    """Refuses requests of keys that have used what they may."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store, self._clock = store, clock
        self._counts: dict[str, _Counts] = {}
        self._trimmed_on = ""

    async def admit(self, principal: Principal) -> None:
        """Count a request of a key with limits. Raises: RequestRejected: 429, with how long to wait."""
        limits, key_id = principal.limits, principal.key_id
        if key_id is None or (limits.requests_per_minute is None and not limits.daily):
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
                raise _limit_reached(f"{most:,} requests a minute", 60 - int(passed * 60) if in_minute >= most else 1)
        midnight = until_midnight_s(now)
        if limits.tokens_per_day is not None and counts.day.tokens >= limits.tokens_per_day:
            raise _limit_reached(f"{limits.tokens_per_day:,} tokens a day", midnight)
        if limits.cost_per_day is not None and counts.day.cost >= limits.cost_per_day:
            raise _limit_reached(f"${limits.cost_per_day:g} a day", midnight)
        counts.new += 1

    async def close(self) -> None:
        """Give the last counts to the store."""
        now = self._clock.now().astimezone(UTC)
        for key_id, counts in self._counts.items():
            if counts.new:
                await self._exchange(key_id, counts, now)

    async def _exchange(self, key_id: str, counts: _Counts, now: datetime) -> None:
        """Add the new requests of a key to the store's counts, and read those of all processes. If the store fails they
        stay new, and the old counts go on. Keys that nobody used for `KEPT_S` are dropped."""
        new, counts.new = counts.new, 0
        minute, day = _minute(now), day_of(now)

        def exchange(tx: Tx) -> list[PeriodUsage]:
            """Add this process's new requests to the stored counts, and return the counts of all processes."""
            if new:
                for period in (_minute_name(counts.minute), day_of(counts.minute)):
                    tx.used.add({key_id: PeriodUsage(requests=new)}, period)
            if self._trimmed_on != day:
                tx.of(Keys).trim_used(before=day_of(now - timedelta(days=DAYS_KEPT)))
            periods = (_minute_name(minute), _minute_name(minute - timedelta(minutes=1)), day)
            return [tx.used.get(key_id, period) for period in periods]

        try:
            # Without anything new it is a read, which waits for no writer.
            store = self._store.for_organisation(counts.org_id)
            run = store.write if new or self._trimmed_on != day else store.read
            of_minute, of_before, of_day = await run(exchange)
        except StoreError as error:
            counts.new += new
            log.warning("the counts of %s were not exchanged: %s", key_id, error)
            return
        self._trimmed_on = day
        counts.minute, counts.day = minute, of_day
        counts.requests, counts.before = of_minute.requests, of_before.requests
        counts.exchanged_at = time.monotonic()
        for other, one in list(self._counts.items()):
            if other != key_id and not one.new and time.monotonic() - one.exchanged_at > KEPT_S:
                del self._counts[other]


def _limit_reached(limit: str, wait_s: int) -> RequestRejected:
    """The refusal of a key that has used up `limit`, such as "5 tokens a day", and may be used again in `wait_s`."""
    text = f"this key may use {limit}, and has: wait, or ask an administrator for more"
    return RequestRejected(429, text, (b"retry-after", str(wait_s).encode()))


def _minute(now: datetime) -> datetime:
    return now.replace(second=0, microsecond=0)


def _minute_name(minute: datetime) -> str:
    """The name of a minute among the periods of the store's counts."""
    return minute.strftime("%Y-%m-%dT%H:%M")
