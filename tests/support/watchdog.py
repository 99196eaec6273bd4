"""How long one callback keeps the event loop busy."""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import pytest

T = TypeVar("T")


class Watchdog:
    """The longest that one callback kept the loop's thread busy during some work, in seconds of its processor: other
    programs of this machine don't lengthen it."""

    def __init__(self) -> None:
        self.longest_s = 0.0
        self._request = 0  # 0 is between two

    @contextmanager
    def watch(self, patch: pytest.MonkeyPatch) -> Iterator[None]:
        run = asyncio.Handle._run

        def timed(handle: asyncio.Handle) -> None:
            request, before = self._request, time.thread_time()
            run(handle)
            if request and request == self._request:  # else it is a step of the test, which makes the next body
                self.longest_s = max(self.longest_s, time.thread_time() - before)

        gc.collect()
        gc.freeze()  # the objects of a thousand other tests are none of the server's work
        # They stay frozen: thawed, they would be gone through again and again until the process ends.
        with patch.context() as patched:
            patched.setattr(asyncio.Handle, "_run", timed)
            yield

    async def time(self, number: int, work: Coroutine[Any, Any, T]) -> T:
        """The result of the work with this number, which is above 0."""
        self.longest_s, self._request = 0.0, number
        try:
            return await asyncio.create_task(work)
        finally:
            self._request = 0
