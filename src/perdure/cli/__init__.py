"""The command line. `root` lists the commands; what they need is imported when one runs, so that `--help` is quick."""

from __future__ import annotations

__all__ = ["main"]


def main() -> None:
    """Run `perdure` with the arguments of this process, and leave with its exit code."""
    from perdure.cli.app import app

    app(prog_name="perdure")
