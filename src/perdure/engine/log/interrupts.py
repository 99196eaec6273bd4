"""Interrupting what a task is waiting for, without cancelling the task for good."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any


class WaitInterrupted(Exception):
    """The wait was ended because `fire` was called; the task itself goes on."""

    kind = "cancelled"


def _current_task() -> asyncio.Task[Any]:
    task = asyncio.current_task()
    assert task is not None
    return task


@dataclass
class Interrupt:
    """Interrupts what the current task waits for within `interruptible`, without cancelling the task for good."""

    task: asyncio.Task[Any] = field(default_factory=_current_task)
    reason: BaseException | None = None  # raised where the wait is interrupted
    hear: Callable[[], None] = lambda: None  # called when another process may have asked the run to stop

    def fire(self, reason: BaseException | None = None) -> None:
        """Interrupt once; later calls do nothing. `reason` is raised instead of `WaitInterrupted`."""
        if self.reason is None:
            self.reason = reason or WaitInterrupted()
            self.task.cancel()


@contextlib.contextmanager
def interruptible(interrupt: Interrupt) -> Iterator[None]:
    """Let the block be interrupted, as `asyncio.timeout` does: the task is cancelled, and the cancellation is taken
    back at the end, where the interrupt's reason is raised."""
    error: BaseException | None = None
    try:
        yield
    except BaseException as raised:
        error = raised
        raise
    finally:
        # Only our own cancellation is taken back; one from outside that came too goes on.
        is_ours = isinstance(error, asyncio.CancelledError | None)
        if interrupt.reason is not None and interrupt.task.uncancel() == 0 and is_ours:
            raise interrupt.reason from error


def is_cancelled() -> bool:
    """Whether the current task was cancelled; False for a `CancelledError` that foreign code raised by itself."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
