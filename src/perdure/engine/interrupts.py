"""Interrupting what a task is waiting for, without cancelling the task for good."""

from __future__ import annotations

import asyncio
from collections.abc import Hashable
from types import TracebackType
from typing import Generic, TypeVar

__all__ = ["Interrupted", "Interruptible", "Interrupts"]

K = TypeVar("K", bound=Hashable)


class Interrupted(Exception):
    """What was awaited was given up because somebody called `fire`; the task itself goes on."""


class Interruptible:
    """`async with interruptible:` raises `Interrupted` at the await inside when `fire` is called.

    It works as `asyncio.timeout` does: the task is cancelled, and the cancellation is taken back at the end of the
    block.
    """

    def __init__(self) -> None:
        self._task: asyncio.Task[object] | None = None
        self._fired: BaseException | None = None

    def fire(self, reason: BaseException | None = None) -> None:
        """Interrupt once; later calls do nothing. `reason` is raised instead of `Interrupted`."""
        if self._task is not None and self._fired is None:
            self._fired = reason or Interrupted()
            self._task.cancel()

    async def __aenter__(self) -> Interruptible:
        self._task = asyncio.current_task()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        task, self._task = self._task, None
        if self._fired is None or task is None:
            return
        # Only our own cancellation is taken back; one from outside that came too goes on.
        if task.uncancel() == 0 and (kind is asyncio.CancelledError or kind is None):
            raise self._fired from error


class Interrupts(Generic[K]):
    """Who in this process can be interrupted, by key."""

    def __init__(self) -> None:
        self._waiting: dict[K, Interruptible] = {}

    def add(self, key: K, waiting: Interruptible) -> None:
        self._waiting[key] = waiting

    def remove(self, key: K) -> None:
        self._waiting.pop(key, None)

    def fire(self, key: K) -> None:
        if waiting := self._waiting.get(key):
            waiting.fire()
