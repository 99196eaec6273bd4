"""How the lines of `perdure doctor` are shown to people."""

from __future__ import annotations

import io

from rich.console import Console

from perdure.cli.commands.store_checks import Check, checks_view


def test_a_long_line_goes_on_under_its_own_text() -> None:
    """So that the names stand alone, however narrow the window is; what helps stands under it."""
    out = io.StringIO()
    console = Console(file=out, width=30)
    console.print(*checks_view([Check("disk", "note", "only 2 MB are free where the data is", "free some")]))

    assert [line.rstrip() for line in out.getvalue().splitlines()] == [
        "· disk  only 2 MB are free",
        "        where the data is",
        "        → free some",
        "All is well.",
    ]
