"""How long it takes until Perdure is there: imported, or saying what it can do."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

__all__ = ["PROGRAMS", "best_wall_s"]

SRC = Path(__file__).resolve().parents[1] / "src"

PROGRAMS: dict[str, Sequence[str]] = {
    "python -c pass": ("-c", "pass"),
    "import perdure": ("-c", "import perdure"),
    "from perdure import Perdure": ("-c", "from perdure import Perdure"),
    "perdure --help": ("-m", "perdure", "--help"),
}
"""What is started, each time in a fresh interpreter."""


def best_wall_s(arguments: Sequence[str], folder: Path, *, times: int = 5) -> float:
    """The shortest of some runs in seconds of wall time, after one that compiles what is not compiled yet.

    Compiled modules are kept in `folder`, as an installation keeps them beside its own.
    Raises: CalledProcessError: the program failed.
    """
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    environment = kept | {"PYTHONPATH": str(SRC), "PYTHONPYCACHEPREFIX": str(folder / "pycache")}
    best = float("inf")
    for number in range(times + 1):
        began = time.perf_counter()
        subprocess.run([sys.executable, *arguments], env=environment, check=True, capture_output=True)
        if number:
            best = min(best, time.perf_counter() - began)
    return best
