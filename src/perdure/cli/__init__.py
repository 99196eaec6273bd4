"""The command line. `root` lists the commands; what they need is imported when one runs, so that `--help` is quick."""

from __future__ import annotations

import errno
import gc
import os
import sys

from perdure.core.features import find_features

UNUSED = ("httpx._main", "pydantic.v1", "watchfiles")
"""What httpx, FastAPI and uvicorn import if it is there, for a command, models and a restart that nobody uses here."""


def main() -> None:
    """Run `perdure` with the arguments of this process, and leave with its exit code."""
    gc.set_threshold(50_000)  # what is imported stays: to look for garbage in it took a tenth of most commands
    sys.modules.update(dict.fromkeys(UNUSED))  # type: ignore[arg-type]  # None: an import of it fails
    try:
        for feature in find_features():
            quick = feature.quick_nouns.get(sys.argv[1]) if sys.argv[1:] else None
            if quick and (code := feature.load(quick)(sys.argv[2:])) is not None:
                sys.exit(code)
        from perdure.cli.app import app

        app(prog_name="perdure")
    except (KeyboardInterrupt, OSError) as error:
        from perdure.cli.session.exit_codes import FAILED, INTERRUPTED

        if isinstance(error, KeyboardInterrupt):
            sys.exit(INTERRUPTED)
        if error.errno != errno.ENOSPC:
            raise
        # What reads the store says itself that its disk is full: this is stdout, which would fail once more at the end.
        print(f"error: the output can't be written: {error.strerror}", file=sys.stderr)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        sys.exit(FAILED)
