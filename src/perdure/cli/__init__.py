"""The command line. `root` lists the commands; what they need is imported when one runs, so that `--help` is quick."""

from __future__ import annotations

import gc
import sys

from perdure.core.features import find_features

__all__ = ["main"]

UNUSED = ("httpx._main", "pydantic.v1", "watchfiles")
"""What httpx, FastAPI and uvicorn import if it is there, for a command, models and a restart that nobody uses here."""


def main() -> None:
    """Run `perdure` with the arguments of this process, and leave with its exit code."""
    gc.set_threshold(50_000)  # what is imported stays: to look for garbage in it took a tenth of most commands
    sys.modules.update(dict.fromkeys(UNUSED))  # type: ignore[arg-type]  # None: an import of it fails
    for feature in find_features():
        quick = feature.quick_nouns.get(sys.argv[1]) if sys.argv[1:] else None
        if quick and (code := feature.load(quick)(sys.argv[2:])) is not None:
            sys.exit(code)
    from perdure.cli.app import app

    app(prog_name="perdure")
