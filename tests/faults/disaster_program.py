"""`perdure`, run in a process whose number is known.

With two defects in it where `DEFECT` asks for them. `RECOVERY_S`: seconds between looks for what is left to do.
EXPLAIN has it write what it is doing to stderr: where each thread is, and what each task of the event loop waits for.
"""

from __future__ import annotations

import asyncio
import faulthandler
import os
import signal
import sys
from pathlib import Path
from typing import Any, NoReturn

from perdure.cli import main

PID_FILE = "pid"
EXPLAIN = signal.SIGUSR2


def broken(*_: Any, **__: Any) -> NoReturn:
    raise ZeroDivisionError(os.environ["DEFECT"])


def plant() -> None:
    """In listing MCP servers, and in the built-in model."""
    from perdure.features.extractive.model import ExtractiveModel
    from perdure.features.mcp.service import AsyncMcp

    AsyncMcp.list = broken  # type: ignore[method-assign]
    ExtractiveModel.respond = broken  # type: ignore[method-assign]


def print_tasks(*_: object) -> None:
    """Print the tasks of the running event loop, and the lines at which each of them waits, outermost first."""
    for task in asyncio.all_tasks():
        print(task.get_name(), f"(cancelled {task.cancelling()} times)", file=sys.stderr)
        waits: Any = task.get_coro()
        while waits is not None:
            if (frame := getattr(waits, "cr_frame", None)) is not None:
                print(f"  {frame.f_code.co_filename}:{frame.f_lineno} in {frame.f_code.co_qualname}", file=sys.stderr)
            waits = getattr(waits, "cr_await", None)
    sys.stderr.flush()


if __name__ == "__main__":
    signal.signal(EXPLAIN, print_tasks)  # it runs only where the main thread still runs Python
    faulthandler.register(EXPLAIN, chain=True)
    if "RECOVERY_S" in os.environ:
        from perdure.engine.run import runner

        runner.RECOVERY_S = float(os.environ["RECOVERY_S"])
    if "DEFECT" in os.environ:
        plant()
    (Path(os.environ["PERDURE_HOME"]) / PID_FILE).write_text(str(os.getpid()))
    main()
