"""Run the work of a command, and exit with its code."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

import typer

INTERRUPTED = 130  # the code of shells for an end by SIGINT


def run_and_exit(work: Coroutine[Any, Any, int], *, loop_factory: Callable[[], Any] | None = None) -> None:
    """Run the work in an event loop, and exit with the code that it returns."""
    import asyncio

    try:
        with asyncio.Runner(loop_factory=loop_factory) as runner:
            code = runner.run(work)
    except KeyboardInterrupt:
        code = INTERRUPTED
    raise typer.Exit(code)
