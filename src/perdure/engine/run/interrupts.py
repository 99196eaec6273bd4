"""Interrupting what a task is waiting for, without cancelling the task for good."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from dataclasses import dataclass, field
from typing import Any, TypeVar

T = TypeVar("T")


class Interrupted(Exception):
    """The wait was ended because somebody called `fire`; the task itself goes on."""

    kind = "cancelled"


@dataclass
class Interrupt:
    """Interrupts what a task waits for within `holding`, without cancelling the task for good. `news`: the run may have
    been asked to stop by another process."""

    task: asyncio.Task[Any]
    reason: BaseException | None = None
    news: asyncio.Event = field(default_factory=asyncio.Event)

    def fire(self, reason: BaseException | None = None) -> None:
        """Interrupt once; later calls do nothing. `reason` is raised instead of `Interrupted`."""
        if self.reason is None:
            self.reason = reason or Interrupted()
            self.task.cancel()


def is_cancelled() -> bool:
    """Whether somebody cancelled the current task; False for a `CancelledError` that foreign code raised by itself."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


async def to_the_end(work: Awaitable[T]) -> T:
    """Wait for `work` to end, also if the caller is cancelled meanwhile; what it returns.

    The store commits a transaction whether or not somebody still waits for it. Who goes on before that would read a log
    in which it is missing. The error of work that nobody waits for any more is dropped.
    """
    task = asyncio.ensure_future(work)
    task.add_done_callback(retrieve_error)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        if not task.done():
            await asyncio.wait((task,))
        raise


def retrieve_error(task: asyncio.Future[Any]) -> None:
    """Mark a task's error as retrieved, or asyncio would log that nobody did; whoever waits gets it all the same."""
    if not task.cancelled():
        task.exception()
