"""The loop of everything that is worked on in the background, in however many processes.

What waits is in the store, which says what is due and who has claimed it. So a worker keeps nothing that could be lost:
it looks, claims, works, and looks again.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from typing import TypeVar

from perdure.core.errors import StoreBusy, StoreClosed, StoreError
from perdure.core.tasks import end_tasks, wait_for

T = TypeVar("T")

log = logging.getLogger(__name__)

PAUSE_S = 1.0
"""How long a worker looks for nothing after a piece of work has failed."""


class Worker:
    """Looks for work at its start, when it is woken, and from time to time, until it is closed or the store is.

    Args:
        what: what it does, as the log names it.
        look: does what there is to do, or begins it with `take`; it may return in how many seconds to look again.
        every_s: after how many seconds it looks again by itself; None: only when it is woken.
    """

    def __init__(self, what: str, look: Callable[[], Awaitable[float | None]], every_s: float | None) -> None:
        self._what, self._look, self._every_s = what, look, every_s
        self._wake = asyncio.Event()
        self._loop: asyncio.Task[None] | None = None
        self._pieces: set[asyncio.Task[None]] = set()
        self._look_at = 0.0  # not to look before, by the loop's clock
        self.held_up: StoreError | None = None
        """Why work waits here: the store's last error, such as a full disk. None: as far as known it does not."""

    @property
    def tasks(self) -> list[asyncio.Task[None]]:
        """The tasks that are going on."""
        return [*self._pieces, *([] if self._loop is None else [self._loop])]

    async def start(self) -> None:
        """Begin to look."""
        self._loop = asyncio.create_task(self._look_for_ever())

    def wake(self, topic: str = "") -> None:
        """Look now: there may be work. It may be called about a topic of `TopicSignals`."""
        self._wake.set()

    async def close(self) -> None:
        """Stop, also what was begun."""
        await end_tasks(*self.tasks)

    async def take(
        self, claim: Callable[[], Awaitable[T | None]], work: Callable[[T], Awaitable[None]], *, at_once: int
    ) -> None:
        """Claim and start work, `at_once` pieces in parallel, until none is left; the end of one wakes the worker.

        Args:
            claim: claims a piece; None: there is none.
            work: carries a piece out, and ends or releases its claim.
        """
        while len(self._pieces) < at_once and (piece := await claim()) is not None:
            task = asyncio.create_task(self._carry_out(work, piece))
            self._pieces.add(task)
            task.add_done_callback(self._pieces.discard)

    def pause(self, seconds: float) -> None:
        """Do not look for so many seconds, even if woken."""
        self._look_at = max(self._look_at, asyncio.get_running_loop().time() + seconds)

    def hold_up(self, error: StoreError) -> None:
        """Note that work waits because of the store, and say so in the log."""
        if not isinstance(error, StoreBusy):  # that passes by itself
            self.held_up = error
        log.warning("%s waits for the store: %s", self._what, error)

    async def _carry_out(self, work: Callable[[T], Awaitable[None]], piece: T) -> None:
        """Carry out a piece of work, and look for more. One that failed may be met again, so not at once."""
        with contextlib.suppress(StoreClosed):
            if await self._outlive(work(piece)) is None:
                self.pause(PAUSE_S)
            asyncio.get_running_loop().call_soon(self.wake)  # when the task has ended, and left its place

    async def _outlive(self, work: Awaitable[T]) -> tuple[T] | None:
        """Return what `work` returns, as a tuple; None: it failed, which the log says. Raises: StoreClosed."""
        try:
            return (await work,)
        except StoreClosed:
            raise
        except StoreError as error:
            self.hold_up(error)
        except Exception:  # whatever it is, it must not end the worker
            log.exception("%s stopped at a defect", self._what)
        return None

    async def _look_for_ever(self) -> None:
        """Look for work, then wait to be woken or for the next look, until the store is closed."""
        with contextlib.suppress(StoreClosed):
            while True:
                self._wake.clear()
                (wait_s,) = await self._outlive(self._look()) or (None,)
                await wait_for(self._wake, self._every_s if wait_s is None else wait_s)
                await asyncio.sleep(max(0.0, self._look_at - asyncio.get_running_loop().time()))
