"""Wait for an answer: silence has a limit, the whole has none, and who waits is told now and then."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from perdure.core.models import ModelProgress

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Silence:
    """How long a server may say nothing, in seconds.

    Reading a long prompt takes a model on a CPU minutes in which its server sends nothing; so does the reasoning of a
    hosted one. Between two pieces only a model on a CPU is slow.

    Args:
        first_s: until the first byte, and from one event to the next; `next_s`: from one byte to the next. Servers and
            proxies keep a connection open by comments, which are no events.
        tick_s: how often the waiting is told of before the first byte; None: never.
    """

    first_s: float = 600.0
    next_s: float = 120.0
    tick_s: float | None = None


LOCAL_SILENCE = Silence(next_s=600.0, tick_s=5.0)


@dataclass(slots=True)
class Patience(Generic[T]):
    """`async for progress in patience.during(work)` waits for work; then `result` is what came of it."""

    silence: Silence
    started_at: float = field(default_factory=lambda: asyncio.get_running_loop().time())
    result: T = field(init=False)

    async def during(self, work: Coroutine[Any, Any, T]) -> AsyncIterator[ModelProgress]:
        """Wait for the first byte. Raises: TimeoutError, and what the work raises."""
        loop = asyncio.get_running_loop()
        until = loop.time() + self.silence.first_s
        task = asyncio.ensure_future(work)
        try:
            while not task.done():
                left_s = until - loop.time()
                if left_s <= 0:
                    raise TimeoutError
                await asyncio.wait({task}, timeout=min(left_s, self.silence.tick_s or left_s))
                if not task.done() and self.silence.tick_s is not None:
                    yield ModelProgress(stage="waiting", waited_s=loop.time() - self.started_at)
            self.result = task.result()
        finally:
            if not task.done():
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
