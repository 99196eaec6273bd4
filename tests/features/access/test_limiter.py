"""The counts of a key, which several processes share: none is lost, and none counts twice."""

from __future__ import annotations

from typing import Any

import pytest

from perdure.core.errors import StoreBusy
from perdure.core.ids import KeyId
from perdure.core.incoming.principals import Principal, UseLimits
from perdure.features.access.limits import Limiter
from perdure.server.access.gate import RequestRejected
from perdure.testing import FakeClock, InlineStore
from perdure.testing.clock import START

MOST = 4
KEY = Principal(key_id=KeyId("key-1"), limits=UseLimits(requests_per_minute=MOST))


class Away(InlineStore):
    """A store that may not be there."""

    away = False

    async def write(self, *args: Any, **kwargs: Any) -> Any:
        if self.away:
            raise StoreBusy("the store")
        return await super().write(*args, **kwargs)


async def admitted(limiter: Limiter, wanted: int) -> int:
    """How many of so many requests are let in."""
    for number in range(wanted):
        try:
            await limiter.admit(KEY)
        except RequestRejected:
            return number
    return wanted


@pytest.mark.parametrize("fails", [False, True])
async def test_each_request_counts_once_whatever_becomes_of_an_exchange(fails: bool) -> None:
    """For this process, and for the next one when this one has ended."""
    store, clock = Away(), FakeClock(START.replace(second=0, microsecond=0))
    limiter = Limiter(store, clock)
    assert await admitted(limiter, MOST - 1) == MOST - 1
    store.away = fails
    clock.advance(1)
    next(iter(limiter._counts.values())).exchanged_at = float("-inf")
    assert await admitted(limiter, 2) == 1
    store.away = False
    await limiter.close()

    assert await admitted(Limiter(store, clock), 1) == 0
    clock.advance(118)
    assert await admitted(limiter, MOST) == MOST
