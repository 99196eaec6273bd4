"""How a command ends: its work is done in a loop, and its exit code is the program's."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

import typer

__all__ = ["leave"]

INTERRUPTED = 130  # what shells report for a program that SIGINT ended


def leave(work: Coroutine[Any, Any, int], *, loop_factory: Callable[[], Any] | None = None) -> None:
    """Do the work, in a loop of this kind, and exit with its code."""
    import asyncio

    try:
        with asyncio.Runner(loop_factory=loop_factory) as runner:
            code = runner.run(work)
    except KeyboardInterrupt:
        code = INTERRUPTED
    raise typer.Exit(code)
