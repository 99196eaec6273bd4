"""Who waits for what a task does: one thread and nobody else, or nobody knows how many."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar

__all__ = ["is_alone", "let_know"]

_alone: ContextVar[Callable[[], bool] | None] = ContextVar("alone", default=None)


def let_know(alone: Callable[[], bool]) -> None:
    """Tell this context, and the tasks that are made in it, how to find out whether they are alone."""
    _alone.set(alone)


def is_alone() -> bool:
    """Whether all that goes on in this event loop goes on for one thread at most, one thing at a time, so that a short
    wait of the loop itself holds nobody else up. False where that is not known, as in a loop that is not ours."""
    alone = _alone.get()
    return alone is not None and alone()
