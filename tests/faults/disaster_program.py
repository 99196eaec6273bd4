"""`perdure`, run in a process whose number is known.

With two defects in it where `DEFECT` asks for them. `RECOVERY_S`: seconds between looks for what is left to do.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, NoReturn

from perdure.cli import main

PID_FILE = "pid"


def broken(*_: Any, **__: Any) -> NoReturn:
    raise ZeroDivisionError(os.environ["DEFECT"])


def plant() -> None:
    """In listing MCP servers, and in the built-in model."""
    from perdure.library.services.mcp import McpService
    from perdure.providers.extractive.model import ExtractiveModel

    McpService.list = broken  # type: ignore[method-assign]
    ExtractiveModel.respond = broken  # type: ignore[method-assign]


if __name__ == "__main__":
    if "RECOVERY_S" in os.environ:
        from perdure.engine.run import runner

        runner.RECOVERY_S = float(os.environ["RECOVERY_S"])
    if "DEFECT" in os.environ:
        plant()
    (Path(os.environ["PERDURE_HOME"]) / PID_FILE).write_text(str(os.getpid()))
    main()
