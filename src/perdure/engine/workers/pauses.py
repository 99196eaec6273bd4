"""Background work in the pauses of the foreground: a piece at a time, and little of it while requests never pause."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager

BUSY_SHARE = 0.02
"""The share of the time that background work takes while requests do not pause."""

Piece = Callable[[], AbstractAsyncContextManager[None]]
"""Opens a piece of background work, once it may begin."""

AT_ONCE: Piece = contextlib.nullcontext
"""A piece of work that somebody waits for."""


class Pauses:
    """When background work of one process may go on: where no request has been answered for a moment; and, once they
    have not paused for long, for a small share of the time.

    Args:
        is_busy: whether requests are being answered.
        quiet_s: how long none has to be.
        wait_s: how long requests may go on without a pause until work begins beside them.
    """

    def __init__(self, is_busy: Callable[[], bool], *, quiet_s: float, wait_s: float) -> None:
        self._is_busy, self._quiet_s, self.wait_s = is_busy, quiet_s, wait_s
        self._one = asyncio.Lock()
        self._ended = asyncio.Event()
        self._seen_at = self._busy_at = self._next_at = float("-inf")

    def note_begin(self) -> None:
        """Note that a request is about to be answered."""
        time = asyncio.get_running_loop().time()
        if self._is_pause(time):
            self._busy_at = time
        self._seen_at = time

    def note_end(self) -> None:
        """Note that a request was answered."""
        self._seen_at = asyncio.get_running_loop().time()

    def end(self) -> None:
        """Let work go on at once from here on: the process ends."""
        self._ended.set()

    @contextlib.asynccontextmanager
    async def piece(self) -> AsyncIterator[None]:
        """Wait until a piece of work may begin; others wait until it is done. It should take a few milliseconds."""
        loop = asyncio.get_running_loop()
        async with self._one:
            while not self._ended.is_set() and (seconds := self._seconds_left(loop.time())) > 0:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(seconds):
                        await self._ended.wait()
            began_at, is_pause = loop.time(), self._is_pause(loop.time())
            try:
                yield
            finally:
                if not is_pause:
                    self._next_at = loop.time() + (loop.time() - began_at) * (1 / BUSY_SHARE - 1)

    def _is_pause(self, time: float) -> bool:
        """Return whether no request has been answered for a moment."""
        return not self._is_busy() and time - self._seen_at >= self._quiet_s

    def _seconds_left(self, time: float) -> float:
        """Return in how many seconds to look again; 0: work may go on."""
        if self._is_pause(time):
            return 0.0
        pause_s = self._quiet_s if self._is_busy() else self._seen_at + self._quiet_s - time
        return max(0.0, min(pause_s, max(self._busy_at + self.wait_s, self._next_at) - time))
